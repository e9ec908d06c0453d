/* Prepares a list of Django's own for a telephone: each cell gets the name of its column, which the
   style sheet shows before the value where the columns do not fit beside each other. */
"use strict";
(() => {
  const list = document.querySelector("#result_list");
  if (!list || list.querySelector("[data-label]")) return; // Some themes have names of their own.
  const names = [...list.querySelectorAll("thead th")].map((each) => (each.querySelector(".text") ?? each).textContent.trim());
  for (const row of list.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, number) => {
      if (!cell.matches("td:not(.action-checkbox)")) return;
      if (["", "-"].includes(cell.textContent.trim())) cell.classList.add("ojs-wide-only");
      else cell.dataset.label = names[number];
    });
  }
  list.classList.add("ojs", "ojs-rows");
})();

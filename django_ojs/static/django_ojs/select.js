/* Adds a checkbox that selects all rows of a list on this page: in the head of the table, and beside the
buttons where the head is not shown. Without this script, rows are selected one by one, and the link "Select all …
that match" selects the results of a search. */
"use strict";
(() => {
  const texts = document.getElementById("ojs-texts").dataset;
  const rows = () => [...document.querySelectorAll("tbody .ojs-select input[form=ojs-selected]:not(:disabled)")];
  const all = () => [...document.querySelectorAll("input.ojs-select-all")];

  const show = () => {
    const boxes = rows();
    const selected = boxes.filter((box) => box.checked).length;
    for (const box of all()) {
      box.checked = selected > 0 && selected === boxes.length;
      box.indeterminate = selected > 0 && selected < boxes.length;
    }
    for (const text of document.querySelectorAll("[data-ojs-selected]")) {
      const counted = selected === 1 ? texts.textWithOne : texts.textWithMany;
      text.textContent = selected ? counted.replace("{n}", selected) : texts.textWithSelected;
    }
  };
  const make = () => {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.className = "ojs-select-all";
    box.addEventListener("change", () => {
      for (const each of rows()) each.checked = box.checked;
      show();
    });
    return box;
  };
  const add = () => {
    if (rows().length) {
      for (const head of document.querySelectorAll("thead .ojs-select")) {
        if (head.querySelector("input")) continue;
        const box = make();
        box.setAttribute("aria-label", texts.textSelectPage);
        head.append(box);
      }
      for (const text of document.querySelectorAll("[data-ojs-selected]")) {
        if (text.previousElementSibling?.matches(".ojs-select-here")) continue;
        const label = document.createElement("label");
        label.className = "ojs-select-here";
        label.append(make(), ` ${texts.textPage}`);
        text.before(label);
      }
    }
    show();
  };
  add();
  document.addEventListener("change", (event) => event.target.closest?.(".ojs-select") && show());
  document.addEventListener("ojs-refreshed", add);
  window.addEventListener("pageshow", show); // A browser that goes back restores the boxes.
})();

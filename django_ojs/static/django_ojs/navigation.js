/* Scrolls the navigation, which is one line on a telephone, to the open page. Closes the lists of other
   pages and actions when the user clicks or moves the focus elsewhere, or presses Escape. */
"use strict";
(() => {
  const current = document.querySelector("#ojs-navigation [aria-current]");
  if (current) {
    const list = current.closest("ul");
    const middle = current.offsetLeft - list.offsetLeft + current.offsetWidth / 2;
    list.scrollLeft = middle - list.clientWidth / 2;
  }
  const close = (but) => {
    for (const each of document.querySelectorAll(".ojs-more[open]")) if (!each.contains(but)) each.open = false;
  };
  document.addEventListener("click", (event) => close(event.target));
  document.addEventListener("focusin", (event) => close(event.target));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const open = document.activeElement?.closest(".ojs-more[open]");
    close(null);
    open?.querySelector("summary").focus();
  });
})();

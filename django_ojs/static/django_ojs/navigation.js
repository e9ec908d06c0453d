/* Scrolls the navigation to the page that is open, where it is one line that scrolls. */
"use strict";
(() => {
  const current = document.querySelector("#ojs-navigation [aria-current]");
  if (!current) return;
  const list = current.closest("ul");
  const middle = current.offsetLeft - list.offsetLeft + current.offsetWidth / 2;
  list.scrollLeft = middle - list.clientWidth / 2;
})();

/* Makes tables that are wider than the page reachable by keyboard, so that the arrow keys scroll them. */
"use strict";
(() => {
  const mark = () => {
    for (const each of document.querySelectorAll(".ojs-scroll")) {
      if (each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight) each.tabIndex = 0;
      else each.removeAttribute("tabindex");
    }
  };
  // The first step of a workflow is in the middle of its picture.
  const centre = () => {
    for (const each of document.querySelectorAll(".ojs-workflow .ojs-scroll")) {
      each.scrollLeft = (each.scrollWidth - each.clientWidth) / 2;
    }
  };
  mark();
  centre();
  window.addEventListener("resize", mark);
  document.addEventListener("ojs-refreshed", mark);
  document.addEventListener("toggle", mark, true); // A table within <details> has no size while closed.
})();

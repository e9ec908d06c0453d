/* Adds a button that copies the text of an element with data-ojs-copy. Without this script the text can
   be selected. */
"use strict";
(() => {
  const texts = document.getElementById("ojs-texts").dataset;
  const select = (element) => {
    const selection = document.getSelection();
    selection.selectAllChildren(element);
    return selection;
  };
  /* Without TLS a browser has no clipboard API: then the text is selected, and copied by a command. */
  const copy = async (element) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(element.textContent);
    const selection = select(element);
    if (!document.execCommand("copy")) throw new Error("not copied");
    selection.removeAllRanges();
  };
  const addTo = (element) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "ojs-button ojs-copy";
    button.textContent = texts.textCopy;
    button.addEventListener("click", async (event) => {
      try {
        await copy(element);
        button.textContent = texts.textCopied;
      } catch {
        select(element);
        button.textContent = texts.textSelected;
      }
      // A button that keeps the focus after a click would stop the refresh of its region.
      if (event.detail) button.blur();
    });
    element.before(button);
  };
  const addAll = () => {
    for (const each of document.querySelectorAll("[data-ojs-copy]")) {
      if (!each.previousElementSibling?.matches(".ojs-copy")) addTo(each);
    }
  };
  addAll();
  document.addEventListener("ojs-refreshed", addAll);
})();

"use strict";

// A second click before the response arrives must not send a form again: the browser would show
// the second response, and a secret is only in the first.
(() => {
  const WAIT_MS = 15000;
  // The buttons, or the forms that were sent without one: another button is another action.
  let sent = new WeakSet();

  document.addEventListener("submit", event => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    const key = event.submitter ?? form;
    if (sent.has(key)) {
      event.preventDefault();
      return;
    }
    sent.add(key);
    // Where no response comes, the user can try again.
    setTimeout(() => sent.delete(key), WAIT_MS);
  });
  // The page from the cache of the browser, after "back".
  addEventListener("pageshow", event => {
    if (event.persisted) sent = new WeakSet();
  });
})();

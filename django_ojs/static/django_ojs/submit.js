"use strict";

// A second click before the response arrives must not send a form again: the browser would show
// the second response, but only the first one has a new secret.
(() => {
  const WAIT_MS = 15000;
  // The buttons that sent a form, or forms that were sent without one. Another button may be used,
  // because it is another action.
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
    // If no response comes, the user can try again.
    setTimeout(() => sent.delete(key), WAIT_MS);
  });
  // After "back", the browser may show the page from its cache.
  addEventListener("pageshow", event => {
    if (event.persisted) sent = new WeakSet();
  });
})();

"use strict";

// A second click before the response arrives must not send a form again: the browser would show
// the second response, and a secret is only in the first.
(() => {
  const WAIT_MS = 15000;
  const sent = new WeakSet();

  document.addEventListener("submit", event => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (sent.has(form)) {
      event.preventDefault();
      return;
    }
    sent.add(form);
    // Where no response comes, the user can try again.
    setTimeout(() => sent.delete(form), WAIT_MS);
  });
  // The page from the cache of the browser, after "back".
  addEventListener("pageshow", event => {
    if (event.persisted) document.querySelectorAll("form").forEach(form => sent.delete(form));
  });
})();

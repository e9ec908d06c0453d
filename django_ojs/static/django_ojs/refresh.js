/* Brings marked regions up to date: elements with an id and data-ojs-refresh="seconds".

It rests while the tab is hidden, and leaves alone a region in which something is selected, typed,
ticked, pressed or pointed at with the keyboard. Without it the pages work, and are as old as their loading. */
"use strict";
(() => {
  const regions = () => [...document.querySelectorAll("[id][data-ojs-refresh]")];
  if (!regions().length) return;

  const seconds = Math.max(2, Math.min(...regions().map((r) => Number(r.dataset.ojsRefresh) || 10)));
  let pause = seconds;
  let timer = 0;

  const selectedIn = (region) => {
    const selection = document.getSelection();
    return !!selection && !selection.isCollapsed && selection.containsNode(region, true);
  };
  const busy = (region) =>
    selectedIn(region) ||
    region.matches(":active") || // A button replaced between press and release would swallow the click.
    (region.contains(document.activeElement) &&
      document.activeElement.matches("input, select, textarea, button, :focus-visible")) ||
    !!region.querySelector("input[type=checkbox]:checked");

  const open = (region) => [...region.querySelectorAll("details")].map((each) => each.open);

  const replace = (fresh) => {
    for (const region of regions()) {
      const other = fresh.getElementById(region.id);
      if (!other || busy(region)) continue;
      const wereOpen = open(region);
      const scrolled = [...region.querySelectorAll(".ojs-scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
      region.replaceChildren(...other.childNodes);
      region.querySelectorAll("details").forEach((each, n) => (each.open = wereOpen[n] ?? each.open));
      region.querySelectorAll(".ojs-scroll").forEach((each, n) => scrolled[n] && each.scrollTo(...scrolled[n]));
    }
  };

  const look = async () => {
    if (!document.hidden && !regions().every(busy)) {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin" });
        if (answer.redirected || answer.status === 403) return; // Logged out: this page says no more.
        if (!answer.ok) throw new Error(String(answer.status));
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        pause = seconds;
      } catch {
        pause = Math.min(pause * 2, 120); // A server in trouble is asked less often.
      }
    }
    timer = setTimeout(look, pause * 1000);
  };

  timer = setTimeout(look, pause * 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    clearTimeout(timer);
    look();
  });
})();

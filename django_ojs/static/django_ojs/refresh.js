/* Refreshes marked regions: elements with an id and data-ojs-refresh="seconds".

It pauses while the tab is hidden, and skips a region in which the user selects text, types, has checked
a box, presses a button or has the keyboard focus. The pages work without it, but do not refresh. */
"use strict";
(() => {
  const regions = () => [...document.querySelectorAll("[id][data-ojs-refresh]")];
  if (!regions().length) return;

  const seconds = Math.max(2, Math.min(...regions().map((r) => Number(r.dataset.ojsRefresh) || 10)));
  let delay = seconds;
  let timer = 0;

  const selectedIn = (region) => {
    const selection = document.getSelection();
    return !!selection && !selection.isCollapsed && selection.containsNode(region, true);
  };
  const busy = (region) =>
    selectedIn(region) ||
    region.matches(":active") || // A button that is replaced between press and release loses the click.
    (region.contains(document.activeElement) &&
      document.activeElement.matches("input, select, textarea, button, :focus-visible")) ||
    !!region.querySelector("input[type=checkbox]:checked");

  const openDetails = (region) => [...region.querySelectorAll("details")].map((each) => each.open);

  const replace = (fresh) => {
    for (const region of regions()) {
      const other = fresh.getElementById(region.id);
      if (!other || busy(region)) continue;
      const wereOpen = openDetails(region);
      const scrolled = [...region.querySelectorAll(".ojs-scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
      region.replaceChildren(...other.childNodes);
      region.querySelectorAll("details").forEach((each, n) => (each.open = wereOpen[n] ?? each.open));
      region.querySelectorAll(".ojs-scroll").forEach((each, n) => scrolled[n] && each.scrollTo(...scrolled[n]));
    }
  };

  const refresh = async () => {
    if (!document.hidden && !regions().every(busy)) {
      try {
        const response = await fetch(location.href, { credentials: "same-origin" });
        if (response.redirected || response.status === 403) return; // Logged out.
        if (!response.ok) throw new Error(String(response.status));
        replace(new DOMParser().parseFromString(await response.text(), "text/html"));
        delay = seconds;
      } catch {
        delay = Math.min(delay * 2, 120); // Fewer requests while the server fails.
      }
    }
    document.dispatchEvent(new Event("ojs-refreshed"));
    clearTimeout(timer); // A refresh on visibility may have run beside a timed one.
    timer = setTimeout(refresh, delay * 1000);
  };

  timer = setTimeout(refresh, delay * 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    clearTimeout(timer);
    refresh();
  });
})();

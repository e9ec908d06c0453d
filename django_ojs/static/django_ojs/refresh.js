/* Refreshes marked regions: elements with an id and data-ojs-refresh="seconds".

It pauses while the tab is hidden, and skips a region in which the user selects text, types, has checked
a box, presses a button or has the keyboard focus. Rows under the mouse do not move: a button says how
many are new. A line at the top says from when the page is, and why it is not refreshed. Without this script
the pages work, but do not refresh.

With a button, the user can have regions with data-ojs-live="seconds" refreshed faster: the server then
sends only these regions, and the browser remembers the choice. */
"use strict";
(() => {
  const regions = () => [...document.querySelectorAll("[id][data-ojs-refresh]")];
  if (!regions().length) return;
  const texts = document.getElementById("ojs-texts").dataset;

  const slow = Math.max(2, Math.min(...regions().map((r) => Number(r.dataset.ojsRefresh) || 10)));
  const live = Math.min(...regions().map((r) => Number(r.dataset.ojsLive) || Infinity));
  const KEY = "ojs-live";
  const stored = (use) => {
    try {
      return use(localStorage); // A browser may forbid this: then the choice lasts as long as the page.
    } catch {
      return null;
    }
  };
  let isFast = live < slow && stored((all) => all.getItem(KEY)) === "1";
  let seconds = isFast ? live : slow;
  let since = 0; // Seconds since the whole page was requested.
  let delay = seconds;
  let timer = 0;
  let missed = 0; // Refreshes in a row that changed nothing on the page.
  let paused = false;
  let ended = false;
  let held = null; // A response whose rows would move under the mouse.

  const make = (name, className, text = "") => {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  };
  const asOf = (root) => root.querySelector("[data-ojs-as-of]")?.dataset.ojsAsOf ?? "";
  let time = asOf(document);
  const line = make("div", "ojs-live");
  const state = line.appendChild(make("span", ""));
  const more = line.appendChild(make("button", "ojs-button"));
  const pause = line.appendChild(make("button", "ojs-button"));
  const faster = line.appendChild(make("button", "ojs-button", texts.textFaster));
  more.type = pause.type = faster.type = "button";
  document.querySelector(".ojs-page")?.prepend(line);

  /* Say from when the page is. `problem` says why it is not refreshed; a screen reader reads it once. */
  const show = (problem = "") => {
    const sentence = problem ? `${problem} ${texts.textAsOf}` : paused ? texts.textPaused : texts.textLive;
    const text = sentence.replace("{time}", time);
    if (state.textContent !== text) state.textContent = text;
    line.className = problem ? "ojs-live ojs-stale" : "ojs-live";
    if (problem) line.setAttribute("role", "alert");
    else line.removeAttribute("role");
    const rows = held ? newRows(held) : 0;
    more.hidden = !held;
    const counted = rows === 1 ? texts.textNewOne : texts.textNewMany;
    more.textContent = rows ? counted.replace("{n}", rows) : texts.textMoved;
    pause.hidden = ended;
    faster.hidden = ended || live >= slow;
    faster.setAttribute("aria-pressed", String(isFast));
    pause.textContent = paused ? texts.textResume : texts.textPause;
  };
  const end = (problem) => {
    ended = true;
    held = null;
    show(problem);
  };

  const selectedIn = (region) => {
    const selection = document.getSelection();
    return !!selection && !selection.isCollapsed && selection.containsNode(region, true);
  };
  const busy = (region) =>
    selectedIn(region) ||
    region.matches(":active") || // A button that is replaced between press and release loses the click.
    (region.contains(document.activeElement) &&
      document.activeElement.matches("input, select, textarea, button, :focus-visible")) ||
    !!region.querySelector("input[type=checkbox]:checked:enabled");

  const keysOf = (root) =>
    [...root.querySelectorAll("tbody tr")].map((row) => row.querySelector("a[href]")?.getAttribute("href"));
  const newRows = (fresh) =>
    regions().reduce((sum, region) => {
      const known = new Set(keysOf(region));
      const other = fresh.getElementById(region.id);
      return sum + (other ? keysOf(other).filter((key) => !known.has(key)).length : 0);
    }, 0);
  const wouldMove = (region, other) =>
    !!region.querySelector("tbody:hover") && keysOf(region).join("\n") !== keysOf(other).join("\n");

  const openDetails = (region) => [...region.querySelectorAll("details")].map((each) => each.open);

  /* Return whether all regions now show the response. */
  const replace = (fresh, always = false) => {
    let whole = true;
    held = null;
    for (const region of regions()) {
      const other = fresh.getElementById(region.id);
      if (!other) continue;
      if (!always && wouldMove(region, other)) held = fresh;
      if (busy(region) || held) {
        whole = false;
        continue;
      }
      const wereOpen = openDetails(region);
      const scrolled = [...region.querySelectorAll(".ojs-scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
      region.replaceChildren(...other.childNodes);
      region.querySelectorAll("details").forEach((each, n) => (each.open = wereOpen[n] ?? each.open));
      region.querySelectorAll(".ojs-scroll").forEach((each, n) => scrolled[n] && each.scrollTo(...scrolled[n]));
    }
    const navigation = document.getElementById("ojs-navigation");
    const numbers = fresh.getElementById("ojs-navigation");
    if (navigation && numbers && !busy(navigation)) navigation.replaceChildren(...numbers.childNodes);
    if (whole) time = asOf(fresh);
    return whole;
  };

  const refresh = async () => {
    let problem = texts.textBusy;
    let fresh = false;
    if (!document.hidden && !regions().every(busy)) {
      try {
        since += seconds;
        const address = new URL(location.href);
        if (isFast && since < slow) address.searchParams.set("live", "1");
        else since = 0;
        const response = await fetch(address, { credentials: "same-origin" });
        if (response.redirected || response.status === 403) end(texts.textLoggedOut);
        else if (response.status === 404) end(texts.textGone);
        else if (!response.ok) throw new Error(String(response.status));
        else if (!paused) fresh = replace(new DOMParser().parseFromString(await response.text(), "text/html"));
        if (held) problem = "";
        delay = seconds;
      } catch {
        problem = texts.textNoResponse;
        delay = Math.min(delay * 2, 120); // Fewer requests while the server fails.
      }
    }
    if (!ended) {
      missed = fresh || document.hidden ? 0 : missed + 1;
      show(missed < 2 || paused ? "" : problem);
      clearTimeout(timer); // A refresh for a tab that is shown again may have run beside a timed one.
      if (!paused) timer = setTimeout(refresh, delay * 1000);
    }
    document.dispatchEvent(new Event("ojs-refreshed"));
  };

  more.addEventListener("click", () => {
    if (held) replace(held, true);
    show();
  });
  pause.addEventListener("click", () => {
    paused = !paused;
    missed = 0;
    clearTimeout(timer);
    if (!paused) refresh();
    show();
  });

  faster.addEventListener("click", () => {
    isFast = !isFast;
    stored((all) => all.setItem(KEY, isFast ? "1" : "0"));
    delay = seconds = isFast ? live : slow;
    clearTimeout(timer);
    if (!paused) refresh();
    show();
  });

  show();
  timer = setTimeout(refresh, delay * 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || paused || ended) return;
    clearTimeout(timer);
    refresh();
  });
})();

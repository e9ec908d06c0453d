/* Suggests qualifiers and known values while a search is typed: an input with data-ojs-suggestions, the URL
   of the values. Arrow keys choose, Enter or Tab takes, Escape closes. The search works without it. */
"use strict";
(() => {
  const MOST = 12;
  const input = document.querySelector("input[data-ojs-suggestions]");
  if (!input) return;

  const list = document.createElement("ul");
  list.id = "ojs-suggestions";
  list.className = "ojs-suggestions";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", document.getElementById("ojs-texts").dataset.textSuggestions);
  input.after(list);
  input.type = "text"; // An input of the type search may not be a combobox.
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-controls", list.id);
  input.setAttribute("aria-expanded", "false");

  let known = null; // The qualifiers with their examples, and the values of each.
  let chosen = -1;

  const load = async () => {
    if (known) return;
    known = { qualifiers: {}, values: {} };
    try {
      const response = await fetch(input.dataset.ojsSuggestions, { credentials: "same-origin" });
      if (response.ok && !response.redirected) known = await response.json();
    } catch {
      // Without suggestions the search works as before.
    }
    if (document.activeElement === input) show();
  };

  /* The word before the cursor, and where it begins. */
  const word = () => {
    const before = input.value.slice(0, input.selectionStart ?? input.value.length);
    const begin = before.search(/[^\s]*$/);
    return { begin, text: before.slice(begin) };
  };

  /* What can replace the word: a text, and an explanation. */
  const suggestions = () => {
    const { text } = word();
    const [, minus, name, colon, typed] = /^(-?)([^:]*)(:?)(.*)$/.exec(text);
    if (!colon) {
      if (!name) return [];
      if (name.startsWith("args.")) {
        return (known.parameters ?? [])
          .filter((parameter) => parameter.startsWith(name.slice(5)))
          .map((parameter) => ({ text: `args.${parameter}:`, example: "" }));
      }
      return Object.entries(known.qualifiers)
        .filter(([qualifier]) => qualifier.startsWith(name.toLowerCase()))
        .map(([qualifier, example]) => ({ text: `${minus}${qualifier}${/^(args|meta)$/.test(qualifier) ? "." : ":"}`, example }));
    }
    const values = known.values[name] ?? [];
    const comma = typed.lastIndexOf(",") + 1;
    const part = typed.slice(comma).toLowerCase();
    return values
      .filter((value) => value.toLowerCase().includes(part) && value.toLowerCase() !== part)
      .sort((a, b) => b.startsWith(part) - a.startsWith(part))
      .map((value) => ({ text: `${minus}${name}:${typed.slice(0, comma)}${value}`, example: "" }));
  };

  const close = () => {
    list.hidden = true;
    list.replaceChildren();
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const show = () => {
    close();
    const found = known ? suggestions().slice(0, MOST) : [];
    for (const [n, suggestion] of found.entries()) {
      const option = document.createElement("li");
      option.id = `ojs-suggestion-${n}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      option.dataset.text = suggestion.text;
      option.append(Object.assign(document.createElement("b"), { textContent: suggestion.text }));
      if (suggestion.example) option.append(Object.assign(document.createElement("span"), { textContent: suggestion.example }));
      list.append(option);
    }
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
  };

  const choose = (index) => {
    const options = [...list.children];
    chosen = (index + options.length) % options.length;
    options.forEach((each, n) => each.setAttribute("aria-selected", String(n === chosen)));
    input.setAttribute("aria-activedescendant", options[chosen].id);
    options[chosen].scrollIntoView({ block: "nearest" });
  };

  const take = (option) => {
    const { begin, text } = word();
    const added = /[:.]$/.test(option.dataset.text) ? option.dataset.text : `${option.dataset.text} `;
    const after = input.value.slice(begin + text.length).replace(/^ /, "");
    input.value = input.value.slice(0, begin) + added + after;
    input.setSelectionRange(begin + added.length, begin + added.length);
    show();
  };

  input.addEventListener("focus", load);
  input.addEventListener("input", () => (known ? show() : load()));
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen < 0 ? -1 : chosen - 1);
    else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) take(list.children[chosen]);
    else return;
    event.preventDefault();
  });
  // A click would come too late: the input loses the focus before, which closes the list.
  list.addEventListener("mousedown", (event) => {
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option) take(option);
  });
  if (document.activeElement === input) load();
})();

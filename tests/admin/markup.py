"""The structure of a page without its text, and hostile strings."""

from __future__ import annotations

import re
from html.parser import HTMLParser

#: Each is printable, as names of workers and hosts have to be.
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></svg><svg onload=alert(1)>",
    "</textarea></select></table>",
    "{{ settings.SECRET_KEY }}{% debug %}",
    "javascript:alert(1)",
    "../../../../admin/logout/",
    "a/b?c=d&e=f#g;h",
    "&lt;b&gt;&amp;quot;",
    "<!--",
    "]]>",
    "%00%0a%s%n",
    "\N{FULLWIDTH LATIN SMALL LETTER A}dmin",
    "x" * 200,
]


class Structure(HTMLParser):
    """The tags of a page with the names of their attributes, and what a strict policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.forbidden: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, tuple(sorted(values))))
        self._script = tag == "script"
        if tag == "style" or (tag == "script" and "src" not in values):
            self.forbidden.append(f"inline <{tag}>")
        for name, value in values.items():
            text = (value or "").strip().lower()
            if name == "style" or name.startswith("on"):
                self.forbidden.append(f"{name}= on <{tag}>")
            elif name in ("href", "src", "action", "formaction") and text.startswith(
                ("javascript:", "data:", "http:", "https:", "//")
            ):
                self.forbidden.append(f"{name}={text} on <{tag}>")


def structure(page: str) -> Structure:
    """Return the structure of a page."""
    found = Structure()
    found.feed(page)
    return found


class _Inputs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, list[str]] = {}
        self._textarea: str | None = None
        self._select: str | None = None

    def _add(self, name: str, value: str) -> None:
        # A browser sends each line break as two characters.
        self.data.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\n", "\r\n"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name, value = values.get("name") or "", values.get("value")
        if tag == "textarea":
            self._textarea, self.data[name] = name, [""]
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in values:
            self._add(self._select, value or "")
        elif tag == "input" and name and values.get("type") not in ("submit", "button"):
            is_choice = values.get("type") in ("checkbox", "radio")
            if not is_choice or "checked" in values:
                self._add(name, "on" if is_choice and value is None else value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._textarea:
            value = "".join(self.data.pop(self._textarea)).removeprefix("\n")
            self._add(self._textarea, value)
            self._textarea = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.data[self._textarea].append(data)


def form_data(page: str, field: str) -> dict[str, list[str]]:
    """Return what a browser sends of the form that has a field, hidden inputs included."""
    for form in re.findall(r"<form\b.*?</form>", page, re.DOTALL):
        inputs = _Inputs()
        inputs.feed(form)
        if field in inputs.data:
            return inputs.data
    raise AssertionError(f"No form has {field}.")

"""The structure of a page without its text, and hostile strings."""

from __future__ import annotations

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

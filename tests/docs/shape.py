"""Compare the response that a page shows with the one that came.

Ids and times are matched loosely, everything else exactly. In what a page shows, `…` stands for
what it leaves out: an element or a member (`{"job": {"id": …, …}}`), or a part of a string. An id
that is shown stands for the one that came: later commands that name it get the real one.
"""

from __future__ import annotations

import json
import re
from typing import Any

REST = "…"
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
#: The time of a line of a log, and how long a job ran.
_CLOCK, _SPAN = r"\b\d\d:\d\d:\d\d\b", r"\b\d[\d.]* m?s\b"
# A string, or what stands for what is left out, or a bracket, a comma or a colon.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|…|[\[\]{},:]')


class Ids:
    """Which id came for one that a page shows."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def learn(self, shown: str, came: str) -> bool:
        """Note what an id stands for. Return False when it stood for another one before."""
        return self._real.setdefault(shown, came) == came

    def put_in(self, text: str) -> str:
        """Put the real ids in the place of the shown ones."""
        return ID.sub(lambda found: self._real.get(found[0], found[0]), text)


def parse(text: str) -> Any:
    """Parse JSON in which `…` stands for a member, an element or a value."""
    opened: list[str] = []
    before = ""
    out, end = [], 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "[{":
            opened.append(token)
        elif token in "]}":
            opened.pop()
        written = token
        if token == REST:
            member = opened and opened[-1] == "{" and before in "{,"
            written = f'"{REST}": "{REST}"' if member else f'"{REST}"'
        out += [text[end : found.start()], written]
        before, end = token, found.end()
    return json.loads("".join([*out, text[end:]]))


def compare(shown: Any, came: Any, ids: Ids, at: str = "") -> None:
    """Raise AssertionError naming the place where the two differ."""
    if shown == REST:
        return
    place = at or "the response"
    if isinstance(shown, dict):
        assert isinstance(came, dict), f"{place} is no object"
        names = shown.keys() - {REST}
        assert names <= came.keys(), f"{place} lacks {sorted(names - came.keys())}"
        if REST not in shown:
            assert names == came.keys(), f"{place} also has {sorted(came.keys() - names)}"
        for name in names:
            compare(shown[name], came[name], ids, f"{at}.{name}")
    elif isinstance(shown, list):
        assert isinstance(came, list), f"{place} is no array"
        wanted = shown[: shown.index(REST)] if REST in shown else shown
        assert len(came) >= len(wanted), f"{place} has {len(came)} elements"
        assert REST in shown or len(came) == len(wanted), f"{place} has {len(came)} elements"
        for index, element in enumerate(wanted):
            compare(element, came[index], ids, f"{at}[{index}]")
    elif isinstance(shown, str):
        assert isinstance(came, str), f"{place} is {came!r}"
        compare_text(shown, came, ids, place)
    else:
        assert (type(shown), shown) == (type(came), came), f"{place} is {came!r}"


def compare_text(shown: str, came: str, ids: Ids, place: str = "the response") -> None:
    """Compare two texts: ids and times of the same form are alike, `…` is any text."""
    pattern, learned = _pattern(shown)
    found = re.fullmatch(pattern, came, re.DOTALL)
    assert found, f"{place} is {came!r}"
    for number, id_ in enumerate(learned):
        assert ids.learn(id_, found[f"id{number}"]), f"{place} has another id than before"


def _pattern(shown: str) -> tuple[str, list[str]]:
    parts, ids, end = [], [], 0
    alike = {"time": _TIME.pattern, "clock": _CLOCK, "span": _SPAN}
    named = "|".join(f"(?P<{name}>{pattern})" for name, pattern in alike.items())
    for found in re.finditer(f"(?P<id>{ID.pattern})|{named}|{REST}", shown):
        parts.append(re.escape(shown[end : found.start()]))
        if found["id"]:
            parts.append(f"(?P<id{len(ids)}>{ID.pattern})")
            ids.append(found["id"])
        else:
            parts.append(alike.get(str(found.lastgroup), ".*?"))
        end = found.end()
    return "".join([*parts, re.escape(shown[end:])]), ids

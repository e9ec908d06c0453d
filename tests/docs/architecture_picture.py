"""Draw the parts of the package and what imports what: `python -m tests.docs.architecture_picture`.

The arrows come from the imports. One that a way over other arrows implies is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from tests.architecture.imports import PACKAGE, imports, modules
from tests.architecture.test_layers import FLOORS
from tests.docs.pages import ROOT

PICTURE: Final = ROOT / "docs/images/architecture.svg"

#: The parts, lowest first, with what a box says of each. A part imports those below it.
PARTS: Final = {
    "spec": ("spec/", "what the documents define: states, envelope, times, errors"),
    "extension": ("extension.py, hooks.py", "what an extension may do, and who calls it"),
    "storage": ("storage/, models/", "the tables, and the only writers of a state"),
    "operations": ("operations/", "push, fetch, ack, fail, beat, cancel and what they share"),
    "api": ("client.py, handlers.py, tasks/ …", "the Python API"),
    "worker": ("worker/", "supervisor, claimer, executor, completer, heartbeat"),
    "doors": ("http/, admin/, command_line/", "three doors, and the reports/ that they show"),
    "extensions": ("extensions/", "one folder a subject, with everything about it"),
    "contrib": ("contrib/", "Celery, OpenTelemetry, Sentry"),
    "testing": ("testing/", "helpers for the tests of a project"),
}
_FOLDERS: Final = {
    "conf": "storage",
    "migrations": "storage",
    "models": "storage",
    "extension": "extension",
    "hooks": "extension",
    "claim_rules": "extension",
    "signals": "extension",
    "reports": "doors",
    "http": "doors",
    "admin": "doors",
    "command_line": "doors",
    "management": "doors",
    "templatetags": "doors",
    "examples": "testing",
    "pytest_plugin": "testing",
}
#: Where a module stands that is not named above.
_OF_FLOOR: Final = {1: "spec", 2: "storage", 3: "operations", 4: "doors", 5: "api"}

_WIDTH, _HEIGHT, _GAP = 560, 46, 26


def part_of(module: str) -> str | None:
    """Return the part of a module; None for those that may see the whole package."""
    name = module.removeprefix(PACKAGE).strip(".").partition(".")[0]
    if name in PARTS:
        return name
    floor = FLOORS.get(name)
    return _FOLDERS.get(name) or (None if floor is None else _OF_FLOOR[floor])


def arrows() -> dict[str, set[str]]:
    """Return for each part the lower parts that it imports."""
    order = list(PARTS)
    found: dict[str, set[str]] = {part: set() for part in PARTS}
    known = modules()
    for module, path in known.items():
        importer = part_of(module)
        for each in imports(module, path, frozenset(known)):
            imported = part_of(each.target) if each.target.startswith(f"{PACKAGE}.") else None
            if importer and imported and order.index(imported) < order.index(importer):
                found[importer].add(imported)
    return found


def shortest(found: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Return the arrows that no way over other arrows implies."""

    def reached(part: str) -> set[str]:
        below = set(found[part])
        return below.union(*map(reached, below)) if below else below

    return [
        (part, below)
        for part, all_below in found.items()
        for below in all_below
        if not any(below in reached(other) for other in all_below if other != below)
    ]


def picture() -> str:
    """Return the picture, as SVG."""
    # Two parts stand side by side at the top: nothing imports them.
    rows = {part: row for row, part in enumerate(list(PARTS)[:-1])}
    rows["testing"] = rows["contrib"]
    top = max(rows.values())
    half = (_WIDTH - _GAP) // 2

    def box(part: str) -> tuple[int, int, int]:
        """Return the left, the top and the width of a box."""
        is_half = part in ("contrib", "testing")
        left = half + _GAP if part == "testing" else 0
        return left + 10, (top - rows[part]) * (_HEIGHT + _GAP) + 10, half if is_half else _WIDTH

    lines = []
    for part, below in sorted(shortest(arrows())):
        left, y, width = box(part)
        x, start, end = left + width // 2, y + _HEIGHT, box(below)[1]
        if rows[part] - rows[below] > 1:  # Round the boxes between.
            side = _WIDTH + 10 + _GAP // 2
            way = f"M {left + width} {y + _HEIGHT // 2} H {side} V {end + _HEIGHT // 2} "
            way += f"H {_WIDTH + 14}"
        else:
            way = f"M {x} {start} V {end - 4}"
        lines.append(f'<path class="arrow" d="{way}"/>')
    boxes = []
    for part, (title, text) in PARTS.items():
        left, y, width = box(part)
        boxes += [
            f'<rect x="{left}" y="{y}" width="{width}" height="{_HEIGHT}" rx="6"/>',
            f'<text class="name" x="{left + 12}" y="{y + 19}">{escape(title)}</text>',
            f'<text x="{left + 12}" y="{y + 37}">{escape(text)}</text>',
        ]
    size = (_WIDTH + 20 + _GAP, (top + 1) * (_HEIGHT + _GAP) + 20 - _GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
            f'width="{size[0]}" height="{size[1]}" role="img">',
            "<title>The parts of django_ojs: each imports those below it</title>",
            "<style>",
            "rect{fill:#f6f8fa;stroke:#57606a}",
            "text{font:13px sans-serif;fill:#24292f}",
            ".name{font-weight:bold}",
            ".arrow{fill:none;stroke:#57606a;stroke-width:1.5;marker-end:url(#head)}",
            "</style>",
            '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>',
            '<defs><marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8Z" fill="#57606a"/></marker>'
            "</defs>",
            *lines,
            *boxes,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())

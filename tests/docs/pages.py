"""The pages of the documentation, and the fenced blocks and tables in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

#: What a table has where there is nothing.
NONE = "\N{EN DASH}"

_FENCE = re.compile(
    r"^(?:<!-- Not typed: ([^>]+?) -->\n+)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_FILE = re.compile(r"# ([a-z0-9_.]+(?:/[a-z0-9_.]+)*\.[a-z]+)(?:[:,] .*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block.

    `file` is the path that its first line names, if any, and `untyped` is what the page says, in a
    comment above the block, why a test cannot type it.
    """

    page: Path
    line: int
    language: str
    text: str
    untyped: str | None = None

    @property
    def file(self) -> str | None:
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found[1] if found else None

    @property
    def module(self) -> str | None:
        """The dotted name of the file, if it is a Python module."""
        if self.file is None or not self.file.endswith(".py"):
            return None
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def where(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(page=page, line=line, language=found[2], text=found[3], untyped=found[1])


def section(page: Path, anchor: str) -> list[Block]:
    """Return the blocks below a heading, up to the next one of its level."""
    lines = prose_with_lines(page)
    headings = [(m.start(), len(m[1]), slug(m[2])) for m in _HEADING.finditer(lines)]
    (begin, level), *_ = [(at, deep) for at, deep, name in headings if name == anchor]
    end = next((at for at, deep, _ in headings if at > begin and deep <= level), len(lines))
    first, last = lines.count("\n", 0, begin), lines.count("\n", 0, end)
    return [block for block in blocks(page) if first < block.line <= last]


def prose_with_lines(page: Path) -> str:
    """Return the page with empty lines in the place of its blocks."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())


def slug(heading: str) -> str:
    """Return the anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> list[str]:
    """Return the anchors of the sections of a page."""
    return [slug(m[2]) for m in _HEADING.finditer(prose_with_lines(page)) if len(m[1]) == 2]


def prose(page: Path) -> str:
    """Return the page without its blocks."""
    return _FENCE.sub("", page.read_text())


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its head and backquotes."""
    _, found, rest = (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")
    assert found, f"docs/{page} has no section {heading!r}"
    rows = []
    for line in rest.splitlines():
        if line.startswith("## ") or (rows and not line.startswith("|")):
            break
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            rows.append([cell.replace("\\|", "|").strip().replace("`", "") for cell in cells])
    assert len(rows) > 2, f"docs/{page} has no table under {heading!r}"
    return rows[2:]

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

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([a-z_]+(?:/[a-z_]+)*)\.py(?:[:,] .*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block. `module` is the dotted name of the file that its first line names, if any."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def module(self) -> str | None:
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found[1].replace("/", ".") if found else None

    @property
    def where(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(page=page, line=line, language=found[1], text=found[2])


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

"""Write docs/reference/conformance.md: `python -m tests.conformance.table`.

`scripts/mutants --requirements --write` calls it with a requirement and the test that failed when
that was broken, or "not found"; with `--found`, it prints the requirements that have such a test.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.conformance.marks import marks
from tests.conformance.requirements import LEVELS, NOTES, SECTIONS, Section
from tests.docs.pages import NONE, ROOT

PAGE = ROOT / "docs/reference/conformance.md"
NOT_FOUND = "not found"
#: One for each requirement: scripts/mutants breaks it, and its tests have to fail.
MUTATIONS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("mutations.toml").read_text()
)["mutation"]

HEAD = """# Conformance

Each requirement of the Open Job Spec that django_ojs meets, and the tests that show it, on
PostgreSQL and on SQLite. The manifest at `/ojs/manifest` declares level {level}, and says no more
than stands here. What is listed without a test does not work yet.

The last column says how each requirement was broken on purpose, by `scripts/mutants
--requirements`, and which of its tests failed first.

This page is written by `python -m tests.conformance.table`, from the marks of the tests.
"""


def declared_level(found: dict[str, list[str]]) -> int:
    """Return the highest level of which, and of all below, each requirement has a test."""
    level = -1
    while level + 1 in LEVELS and set(LEVELS[level + 1].must) <= found.keys():
        level += 1
    return level


def complete(section: Section, found: dict[str, list[str]]) -> bool:
    """Say whether each requirement of a section has a test."""
    return section.must.keys() <= found.keys()


def failed_tests() -> dict[str, str]:
    """Return what the page says of each mutation: the test that failed first, or "not found".

    A mutation whose name has changed since was not tried.
    """
    found = {}
    lines = PAGE.read_text().splitlines()
    cells = {line.split(" | ")[0].strip("| "): line.split(" | ")[-1].strip("| ") for line in lines}
    for mutation in MUTATIONS:
        name, _, test = cells.get(mutation["requirement"], "").partition("<br>")
        if name == mutation["name"] and test:
            found[mutation["requirement"]] = test.strip("`*")
    return found


def render(failed: dict[str, str]) -> str:
    """Return the page; `failed` has the result of each mutation, by its requirement."""
    found = marks()
    names = {mutation["requirement"]: mutation["name"] for mutation in MUTATIONS}
    parts = [HEAD.format(level=declared_level(found))]
    for section in SECTIONS:
        state = "" if complete(section, found) else " (in part)"
        parts.append(f"\n## {section.title}{state}\n")
        parts.append("| Requirement | It asks for | Shown by | Note | Broken on purpose |")
        parts.append("|---|---|---|---|---|")
        for name, text in (section.must | section.may).items():
            wanted = text if name in section.must else f"{text} (recommended)"
            tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in found.get(name, []))
            broken = names.get(name, NONE)
            if name in names and name in failed:
                test = failed[name].removeprefix("tests/")
                broken += f"<br>**{test}**" if test == NOT_FOUND else f"<br>`{test}`"
            note = NOTES.get(name, "")
            parts.append(f"| {name} | {wanted} | {tests or NONE} | {note} | {broken} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    results = failed_tests()
    match sys.argv[1:]:
        case ["--found"]:
            print(*(name for name, test in results.items() if test != NOT_FOUND))
        case [requirement, test]:
            PAGE.write_text(render(results | {requirement: test}))
        case _:
            PAGE.write_text(render(results))

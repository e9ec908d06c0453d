"""Write docs/reference/conformance.md: `python -m tests.conformance.table`."""

from __future__ import annotations

from tests.conformance.marks import marks
from tests.conformance.requirements import LEVELS, NOTES, SECTIONS, Section
from tests.docs.pages import NONE, ROOT

PAGE = ROOT / "docs/reference/conformance.md"

HEAD = """# Conformance

Each requirement of the Open Job Spec that django_ojs meets, and the tests that show it, on
PostgreSQL and on SQLite. The manifest at `/ojs/manifest` declares level {level}, and says no more
than stands here. What is listed without a test does not work yet. The tests are in `tests/`.

This page is generated: `python -m tests.conformance.table` writes it, from the list of requirements
and from the marks of the tests.
"""


def declared_level(found: dict[str, list[str]]) -> int:
    """Return the highest level whose requirements, and those of all levels below, have a test."""
    level = -1
    while level + 1 in LEVELS and set(LEVELS[level + 1].must) <= found.keys():
        level += 1
    return level


def complete(section: Section, found: dict[str, list[str]]) -> bool:
    """Say whether each requirement of a section has a test."""
    return section.must.keys() <= found.keys()


def render() -> str:
    """Return the page."""
    found = marks()
    parts = [HEAD.format(level=declared_level(found))]
    for section in SECTIONS:
        state = "" if complete(section, found) else " (in part)"
        parts.append(f"\n## {section.title}{state}\n")
        parts.append("| Requirement | It asks for | Tests |")
        parts.append("|---|---|---|")
        for name, text in (section.must | section.may).items():
            wanted = text if name in section.must else f"{text} (recommended)"
            if name in NOTES:
                wanted += f"<br>Here: {NOTES[name]}"
            tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in found.get(name, []))
            parts.append(f"| {name} | {wanted} | {tests or NONE} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())

"""The glossary has each term once, in order, and leads from it to the files of the package."""

from __future__ import annotations

import re
from collections import Counter

from tests.docs.pages import ROOT

GLOSSARY = ROOT / "docs/explanation/glossary.md"
PACKAGE = ROOT / "django_ojs"

#: The cells of each row: the term, its meaning, its source, and its files.
ROWS = [
    [cell.strip() for cell in line[1:-1].split("|")]
    for line in GLOSSARY.read_text().splitlines()
    if line.startswith("|") and not line.startswith(("| Term", "|---"))
]
TERMS = [row[0].lower() for row in ROWS]

_PATH = r"`(?:\w+/)*\w+\.\w+`"
#: Nothing for an idea without code, else the main file, and at most one more.
_FILES = re.compile(rf"(?:{_PATH}(?:, {_PATH})?)?")


def test_each_term_has_a_meaning_and_a_source() -> None:
    assert len(ROWS) > 50
    assert [row for row in ROWS if len(row) != 4 or not all(row[:3])] == []


def test_the_terms_are_in_alphabetical_order() -> None:
    assert sorted(TERMS) == TERMS


def test_no_term_stands_twice() -> None:
    assert [term for term, number in Counter(TERMS).items() if number > 1] == []


def test_the_files_of_a_term_are_one_or_two() -> None:
    assert [row for row in ROWS if not _FILES.fullmatch(row[-1])] == []


def test_each_file_of_a_term_is_in_the_package() -> None:
    named = [(row[0], path) for row in ROWS for path in re.findall(r"`([^`]+)`", row[-1])]
    missing = [f"{term}: {path}" for term, path in named if not (PACKAGE / path).is_file()]

    assert len(named) > 50
    assert missing == [], "the file has moved: which one decides what the term means now?"

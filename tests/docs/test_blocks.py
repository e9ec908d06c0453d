"""What holds for all pages. That they work is what `test_typed.py` shows."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import together
from tests.docs.pages import PAGES, ROOT, blocks, name_of, prose
from tests.docs.runner import commands, parse

LANGUAGES = {"python", "pycon", "console", "ini", "dockerfile", "text", "sql", "nginx"}


@together("page", PAGES, ids=name_of)
def test_a_command_of_a_block_that_is_not_typed_can_be_parsed(page: Path) -> None:
    for block in blocks(page):
        if block.untyped or block.language not in ("console", "python", "pycon"):
            for name, *arguments in commands(block):
                parse(name, arguments)


def test_few_blocks_are_not_typed() -> None:
    left_out = {block.untyped for page in PAGES for block in blocks(page) if block.untyped}
    assert len(left_out) <= 12, "a page is for those who do what it says"


@together("page", PAGES, ids=name_of)
def test_every_block_says_its_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    # A fence that the extractor does not see would not be run.
    assert page.read_text().count("```") == 2 * len(list(blocks(page)))


@together("page", PAGES, ids=name_of)
def test_every_link_and_every_file_of_a_page_exists(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose(page)):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:tests|django_ojs|example_project|docs)/[^`\s]*)`", prose(page)):
        assert (ROOT / path.partition("::")[0]).exists(), path


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#]+\.md)\)", index.read_text())
    }
    assert linked >= {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {index}


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        wanted = set(re.findall(r"\bmake ([a-z-]+)`", page.read_text()))
        for block in blocks(page):
            if block.language == "console":
                wanted |= set(
                    re.findall(r"^\$ (?:\S+=\S+ )*make ([a-z-]+)", block.text, re.MULTILINE)
                )
        assert wanted <= targets, name_of(page)

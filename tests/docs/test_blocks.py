"""Every fenced block of the documentation works as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from django_ojs import handlers
from django_ojs.operations.access import api_keys
from django_ojs.spec.scopes import Scope
from tests.cases import together
from tests.docs import curl
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of, prose
from tests.docs.runner import BACKPORT, PageRun

LANGUAGES = {"python", "pycon", "console", "ini", "dockerfile", "text", "sql", "nginx"}


def shell_for(page: Path, request: pytest.FixtureRequest) -> curl.Shell | None:
    """Start the server that the page's curl commands need, if it has some."""
    wanted = (c for b in blocks(page) if b.language == "console" for c in curl.commands(b))
    if not any(command.is_for_us for command in wanted):
        return None
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if curl.OPEN_URL in page.read_text():
        request.getfixturevalue("settings").ROOT_URLCONF = "example_project.open.urls"
    _, key = api_keys.create(name="docs", scopes=Scope)
    return curl.Shell(url=request.getfixturevalue("live_server").url, key=key)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_blocks_of_a_page_run_in_their_order(
    page: Path, request: pytest.FixtureRequest, settings: Any, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path
    if django.VERSION < (6, 0) and BACKPORT is None and "django.tasks import" in page.read_text():
        pytest.skip("django-tasks is not installed")
    before = handlers.job_types()
    with PageRun(shell_for(page, request)) as reading:
        for block in blocks(page):
            try:
                reading.run(block)
            except Exception as error:
                error.add_note(f"in the block at {block.where}")
                raise
    assert handlers.job_types() == before


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


@together(
    ("language", "text", "error"),
    [
        ("python", "import django_ojs as ojs\nojs.no_such_name", AttributeError),
        ("pycon", ">>> 1 + 1\n3\n", AssertionError),
        ("console", "$ python manage.py ojs_worker --no-such-option\n", CommandError),
        ("ini", "ExecStart=/venv/python manage.py ojs_worker --threads none\n", CommandError),
        ("dockerfile", 'CMD ["python", "manage.py", "ojs_workers"]\n', KeyError),
        ("python", '# settings.py\nOJS = {"POLL_INTERVALL": 1}\n', ImproperlyConfigured),
        ("python", '# settings.py\nMIDDLEWARE = ["django_ojs.nothing"]\n', ImportError),
        ("python", "# shop/tests.py\nfrom unittest import TestCase\n", AssertionError),
    ],
)
def test_a_broken_block_is_noticed(language: str, text: str, error: type[Exception]) -> None:
    block = Block(page=ROOT / "README.md", line=1, language=language, text=text)
    with PageRun() as reading, pytest.raises(error):
        reading.run(block)

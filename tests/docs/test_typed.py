"""Every page works for a reader who types it, in a new project and in nothing else."""

from __future__ import annotations

import fcntl
import re
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path

import django
import pytest

from tests.cases import together
from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, name_of, prose, section
from tests.docs.reader import Reader, copy

TUTORIAL = ROOT / "docs/tutorial/first-job.md"
#: The project that all pages begin with, as the index says.
PROJECT = ("install", "create-a-project")
#: What each begins with that does not begin with this project: an empty folder, or environment.
WHOLE = {TUTORIAL: "", ROOT / "README.md": "$ python3 -m venv venv\n"}
#: What a newcomer reads: the short suite types it, and `make docs` types all.
FIRST = ("README.md", "docs/tutorial/first-job.md", "docs/how-to/enqueue-in-a-transaction.md")
#: Each section works alone.
RECIPES = ROOT / "docs/how-to/cookbook.md"

_FIRST = re.compile(r"\bBegin with \[[^\]]*\]\(([^)#]*)#([^)]+)\)")


def typed() -> dict[str, list[Block]]:
    """Return what is typed: pages, and of the recipes each section."""
    found = {}
    for page in PAGES:
        if page == RECIPES:
            parts = {f"{name_of(page)}#{each}": section(page, each) for each in anchors(page)}
        else:
            parts = {name_of(page): [*first(page), *map(for_this_django, blocks(page))]}
        found |= {name: part for name, part in parts.items() if any(map(is_typed, part))}
    return found


def is_typed(block: Block) -> bool:
    return not block.untyped and (
        block.file is not None or block.language in ("console", "python", "pycon")
    )


def for_this_django(block: Block) -> Block:
    """Return a block with the backport of django.tasks, as its page says, where Django has none."""
    if django.VERSION >= (6, 0):
        return block
    text = block.text.replace("django.tasks import", "django_tasks import")
    if block.page.stem == "use-django-tasks":
        text = text.replace('"django_ojs",', '"django_ojs", "django_tasks",')
    return replace(block, text=text)


def first(page: Path) -> list[Block]:
    """Return the blocks of the sections of other pages that a page says to begin with."""
    text = re.sub(r"\s+", " ", prose(page))
    linked = [(page.parent / path, anchor) for path, anchor in _FIRST.findall(text)]
    begin = list(chain(*(section(path, anchor) for path, anchor in linked)))
    if page.stem == "use-django-tasks" and django.VERSION < (6, 0):
        text = '$ pip install "django-ojs[tasks]"'
        begin.append(Block(page=page, line=1, language="console", text=text))
    return begin


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project as the tutorial makes it: one for all processes of the test run."""
    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):
        shared = shared.parent
    place = shared / "typed"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = place / "made"
        if not made.exists():
            begun = place / "site"
            begun.mkdir()
            with Reader(begun) as reader:
                reader.read(chain(*(section(TUTORIAL, each) for each in PROJECT)))
            begun.rename(made)
    return made


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FIRST else [pytest.mark.pages, pytest.mark.slow])
        for name in typed()
    ],
)
def test_a_page_works_as_it_is_typed(name: str, tmp_path: Path, project: Path) -> None:
    part = typed()[name]
    if not shutil.which("curl") and any("$ curl" in block.text for block in part):
        pytest.skip("curl is not installed")
    folder = tmp_path / "site"
    begin = WHOLE.get(ROOT / name)
    if begin is None:
        copy(project, folder)
    else:
        folder.mkdir()
    with Reader(folder) as reader:
        if begin:
            reader.type(Block(page=ROOT / name, line=1, language="console", text=begin))
        reader.read(part)


def wrong(language: str, text: str) -> Block:
    return Block(page=ROOT / "README.md", line=1, language=language, text=text)


@together(
    ("block", "said"),
    [
        (wrong("python", "import django_ojs as ojs\nojs.no_such_name"), "no_such_name"),
        (wrong("pycon", ">>> 1 + 1\n3\n"), "Expected"),
        (wrong("pycon", "1 + 1\n"), "no prompt"),
        (wrong("console", "$ python manage.py ojs_worker --once --no-such\n"), "unrecognized"),
        (wrong("console", "$ python manage.py ojs_worker --threads none\n"), "must be a whole"),
        (wrong("console", "$ python manage.py test shop\n"), "Found 0 test"),
        (wrong("console", "$ echo one\ntwo\n"), "one"),
        (wrong("console", "$ pytest\n"), "ended with"),
        (wrong("python", "# shop/more/jobs.py\n"), "no folder more"),
        (wrong("python", "# venv/jobs.py\n"), "no package"),
        (wrong("python", "import httpx\n"), "No module named 'httpx'"),
        (wrong("python", "# shop/tests.py\n"), "does not run it"),
        (wrong("python", "# shop/views.py\nimport nothing\n"), "nothing"),
        (wrong("python", '# mysite/settings.py\nOJS = {"POLL_INTERVALL": 1}\n'), "POLL_INTERVALL"),
    ],
    ids=lambda block: block.text,
)
def test_a_reader_notices_what_is_wrong(
    block: Block, said: str, tmp_path_factory: pytest.TempPathFactory, project: Path
) -> None:
    folder = tmp_path_factory.mktemp("wrong") / "site"
    copy(project, folder)
    with Reader(folder) as reader, pytest.raises(AssertionError, match=said):
        reader.read([block])

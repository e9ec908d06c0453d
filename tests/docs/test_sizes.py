"""The documentation stays as short as it was made: pages that a reader finishes."""

from __future__ import annotations

import re

import pytest

from tests.docs.generated import GENERATED
from tests.docs.pages import PAGES, ROOT, name_of

#: The most words of one page: a task, an idea.
LIMITS = {"docs/how-to/": 1_200, "docs/explanation/": 1_500, "docs/tutorial/": 1_200}
#: A table, not an idea.
TABLES = {"docs/explanation/glossary.md"}
#: The most words of all pages below `docs` that are written by hand.
ALL = 65_000


def words(text: str) -> int:
    # What a comment says is for the tests.
    return len(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split())


def test_a_page_is_read_in_one_sitting() -> None:
    found = {name_of(page): words(page.read_text()) for page in PAGES}
    too_long = {
        name: count
        for name, count in found.items()
        for folder, limit in LIMITS.items()
        if name.startswith(folder) and name not in TABLES and count > limit
    }
    assert too_long == {}, "split the page, or move its facts into the reference"


def test_all_pages_together_are_no_book() -> None:
    texts = [page.read_text() for page in PAGES if page.is_relative_to(ROOT / "docs")]
    # The page of the conformance says it in the same words.
    written = [text for text in texts if GENERATED.partition(":")[0] not in text]
    assert sum(map(words, written)) <= ALL


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md"])
def test_a_page_about_ourselves_is_short(name: str) -> None:
    assert words((ROOT / name).read_text()) <= 1_500


#: The page of each app beside django_ojs.
EXTENSIONS = {
    "checkpoints": "resume-a-long-job",
    "cron": "run-jobs-on-a-schedule",
    "limits": "limit-a-key",
    "outbox": "use-an-outbox",
    "steps": "write-a-job-of-many-steps",
    "tenants": "share-a-queue-between-tenants",
    "webhooks": "send-webhooks",
    "workflows": "run-jobs-in-order",
}


@pytest.mark.parametrize("app", EXTENSIONS)
def test_the_page_of_an_extension_has_the_form_of_the_others(app: str) -> None:
    text = (ROOT / f"docs/how-to/{EXTENSIONS[app]}.md").read_text()
    before, install, *use = re.split(r"^## ", text, flags=re.MULTILINE)
    assert len(before.split()) <= 60, "what it is for"
    assert install.startswith("Install\n")
    assert f'"django_ojs.extensions.{app}",' in install
    titles = [part.partition("\n")[0] for part in use]
    assert titles[-3:] == ["Rules", "Operate", "Cost"]
    assert len(titles) > 3, "how it is used"

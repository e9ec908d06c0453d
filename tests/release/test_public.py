"""What is public does not change by accident, nor without a line in the changelog."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from django_ojs.version import VERSION
from tests.release.public import COMMAND, NOW, RELEASED, text, unsaid

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def test_the_list_of_what_is_public_is_the_code() -> None:
    listed, found = NOW.read_text().splitlines(), text().splitlines()
    difference = list(difflib.unified_diff(listed, found, "listed", "found", lineterm="", n=0))
    assert difference == [], f"If this is meant, run: {COMMAND}"


def test_a_release_keeps_its_list() -> None:
    assert RELEASED.exists() == (not VERSION.startswith("0."))


@pytest.mark.skipif(not RELEASED.exists(), reason="nothing is released")
def test_each_change_since_the_release_has_a_line_in_the_changelog() -> None:
    since = CHANGELOG.read_text().partition("## [Unreleased]")[2].partition("\n## [")[0]
    assert unsaid(RELEASED.read_text(), NOW.read_text(), since) == []


def test_a_name_that_the_changelog_does_not_have_is_found() -> None:
    released = (
        "enqueue(type, args=())\nOJS['KEEP_COMPLETED']\nojs_job.id\nState.ACTIVE = 'active'\n"
    )
    now = "enqueue(type, args=(), *, delay=None)\nOJS['KEEP_COMPLETED']\nojs_job.uid\n"
    said = "### Changed\n\n- `ojs_job.uid` is the id of a job; it was `id`."
    assert sorted(unsaid(released, now, said)) == [
        "+ enqueue(type, args=(), *, delay=None)",
        "- State.ACTIVE = 'active'",
        "- enqueue(type, args=())",
    ]
    assert unsaid(released, now, f"{said} `enqueue` has `delay`; `State.ACTIVE` is gone.") == []
    # A longer word is another one.
    assert unsaid("", "get_job(job_id)\n", "aget_job, get_jobs") == ["+ get_job(job_id)"]

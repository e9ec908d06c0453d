"""The version, the classifier, the changelog and the pages say one thing: released, or not yet."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from django_ojs.version import VERSION

ROOT = Path(__file__).parents[2]
IS_RELEASED = not VERSION.startswith("0.")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
STATUS = {
    False: "Development Status :: 4 - Beta",
    True: "Development Status :: 5 - Production/Stable",
}


def test_the_classifier_is_that_of_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    statuses = [each for each in project["classifiers"] if each.startswith("Development Status")]
    assert statuses == [STATUS[IS_RELEASED]]


def test_the_changelog_has_the_version_or_says_that_there_is_none() -> None:
    released = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)
    assert released[:1] == ([VERSION] if IS_RELEASED else [])
    assert "\n## [Unreleased]\n" in CHANGELOG
    assert ("Nothing is released yet." in CHANGELOG) != IS_RELEASED


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("README.md", "no release"),
        ("docs/explanation/is-it-for-you.md", "no release yet"),
    ],
)
def test_a_page_says_that_nothing_is_released_as_long_as_it_is_so(page: str, words: str) -> None:
    assert (words in " ".join((ROOT / page).read_text().split())) != IS_RELEASED


def test_the_policies_of_upgrades_deprecations_and_fixes_agree() -> None:
    policy = " ".join((ROOT / "docs/reference/versions.md").read_text().split())
    assert "from 1.0 on. Before 1.0 a minor release may change anything" in policy
    assert "It works until the next major release, and for at least a year." in policy
    assert "A release reads what the release before it has stored" in policy
    security = (ROOT / "SECURITY.md").read_text()
    assert (
        "Fixes are made for the latest minor release. Before 1.0 that is the latest release."
        in (" ".join(security.split()))
    )
    assert "https://semver.org/spec/v2.0.0.html" in policy
    assert "https://semver.org/spec/v2.0.0.html" in CHANGELOG

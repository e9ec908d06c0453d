"""Which files the short suite reads on the second database."""

from __future__ import annotations

from pathlib import Path

from tests.cases import together
from tests.databases import KIND
from tests.plugins import tiers

FILE = Path(__file__)


@together(
    ("text", "once"),
    [
        ("pytestmark = pytest.mark.once\n", True),
        ("pytestmark = [pytest.mark.django_db, pytest.mark.once]\n", True),
        ("pytestmark = pytest.mark.once\n\n@pytest.mark.both\ndef test(): ...\n", False),
        ("pytestmark = pytest.mark.once\n\n@pytest.mark.smoke\ndef test(): ...\n", False),
        (f"pytestmark = pytest.mark.once\n\n@pytest.mark.{KIND}\ndef test(): ...\n", False),
        ("pytestmark = pytest.mark.django_db\n", False),
        ("@pytest.mark.once\ndef test(): ...\n", False),
    ],
)
def test_a_file_that_says_so_runs_once_but_for_its_marks(text: str, once: bool) -> None:
    assert tiers.runs_once(FILE, text) == once


@together("folder", ["docs", "http", "http/admin"])
def test_a_page_of_the_documentation_and_a_door_are_tested_once_unless_a_test_says_otherwise(
    folder: str,
) -> None:
    path = tiers.TESTS / folder / "test_x.py"
    assert tiers.runs_once(path, "")
    assert not tiers.runs_once(path, "@pytest.mark.both\n")

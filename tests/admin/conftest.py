"""What the tests of the admin have in common."""

from __future__ import annotations

import pytest

from django_ojs.admin import navigation


@pytest.fixture(autouse=True)
def _numbers_of_the_navigation_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the numbers of the navigation once in a test, however long it takes: tests that count
    queries must not do it again, or have none, because the machine is slow."""
    for seconds in ("_REUSED_FOR", "_QUERY_SECONDS"):
        monkeypatch.setattr(navigation, seconds, 3600)

"""What the tests of the admin have in common."""

from __future__ import annotations

import pytest

from django_ojs.admin import navigation


@pytest.fixture(autouse=True)
def _numbers_of_the_navigation_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the numbers of the navigation once in a test: tests that count queries must not do it
    again because the machine is slow."""
    monkeypatch.setattr(navigation, "_REUSED_FOR", 3600)

"""What the tests of the admin have in common."""

from __future__ import annotations

import pytest

from django_ojs import formatting
from django_ojs.admin import navigation
from django_ojs.spec.texts import Translatable
from tests.architecture.catalogs import read
from tests.architecture.imports import ROOT


@pytest.fixture(autouse=True)
def _numbers_of_the_navigation_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the numbers of the navigation once in a test: tests that count queries must not do it
    again because the machine is slow."""
    monkeypatch.setattr(navigation, "_REUSED_FOR", 3600)


@pytest.fixture(scope="session")
def _translated() -> frozenset[str]:
    catalog = ROOT / "django_ojs/locale/de/LC_MESSAGES/django.po"
    return frozenset(entry.text for entry in read(catalog))


@pytest.fixture(autouse=True)
def _each_error_can_be_translated(
    monkeypatch: pytest.MonkeyPatch, _translated: frozenset[str]
) -> None:
    """Fail where a page repeats an error that no catalog has."""
    localized = formatting.localized

    def check(text: str) -> str:
        assert isinstance(text, Translatable), f"not marked for translation: {text}"
        assert text.template in _translated
        return localized(text)

    monkeypatch.setattr(formatting, "localized", check)

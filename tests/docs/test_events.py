"""The page about events names every type, and what is kept of it by default."""

from __future__ import annotations

from django_ojs.extensions.events.settings import KEPT_EVENTS
from django_ojs.spec import published
from tests.docs.pages import table

ROWS = table("reference/events.md", "Types")


def test_every_type_is_there_once() -> None:
    named = [name for row in ROWS for name in row[0].split(", ")]
    assert sorted(named) == sorted(type.value for type in published.EventType)


def test_what_is_kept_by_default_is_what_the_table_says() -> None:
    kept = {name for row in ROWS for name in row[0].split(", ") if row[2] == "yes"}
    assert kept == published.matching(KEPT_EVENTS)

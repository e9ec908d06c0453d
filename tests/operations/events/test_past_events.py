"""The events that were kept, as pages ask an extension for them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from django_ojs.extension import WantedEvents
from django_ojs.extensions.events import storage
from django_ojs.extensions.events.models import Event
from django_ojs.hooks import registry
from django_ojs.spec.published import EventType, PastEvent, of_queue

pytestmark = pytest.mark.django_db

PAUSED, RESUMED = EventType.QUEUE_PAUSED, EventType.QUEUE_RESUMED


def _add(type: EventType, queue: str, by: str) -> None:
    storage.add([of_queue(type, queue, paused_by=by)])


def _found(wanted: WantedEvents) -> list[str]:
    found: list[PastEvent] = registry.brought("past_events", wanted)
    return [each.data["paused_by"] for each in found]


def test_the_latest_of_a_type_come_first_at_most_as_many_as_are_wanted() -> None:
    for by in ("ada", "bob", "eve"):
        _add(PAUSED, "mail", by)
        _add(RESUMED, "mail", by)
    assert _found(WantedEvents(types=(PAUSED,), limit=2)) == ["eve", "bob"]
    (event,) = registry.brought("past_events", WantedEvents(types=(RESUMED,), limit=1))
    assert (event.type, event.subject, event.queue) == (RESUMED, "mail", "mail")
    assert event.time == Event.objects.latest("pk").time


def test_those_of_a_subject_are_found_among_its_own() -> None:
    _add(PAUSED, "mail", "ada")
    for _ in range(3):
        _add(PAUSED, "other", "bob")
    _add(RESUMED, "mail", "eve")
    paused = {"types": (PAUSED,), "limit": 9}
    assert _found(WantedEvents(**paused, subject="mail")) == ["ada"]
    assert _found(WantedEvents(**paused, subject="mail", among=2)) == ["ada"]
    assert _found(WantedEvents(**paused, subject="mail", among=1)) == []
    # It has fewer than these.
    assert _found(WantedEvents(**paused, subject="mail", among=500)) == ["ada"]
    assert _found(WantedEvents(**paused, subject="third", among=500)) == []


def test_those_of_all_are_found_among_the_latest_of_all() -> None:
    _add(PAUSED, "mail", "ada")
    _add(RESUMED, "mail", "eve")
    assert _found(WantedEvents(types=(PAUSED,), limit=9, among=1)) == []
    assert _found(WantedEvents(types=(PAUSED, RESUMED), limit=9, among=1)) == ["eve"]


def test_an_age_and_members_of_the_data_narrow_them() -> None:
    _add(PAUSED, "mail", "ada")
    Event.objects.update(time=F("time") - timedelta(hours=2))
    _add(PAUSED, "mail", "bob")
    assert _found(WantedEvents(types=(PAUSED,), limit=9, within=timedelta(hours=1))) == ["bob"]
    assert _found(WantedEvents(types=(PAUSED,), limit=9, data={"paused_by": "ada"})) == ["ada"]


def test_without_the_extension_there_are_none() -> None:
    _add(PAUSED, "mail", "ada")
    (events,) = (each for each in registry.extensions() if each.name == "events")
    registry.remove(events)
    try:
        assert _found(WantedEvents(types=(PAUSED,), limit=9)) == []
    finally:
        registry.register(events)

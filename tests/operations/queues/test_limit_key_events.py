"""Keys that reach their limits and leave them, as events (ojs-rate-limiting §11.1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits import limit_checks
from django_ojs.extensions.limits.models import LimitCheck, LimitKey
from django_ojs.operations import ack, cancel, delete, fail
from django_ojs.spec.failure import Failure
from django_ojs.spec.times import format_timestamp
from tests.factories import MINUTE, claim_limited, push_limited

pytestmark = pytest.mark.django_db


def events() -> list[tuple[str, str, dict[str, Any]]]:
    found = Event.objects.filter(type__startswith="rate_limit.").order_by("id")
    return [(e.type.removeprefix("rate_limit."), e.subject, e.data) for e in found]


def time_passes(by: timedelta = MINUTE * 2) -> None:
    LimitKey.primary.update(
        **{name: F(name) - by for name in ("eased_at", "expires_at", "paused_until")}
    )
    LimitCheck.primary.update(due_at=F("due_at") - by)


@pytest.mark.requirement("RL-006")
def test_one_event_tells_that_a_key_is_at_its_limit_and_one_that_it_no_longer_is() -> None:
    push_limited(number=9, concurrency=2)
    push_limited("plain", number=2, concurrency=9)
    running = claim_limited()
    begun = ("exceeded", "acme")
    data = {"key": "acme", "strategy": "concurrency", "limit": 2, "current": 2}
    assert events() == [(*begun, data)]
    assert LimitKey.primary.get().limited_since is not None
    # It stays at its limit while its jobs end one after the other, and when it is briefly below.
    while running:
        for job in running:
            ack.ack(job.id)
        running = claim_limited()
    limit_checks.open_due()
    time_passes(MINUTE / 2)
    limit_checks.open_due()
    push_limited(number=4, concurrency=2)
    running = claim_limited()
    time_passes()
    limit_checks.open_due()
    assert events() == [(*begun, data)]
    assert limit_checks.prune() == 0
    while running:
        for job in running:
            ack.ack(job.id)
        running = claim_limited()
    limit_checks.open_due()
    time_passes()
    limit_checks.open_due()
    over = ("released", "acme", {"key": "acme", "strategy": "concurrency"})
    assert events() == [(*begun, data), over]
    assert limit_checks.prune() == 1
    assert not LimitCheck.primary.exists()
    push_limited(number=3, concurrency=2)
    claim_limited()
    assert [event for event, *_ in events()] == ["exceeded", "released", "exceeded"]


@pytest.mark.requirement("RL-006")
def test_an_episode_ends_too_when_its_jobs_are_cancelled_and_deleted() -> None:
    _, *others = push_limited(number=3, rate={"limit": 1, "period": "PT1H"})
    claim_limited()
    assert events()[0][2] == {"key": "acme", "strategy": "rate", "limit": 1, "current": 1}
    for job in others:
        cancel.cancel(job.pk)
        delete.delete(job.pk)
    limit_checks.open_due()
    time_passes()
    limit_checks.open_due()
    assert [event for event, *_ in events()] == ["exceeded", "released"]


@pytest.mark.requirement("RL-R003", "RL-11.1-2")
def test_a_pause_is_one_event_however_many_jobs_ask_for_it() -> None:
    push_limited(number=3, concurrency=5)
    until = format_timestamp(timezone.now() + MINUTE)
    for job in claim_limited():
        fail.fail(job.id, Failure.parse({"type": "Busy", "rate_limit_until": until}))
    (adjusted,) = events()
    assert adjusted[:2] == ("dynamic_adjusted", "acme")
    assert (adjusted[2]["key"], adjusted[2]["reason"]) == ("acme", "Busy")
    assert adjusted[2]["until"][:16] == until[:16]
    push_limited()
    claim_limited()
    assert events()[1] == ("exceeded", "acme", {"key": "acme", "strategy": "pause"})


def test_without_recorded_events_the_episode_is_kept_all_the_same(settings: Any) -> None:
    settings.OJS = {"KEEP_EVENTS": []}
    push_limited(number=2, throttle={"limit": 1, "period": "PT1H"})
    claim_limited()
    assert (LimitKey.primary.get().limited_by, events()) == ("throttle", [])

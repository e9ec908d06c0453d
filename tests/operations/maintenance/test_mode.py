"""Maintenance mode: nothing is handed out or promoted, everything is accepted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ojs.models import Queue
from django_ojs.operations import fetch, promotion, queues
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.operations.maintenance import mode
from django_ojs.spec.errors import InvalidRequest
from tests.factories import HOUR, age, in_state, push, read

pytestmark = [pytest.mark.django_db, pytest.mark.requirement("ADM-R004")]


def claimed(*names: str) -> list[str]:
    return [str(job.id) for job in fetch.fetch(list(names), count=10, worker_id="w")]


def test_it_is_off_until_somebody_enables_it() -> None:
    assert mode.status() == mode.MaintenanceStatus(enabled=False)


def test_fetch_hands_out_no_job_of_any_queue_and_push_goes_on() -> None:
    before = push(queue="one")
    mode.enable()
    after = push(queue="two")
    assert claimed("one", "two") == []
    mode.disable()
    assert claimed("one", "two") == [str(before.pk), str(after.pk)]


@pytest.mark.parametrize("state", ["scheduled", "retryable"])
def test_what_is_due_is_promoted_only_afterwards(state: str) -> None:
    job = in_state(state)
    age(job.pk, 2 * HOUR)
    mode.enable()
    assert promotion.promote() == 0
    assert DueCheck().promote() == 0
    assert claimed(job.queue) == []
    assert read(job.pk).state == state
    mode.disable()
    assert promotion.promote() == 1
    assert read(job.pk).state == "available"


def test_jobs_that_run_can_end() -> None:
    from django_ojs.operations import ack

    job = in_state("active")
    mode.enable()
    assert ack.ack(job.pk).state == "completed"


def test_a_queue_that_was_paused_stays_paused_afterwards() -> None:
    job = push(queue="paused-before")
    queues.pause("paused-before")
    mode.enable()
    mode.disable()
    assert claimed("paused-before") == []
    queues.resume("paused-before")
    assert claimed("paused-before") == [str(job.pk)]


def test_resuming_a_queue_does_not_get_round_it() -> None:
    push(queue="resumed")
    mode.enable()
    queues.resume("resumed")
    assert claimed("resumed") == []


def test_it_says_since_when_why_and_until_when() -> None:
    enabled = mode.enable(reason="Moving the database", estimated_duration=timedelta(minutes=30))
    assert enabled == mode.status()
    assert enabled.enabled
    assert enabled.reason == "Moving the database"
    assert enabled.enabled_at is not None
    assert enabled.estimated_end is not None
    lasts = enabled.estimated_end - enabled.enabled_at
    assert timedelta(minutes=29) < lasts < timedelta(minutes=31)


def test_enabling_it_again_keeps_the_time_and_replaces_the_reason() -> None:
    first = mode.enable(reason="first", estimated_duration=HOUR)
    Queue.objects.filter(pk="*").update(paused_at=first.enabled_at - HOUR)  # type: ignore[operator]
    second = mode.enable(reason="second")
    assert second.enabled_at == first.enabled_at - HOUR  # type: ignore[operator]
    assert second.reason == "second"
    assert second.estimated_end is None


def test_disabling_it_twice_is_no_error() -> None:
    mode.enable()
    assert not mode.disable().enabled
    assert not mode.disable().enabled
    assert not mode.status().enabled


@pytest.mark.parametrize("reason", ["", "x" * 1001, "nul\0", "\ud800"])
def test_a_reason_that_cannot_be_stored_is_rejected(reason: str) -> None:
    with pytest.raises(InvalidRequest, match="reason"):
        mode.enable(reason=reason)
    assert not mode.status().enabled


def test_an_estimate_is_longer_than_zero() -> None:
    with pytest.raises(InvalidRequest, match="estimated_duration"):
        mode.enable(estimated_duration=timedelta(0))

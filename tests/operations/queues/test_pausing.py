"""Paused queues: they accept jobs and hand out none."""

from __future__ import annotations

import pytest

from django_ojs.extension import Actor
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.events.models import Event
from django_ojs.models import ActorKind, Queue
from django_ojs.operations import fetch, promotion, queues
from django_ojs.operations.access.operator import acting
from django_ojs.spec.errors import InvalidQueue, QueueNameTooLong
from tests.cases import together
from tests.factories import HOUR, age, in_state, push, read

pytestmark = pytest.mark.django_db


def test_a_queue_nobody_has_used_can_be_paused() -> None:
    paused = queues.pause("unknown")
    assert (paused.name, paused.paused, str(paused)) == ("unknown", True, "unknown")
    assert Queue.objects.get().created_at is not None
    push(queue="unknown")
    assert fetch.fetch(["unknown"]) == []


@pytest.mark.requirement("QC-04")
def test_a_paused_queue_accepts_jobs_and_gives_them_all_once_resumed() -> None:
    queues.pause("a")
    keys = [push(queue="a").pk for _ in range(3)]
    assert [read(key).state for key in keys] == ["available"] * 3
    assert fetch.fetch(["a"], count=9) == []
    assert queues.resume("a").paused is False
    assert [job.id for job in fetch.fetch(["a"], count=9)] == keys


def test_time_goes_on_in_a_paused_queue() -> None:
    queues.pause("a")
    job = in_state("scheduled", queue="a")
    age(job.pk, 2 * HOUR)
    assert promotion.promote() == 1
    assert read(job.pk).state == "available"


def test_pausing_again_keeps_the_time_it_was_paused_at() -> None:
    first = queues.pause("a").paused_at
    assert first is not None
    assert queues.pause("a").paused_at == first


def test_resuming_what_was_never_paused_changes_nothing() -> None:
    assert queues.resume("a").paused_at is None
    assert queues.resume("a").paused_at is None


def test_the_operator_is_named_whatever_was_changed_and_by_whichever_door() -> None:
    with acting(Actor(kind=ActorKind.COMMAND, name="ann")):
        for change in (queues.pause, queues.drain, queues.resume):
            change("a")
            change("a")
    queues.pause("a")

    entries = AuditEntry.primary.order_by("pk").values_list("action", "actor")
    assert list(entries) == [
        ("queue.paused", "ann"),
        ("queue.drained", "ann"),
        ("queue.resumed", "ann"),
    ]
    told = Event.primary.filter(type__in=["queue.paused", "queue.resumed"]).order_by("pk")
    assert [event.data for event in told] == [
        {"queue": "a", "paused_by": "ann"},
        {"queue": "a", "resumed_by": "ann"},
        {"queue": "a"},
    ]


@together("operation", [queues.pause, queues.drain, queues.resume], undo=True)
@together(
    ("name", "error"),
    [("No", InvalidQueue), ("", InvalidQueue), ("q" * 256, QueueNameTooLong)],
    undo=True,
)
def test_a_name_that_no_queue_can_have_is_rejected(
    operation: object, name: str, error: type[InvalidQueue]
) -> None:
    assert callable(operation)
    with pytest.raises(error):
        operation(name)
    assert not Queue.objects.exists()

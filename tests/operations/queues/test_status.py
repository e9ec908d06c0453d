"""Which queues there are: those that somebody spoke of, and those that have jobs."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import KnownName, Queue
from django_ojs.operations import queues
from django_ojs.operations.access import known_names
from django_ojs.spec.errors import NotFound
from django_ojs.spec.states import State
from tests.factories import in_state, push

pytestmark = pytest.mark.django_db


def names() -> list[str]:
    return [queue.name for queue in queues.listing().rows]


def test_a_queue_is_known_by_its_jobs_or_by_what_an_operator_said() -> None:
    push(queue="with-a-job")
    in_state("completed", queue="with-history")
    queues.pause("paused")
    queues.configure("configured", {"max_envelope_bytes": 1})
    assert names() == ["configured", "paused", "with-a-job", "with-history"]


def test_a_queue_was_created_when_it_was_named_first_and_reading_it_stores_nothing() -> None:
    push(queue="a")
    assert queues.get("a").created_at is None
    known_names.make_known("somebody", queues=["a"])
    created = queues.get("a").created_at
    assert created is not None
    for found in (queues.listing(), queues.busiest(limit=1)):
        assert [(each.name, each.created_at) for each in found.rows] == [("a", created)]
    assert not Queue.objects.exists()


def test_a_queue_keeps_the_time_of_its_creation_when_its_name_is_forgotten() -> None:
    push(queue="used")
    known_names.make_known("somebody", queues=["used", "never-used"])
    old = Now() - 2 * settings().keep_rollups
    KnownName.primary.filter(kind="queue").update(created_at=old)
    created = queues.get("used").created_at
    assert known_names.prune() == 2
    assert queues.get("used").created_at == created
    assert names() == ["used"]


def test_a_queue_shows_its_state_and_its_jobs_by_state() -> None:
    for state in ("retryable", "completed", "available", "scheduled", "pending"):
        in_state(state, queue="a")
    queues.pause("a")
    status = queues.get("a")
    assert (status.state, status.paused) == (queues.QueueState.PAUSED, True)
    assert status.depth == 3
    assert status.counts == dict.fromkeys(
        [State.AVAILABLE, State.SCHEDULED, State.RETRYABLE, State.COMPLETED, State.PENDING], 1
    )


def test_a_queue_nobody_knows_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        queues.get("unknown")
    assert caught.value.details == {"resource_type": "queue", "resource_id": "unknown"}
    assert not Queue.objects.exists()

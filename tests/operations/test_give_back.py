"""Jobs that come back without a failure of their own: they spend no attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import cancel, fail, fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import Failure
from tests.factories import (
    BOOM,
    HOUR,
    WORKER,
    active,
    age,
    claim,
    held,
    hourly,
    push_many,
    read,
)

pytestmark = pytest.mark.django_db
SHUTDOWN = Failure(type="shutdown", message="The worker stopped.")


def test_requeue_makes_the_job_available_at_once() -> None:
    job = active(queue="a")
    returned = fail.requeue(job.id, claim=held(job))
    assert (returned.state, returned.worker_id, returned.lease_until) == ("available", None, None)
    assert (returned.attempt, returned.returned, returned.spent) == (1, 1, 0)
    assert returned.enqueued_at is not None
    assert returned.enqueued_at >= job.enqueued_at


def test_requeue_without_an_error_leaves_no_history() -> None:
    job = active()
    fail.requeue(job.id)
    assert read(job.id).error is None
    assert not read(job.id).attempts.exists()


def test_requeue_with_an_error_keeps_it_and_how_the_run_ended() -> None:
    job = active()
    fail.requeue(job.id, SHUTDOWN, outcome=AttemptOutcome.SHUTDOWN)
    stored = read(job.id)
    assert stored.error == {"type": "shutdown", "message": "The worker stopped."}
    assert stored.attempts.get().outcome == "shutdown"
    assert [error["type"] for error in stored.envelope()["errors"]] == ["shutdown"]


def test_hold_postpones_the_job_for_the_given_time() -> None:
    job = active(queue="a")
    aside = fail.postpone(job.id, BOOM, delay=HOUR, claim=held(job))
    assert (aside.state, aside.attempt, aside.spent) == ("retryable", 1, 0)
    row = aside.attempts.get()
    assert (row.outcome, row.retry_delay_ms) == ("returned", 3_600_000)
    assert fetch.fetch(["a"]) == []
    age(job.id, 2 * HOUR)
    assert [again.id for again in fetch.fetch(["a"])] == [job.id]


@pytest.mark.parametrize("way", ["requeue", "hold", "give_back"])
def test_however_often_it_comes_back_all_its_attempts_are_left(way: str) -> None:
    job = active(queue="a", retry=hourly(2))
    for _ in range(5):
        if way == "requeue":
            fail.requeue(job.id)
        elif way == "hold":
            fail.postpone(job.id, BOOM, delay=timedelta(0))
            age(job.id, 1)
        else:
            assert rescue.give_back([(job.id, job.run)], worker_id=WORKER) == 1
        (job,) = fetch.fetch(["a"], worker_id=WORKER)
    # `attempt` counts claims (ojs-core §5.3); what was given back is counted beside it.
    assert (job.attempt, job.run, job.returned) == (6, 6, 5)
    assert fail.fail(job.id, BOOM).state == "retryable"
    age(job.id, 2 * HOUR)
    (job,) = fetch.fetch(["a"])
    assert fail.fail(job.id, BOOM).state == "discarded"


def test_the_wait_after_a_failure_counts_spent_attempts_only() -> None:
    policy = hourly(9, backoff_coefficient=2.0, max_interval=100 * HOUR)
    job = active(queue="a", retry=policy)
    fail.requeue(job.id)
    fail.fail(claim(read(job.id)).id, BOOM)
    assert read(job.id).attempts.get().retry_delay_ms == 3_600_000


def test_giving_back_leaves_no_trace_and_takes_the_place_it_had() -> None:
    push_many(4, queue="a")
    before = [job.id for job in fetch.fetch(["a"], count=4, worker_id=WORKER)]
    assert rescue.give_back([(key, 1) for key in before], worker_id=WORKER) == 4
    stored = read(before[0])
    assert (stored.started_at, stored.lease_until, stored.worker_id) == (None, None, None)
    assert not stored.attempts.exists()
    assert [job.id for job in fetch.fetch(["a"], count=4)] == before


def test_only_what_is_still_held_under_this_very_claim_is_given_back() -> None:
    push_many(4, queue="a")
    mine, stale, gone, others = fetch.fetch(["a"], count=4, worker_id=WORKER)
    cancel.cancel(gone.id)
    fail.requeue(others.id)
    claim(read(others.id), "worker-b")
    claims = [(mine.id, 1), (stale.id, 9), (gone.id, 1), (others.id, 2)]
    assert rescue.give_back(claims, worker_id=WORKER) == 1
    states = [read(job.id).state for job in (mine, stale, gone, others)]
    assert states == ["available", "active", "cancelled", "active"]
    assert read(others.id).worker_id == "worker-b"


def test_giving_back_nothing_is_nothing() -> None:
    assert rescue.give_back([], worker_id=WORKER) == 0

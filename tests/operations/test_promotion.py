"""Waiting jobs that are due or expired."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from django_ojs.operations import due_jobs, expiry, fail, fetch, promotion
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.operations.maintenance import job_pruning
from django_ojs.storage.database import BATCH
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    active,
    age,
    hourly,
    ids_against_time,
    in_state,
    jobs,
    push,
    push_many,
    read,
    snapshot,
)
from tests.spec.test_states import STATES

pytestmark = pytest.mark.django_db


@pytest.mark.requirement("CORE-5.2-15", "CORE-5.3-5")
def test_a_scheduled_job_is_available_when_its_time_has_come_and_not_before() -> None:
    job = in_state("scheduled")
    age(job.pk, HOUR - MINUTE)
    assert promotion.promote() == 0
    age(job.pk, 2 * MINUTE)
    assert promotion.promote() == 1
    stored = read(job.pk)
    assert stored.state == "available"
    # ojs-core §5.3: set when the job becomes available.
    assert stored.enqueued_at is not None
    assert stored.enqueued_at > stored.created_at + 59 * MINUTE


def test_an_absolute_time_is_kept_to_the_moment() -> None:
    near = datetime.now(UTC) + HOUR
    job, other = push(scheduled_at=near), push(scheduled_at=near + HOUR)
    age([job.pk, other.pk], 61 * MINUTE)
    assert promotion.promote() == 1
    assert [read(key).state for key in (job.pk, other.pk)] == ["available", "scheduled"]


def test_what_was_due_first_is_available_first_whatever_its_id() -> None:
    ids = ids_against_time(10)
    for n, key in enumerate(ids):
        push(id=key, queue="a", scheduled_at=HOUR + n * MINUTE)
    age(ids, 2 * HOUR)
    assert promotion.promote() == 10
    assert [job.id for job in fetch.fetch(["a"], count=10)] == ids


def test_a_step_takes_a_bounded_number_and_the_earliest_of_them() -> None:
    ids = [push(scheduled_at=HOUR + (9 - n) * MINUTE).pk for n in range(9)]
    age(ids, 2 * HOUR)
    assert promotion.promote(limit=4) == 4
    assert [read(key).state for key in ids] == ["scheduled"] * 5 + ["available"] * 4
    assert [promotion.promote(limit=4) for _ in range(3)] == [4, 1, 0]


def burst_and(*queues: str) -> list[UUID]:
    """Make more jobs due than two batches, and then one in each of these queues."""
    keys = [
        job.pk for _ in range(2) for job in push_many(BATCH + 1, queue="burst", scheduled_at=HOUR)
    ]
    others = [push(queue=queue, scheduled_at=HOUR + MINUTE).pk for queue in queues]
    age(keys + others, 2 * HOUR)
    return others


def test_a_burst_in_one_queue_does_not_delay_the_others() -> None:
    (other,) = burst_and("other")
    DueCheck().promote()
    assert read(other).state == "available"
    assert jobs().filter(queue="burst", state="scheduled").exists()


def test_a_fetch_behind_a_burst_promotes_the_jobs_of_its_own_queue() -> None:
    (other,) = burst_and("other")
    assert [job.id for job in fetch.fetch(["other"])] == [other]


def test_each_queue_gets_an_equal_share_its_earliest_jobs_first() -> None:
    keys = {
        queue: [push(queue=queue, scheduled_at=HOUR + n * MINUTE).pk for n in reversed(range(4))]
        for queue in ("a", "b", "c")
    }
    age([key for of_queue in keys.values() for key in of_queue], 2 * HOUR)
    assert promotion.promote_by_queue(["a", "b"], limit=5) == 4
    for queue, waiting in {"a": 2, "b": 2, "c": 4}.items():
        states = [read(key).state for key in keys[queue]]
        assert states == ["scheduled"] * waiting + ["available"] * (4 - waiting)
    assert [job.id for job in fetch.fetch(["a"], count=4, due=False)] == keys["a"][:1:-1]
    assert promotion.promote_by_queue(["a", "b", "c"], limit=1) == 3


def test_more_queues_than_one_step_considers_have_their_share_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due_jobs, "QUEUES_AT_ONCE", 2)
    check = DueCheck()
    names = ["a", "b", "c", "d", "e"]
    push(queue="aa", scheduled_at=5 * HOUR)
    others = burst_and(*names)
    for _ in range(5):
        # The burst does not end.
        more = [job.pk for job in push_many(BATCH, queue="burst", scheduled_at=HOUR)]
        age(more, 2 * HOUR)
        check.promote()
    assert {read(key).state for key in others} == {"available"}
    assert jobs().filter(queue="burst", state="scheduled").exists()


def test_a_check_with_a_time_leaves_what_is_not_overdue_so_long() -> None:
    check = DueCheck(since=MINUTE)
    due, late = push(scheduled_at=HOUR), push(expires_at=HOUR)
    age([due.pk, late.pk], HOUR + MINUTE / 2)
    assert (check.promote(), check.expire()) == (0, 0)
    age([due.pk, late.pk], MINUTE)
    assert (check.promote(), check.expire()) == (1, 1)


@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "retryable"])
def test_a_job_whose_deadline_passed_before_it_ran_is_discarded_and_no_dead_letter(
    state: str,
) -> None:
    job = in_state(state, expires_at=3 * HOUR)
    age(job.pk, 2 * HOUR)
    assert expiry.expire() == 0
    age(job.pk, 2 * HOUR)
    assert expiry.expire() == 1
    stored = read(job.pk)
    assert (stored.state, stored.discard_reason, stored.dead_letter) == (
        "discarded",
        "expired",
        False,
    )
    rendered = stored.envelope()
    assert "discarded_at" in rendered
    assert "completed_at" not in rendered


def test_expiry_takes_a_bounded_number_the_latest_last() -> None:
    ids = [push(expires_at=HOUR + n * MINUTE).pk for n in range(5)]
    age(ids, 2 * HOUR)
    assert [expiry.expire(limit=3) for _ in range(3)] == [3, 2, 0]


def test_a_step_that_finds_nothing_does_nothing() -> None:
    # Not the default, after which a retry is due in a second.
    retry = {"retryable": {"retry": hourly()}}
    made = [in_state(state, expires_at=HOUR, **retry.get(state, {})) for state in STATES]
    before = [snapshot(job.pk) for job in made]
    assert (promotion.promote(), expiry.expire(), job_pruning.prune()) == (0, 0, 0)
    assert [snapshot(row["job"]["id"]) for row in before] == before


def test_a_retried_failure_that_expired_while_it_waited_keeps_its_error() -> None:
    job = active(expires_at=90 * MINUTE, retry=hourly(5))
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    assert fetch.fetch([job.queue]) == []
    stored = read(job.id)
    assert (stored.state, stored.discard_reason, stored.error["type"]) == (
        "discarded",
        "expired",
        "Boom",
    )

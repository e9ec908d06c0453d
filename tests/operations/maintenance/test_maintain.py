"""What time does to waiting and to finished jobs: due, expired, old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings

from django_ojs.models import Attempt, Job
from django_ojs.operations import fail, fetch
from django_ojs.operations.maintenance import maintain
from django_ojs.spec.failure import DeadLetter, Discard, from_exception
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


def test_a_scheduled_job_is_available_when_its_time_has_come_and_not_before() -> None:
    job = in_state("scheduled")
    age(job.pk, HOUR - MINUTE)
    assert maintain.promote() == 0
    age(job.pk, 2 * MINUTE)
    assert maintain.promote() == 1
    stored = read(job.pk)
    assert stored.state == "available"
    # ojs-core §5.3: set when the job becomes available.
    assert stored.enqueued_at is not None
    assert stored.enqueued_at > stored.created_at + 59 * MINUTE


def test_an_absolute_time_is_kept_to_the_moment() -> None:
    near = datetime.now(UTC) + HOUR
    job, other = push(scheduled_at=near), push(scheduled_at=near + HOUR)
    age([job.pk, other.pk], 61 * MINUTE)
    assert maintain.promote() == 1
    assert [read(key).state for key in (job.pk, other.pk)] == ["available", "scheduled"]


def test_what_was_due_first_is_available_first_whatever_its_id() -> None:
    ids = ids_against_time(10)
    for n, key in enumerate(ids):
        push(id=key, queue="a", scheduled_at=HOUR + n * MINUTE)
    age(ids, 2 * HOUR)
    assert maintain.promote() == 10
    assert [job.id for job in fetch.fetch(["a"], count=10)] == ids


def test_a_step_takes_a_bounded_number_and_the_earliest_of_them() -> None:
    ids = [push(scheduled_at=HOUR + (9 - n) * MINUTE).pk for n in range(9)]
    age(ids, 2 * HOUR)
    assert maintain.promote(limit=4) == 4
    assert [read(key).state for key in ids] == ["scheduled"] * 5 + ["available"] * 4
    assert [maintain.promote(limit=4) for _ in range(3)] == [4, 1, 0]


@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "retryable"])
def test_a_job_whose_deadline_passed_before_it_ran_is_discarded_and_no_dead_letter(
    state: str,
) -> None:
    job = in_state(state, expires_at=3 * HOUR)
    age(job.pk, 2 * HOUR)
    assert maintain.expire() == 0
    age(job.pk, 2 * HOUR)
    assert maintain.expire() == 1
    stored = read(job.pk)
    assert (stored.state, stored.discard_reason, stored.dead_letter) == (
        "discarded",
        "expired",
        False,
    )
    rendered = stored.envelope()
    assert "discarded_at" in rendered
    assert "completed_at" not in rendered


def test_a_job_that_runs_may_pass_its_deadline() -> None:
    job = active(expires_at=HOUR)
    age(job.id, 2 * HOUR)
    assert maintain.expire() == 0
    assert read(job.id).state == "active"


def test_expiry_takes_a_bounded_number_the_latest_last() -> None:
    ids = [push(expires_at=HOUR + n * MINUTE).pk for n in range(5)]
    age(ids, 2 * HOUR)
    assert [maintain.expire(limit=3) for _ in range(3)] == [3, 2, 0]


KEEP = {
    "KEEP_COMPLETED": 1 * HOUR,
    "KEEP_CANCELLED": 3 * HOUR,
    "KEEP_DISCARDED": 5 * HOUR,
    "KEEP_DEAD_LETTERS": 7 * HOUR,
}


def ended(kind: str) -> Job:
    if kind in ("completed", "cancelled"):
        return in_state(kind)
    answer = DeadLetter("x") if kind == "dead letter" else Discard("x")
    return fail.fail(active(retry=hourly(5)).id, from_exception(answer))


@pytest.mark.parametrize(
    ("kind", "hours"),
    [("completed", 1), ("cancelled", 3), ("discarded", 5), ("dead letter", 7)],
)
def test_each_kind_of_finished_job_is_kept_for_its_own_time(kind: str, hours: int) -> None:
    job = ended(kind)
    with override_settings(OJS=KEEP):
        age(job.pk, hours * HOUR - MINUTE)
        assert maintain.prune() == 0
        age(job.pk, 2 * MINUTE)
        assert maintain.prune() == 1
    assert not jobs().filter(pk=job.pk).exists()


def test_the_attempts_of_a_pruned_job_go_with_it_and_no_others() -> None:
    gone, kept = in_state("discarded"), in_state("discarded")
    age(gone.pk, timedelta(days=200))
    assert maintain.prune() == 1
    assert list(Attempt.objects.values_list("job_id", flat=True)) == [kept.pk]


@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "active", "retryable"])
def test_a_job_that_has_not_ended_is_kept_however_old(state: str) -> None:
    job = in_state(state)
    age(job.pk, timedelta(days=5000))
    assert maintain.prune() == 0
    assert read(job.pk).state == state


def test_pruning_takes_a_bounded_number_of_each_kind_the_oldest_first() -> None:
    keys = [job.pk for job in push_many(5, queue="a")]
    for n, job in enumerate(fetch.fetch(["a"], count=5)):
        fail.fail(job.id, from_exception(Discard("x")))
        age(job.id, timedelta(days=90 - n))
    assert maintain.prune(limit=3) == 3
    assert list(jobs().order_by("created_at").values_list("pk", flat=True)) == keys[3:]
    assert [maintain.prune(limit=3) for _ in range(2)] == [2, 0]


def test_an_expired_job_is_pruned_as_discarded_and_an_exhausted_one_as_a_dead_letter() -> None:
    expired, exhausted = push(expires_at=HOUR), in_state("discarded")
    age(expired.pk, 2 * HOUR)
    maintain.expire()
    with override_settings(OJS=KEEP):
        age([expired.pk, exhausted.pk], 6 * HOUR)
        assert maintain.prune() == 1
    assert list(jobs()) == [exhausted]


def test_a_step_that_finds_nothing_does_nothing() -> None:
    before = [snapshot(in_state(state, expires_at=HOUR).pk) for state in STATES]
    assert (maintain.promote(), maintain.expire(), maintain.prune()) == (0, 0, 0)
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

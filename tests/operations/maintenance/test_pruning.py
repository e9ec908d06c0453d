"""Finished jobs that are old."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_ojs.models import Attempt, Job
from django_ojs.operations import fail, fetch, promotion
from django_ojs.operations.maintenance import pruning
from django_ojs.spec.failure import DeadLetter, Discard, Failure
from tests.factories import (
    HOUR,
    MINUTE,
    active,
    age,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
)

pytestmark = pytest.mark.django_db

KEEP = {
    "KEEP_COMPLETED": 1 * HOUR,
    "KEEP_CANCELLED": 3 * HOUR,
    "KEEP_DISCARDED": 5 * HOUR,
    "KEEP_DEAD_LETTERS": 7 * HOUR,
}


def ended(kind: str) -> Job:
    if kind in ("completed", "cancelled"):
        return in_state(kind)
    response = DeadLetter("x") if kind == "dead letter" else Discard("x")
    return fail.fail(active(retry=hourly(5)).id, Failure.from_exception(response))


@pytest.mark.parametrize(
    ("kind", "hours"),
    [("completed", 1), ("cancelled", 3), ("discarded", 5), ("dead letter", 7)],
)
def test_each_kind_of_finished_job_is_kept_for_its_own_time(kind: str, hours: int) -> None:
    job = ended(kind)
    with override_settings(OJS=KEEP):
        age(job.pk, hours * HOUR - MINUTE)
        assert pruning.prune() == 0
        age(job.pk, 2 * MINUTE)
        assert pruning.prune() == 1
    assert not jobs().filter(pk=job.pk).exists()


def test_the_attempts_of_a_pruned_job_go_with_it_and_no_others() -> None:
    gone, kept = in_state("discarded"), in_state("discarded")
    age(gone.pk, timedelta(days=200))
    assert pruning.prune() == 1
    assert list(Attempt.objects.values_list("job_id", flat=True)) == [kept.pk]


@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "active", "retryable"])
def test_a_job_that_has_not_ended_is_kept_however_old(state: str) -> None:
    job = in_state(state)
    age(job.pk, timedelta(days=5000))
    assert pruning.prune() == 0
    assert read(job.pk).state == state


def test_pruning_takes_a_bounded_number_of_each_kind_the_oldest_first() -> None:
    keys = [job.pk for job in push_many(5, queue="a")]
    for n, job in enumerate(fetch.fetch(["a"], count=5)):
        fail.fail(job.id, Failure.from_exception(Discard("x")))
        age(job.id, timedelta(days=90 - n))
    assert pruning.prune(limit=3) == 3
    assert list(jobs().order_by("created_at").values_list("pk", flat=True)) == keys[3:]
    assert [pruning.prune(limit=3) for _ in range(2)] == [2, 0]


def test_an_expired_job_is_pruned_as_discarded_and_an_exhausted_one_as_a_dead_letter() -> None:
    expired, exhausted = push(expires_at=HOUR), in_state("discarded")
    age(expired.pk, 2 * HOUR)
    promotion.expire()
    with override_settings(OJS=KEEP):
        age([expired.pk, exhausted.pk], 6 * HOUR)
        assert pruning.prune() == 1
    assert list(jobs()) == [exhausted]


def test_what_is_to_be_overdue_for_a_while_is_pruned_that_much_later() -> None:
    job = in_state("completed")
    with override_settings(OJS=KEEP):
        age(job.pk, HOUR + MINUTE)
        assert pruning.prune(since=2 * MINUTE) == 0
        age(job.pk, 2 * MINUTE)
        assert pruning.prune(since=2 * MINUTE) == 1

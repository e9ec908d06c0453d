"""Finished jobs that are old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.models import Attempt, Job
from django_ojs.operations import expiry, fail, fetch, queues
from django_ojs.operations.maintenance import job_pruning
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
        assert job_pruning.prune() == 0
        age(job.pk, 2 * MINUTE)
        assert job_pruning.prune() == 1
    assert not jobs().filter(pk=job.pk).exists()


@pytest.mark.requirement("EH-11")
def test_the_attempts_of_a_pruned_job_go_with_it_and_no_others() -> None:
    gone, kept = in_state("discarded"), in_state("discarded")
    age(gone.pk, timedelta(days=200))
    assert job_pruning.prune() == 1
    assert list(Attempt.objects.values_list("job_id", flat=True)) == [kept.pk]


@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "active", "retryable"])
def test_a_job_that_has_not_ended_is_kept_however_old(state: str) -> None:
    job = in_state(state)
    age(job.pk, timedelta(days=5000))
    assert job_pruning.prune() == 0
    assert read(job.pk).state == state


def test_pruning_takes_a_bounded_number_of_each_kind_the_oldest_first() -> None:
    keys = [job.pk for job in push_many(5, queue="a")]
    for n, job in enumerate(fetch.fetch(["a"], count=5)):
        fail.fail(job.id, Failure.from_exception(Discard("x")))
        age(job.id, timedelta(days=90 - n))
    assert job_pruning.prune(limit=3) == 3
    assert list(jobs().order_by("created_at").values_list("pk", flat=True)) == keys[3:]
    assert [job_pruning.prune(limit=3) for _ in range(2)] == [2, 0]


def test_an_expired_job_is_pruned_as_discarded_and_an_exhausted_one_as_a_dead_letter() -> None:
    expired, exhausted = push(expires_at=HOUR), in_state("discarded")
    age(expired.pk, 2 * HOUR)
    expiry.expire()
    with override_settings(OJS=KEEP):
        age([expired.pk, exhausted.pk], 6 * HOUR)
        assert job_pruning.prune() == 1
    assert list(jobs()) == [exhausted]


class TestRetentionOfAQueue:
    """A queue with a retention of its own, beside one that has the settings' hour."""

    @pytest.fixture(autouse=True)
    def kept_for_an_hour(self, settings: Any) -> None:
        settings.OJS = settings.OJS | KEEP

    def completed(self, queue: str, old: timedelta) -> Job:
        job = in_state("completed", queue=queue)
        age(job.pk, old)
        return job

    def prune_all(self, pruner: job_pruning.QueuePruner | None = None) -> set[str]:
        """Prune until nothing is left to do, and return the queues of the jobs that are left."""
        while job_pruning.prune():
            pass
        pruner = pruner or job_pruning.QueuePruner()
        while pruner.prune():
            pass
        return set(jobs().values_list("queue", flat=True))

    def test_a_shorter_one_deletes_its_jobs_earlier_and_no_others(self) -> None:
        queues.configure("short", {"retention": {"completed": "PT10M"}})
        self.completed("short", 11 * MINUTE)
        self.completed("other", 11 * MINUTE)
        assert self.prune_all() == {"other"}
        self.completed("short", 9 * MINUTE)
        assert self.prune_all() == {"short", "other"}

    def test_a_longer_one_keeps_its_jobs_and_no_others(self) -> None:
        queues.configure("long", {"retention": {"completed": "PT2H"}})
        self.completed("long", HOUR + MINUTE)
        self.completed("other", HOUR + MINUTE)
        assert self.prune_all() == {"long"}
        self.completed("long", 2 * HOUR + MINUTE)
        job_pruning.prune()
        assert jobs().count() == 1

    def test_that_of_the_default_policy_is_for_all_that_have_none(self) -> None:
        queues.configure_default({"retention": {"completed": "PT2H"}})
        queues.configure("short", {"retention": {"completed": "PT10M"}})
        self.completed("other", HOUR + MINUTE)
        self.completed("short", HOUR)
        assert self.prune_all() == {"other"}

    def test_dead_letters_have_their_own(self) -> None:
        queues.configure("a", {"dead_letter_ttl": "PT1H"})
        queues.configure("b", {"dead_letter": {"retention": {"max_age": "PT3H"}}})
        for queue in ("a", "b"):
            job = fail.fail(
                active(queue=queue, retry=hourly(5)).id, Failure.from_exception(DeadLetter("x"))
            )
            age(job.pk, 2 * HOUR)
        assert self.prune_all() == {"b"}

    def test_a_walk_reads_each_job_once_and_begins_again_after_an_hour(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_pruning, "WALK", 2)
        clock = [0.0]
        monkeypatch.setattr("time.monotonic", lambda: clock[0])
        queues.configure("short", {"retention": {"completed": "PT10M"}})
        # Several have finished at the same moment, as those of one batch do.
        for _ in range(5):
            self.completed("other", 20 * MINUTE)
        Job.objects.update(finished_at=Job.objects.latest("finished_at").finished_at)
        self.completed("short", 15 * MINUTE)
        pruner = job_pruning.QueuePruner()
        assert [pruner.prune() for _ in range(4)] == [2, 2, 2, 0]
        assert set(jobs().values_list("queue", flat=True)) == {"other"}
        queues.configure("other", {"retention": {"completed": "PT15M"}})
        assert pruner.prune() == 0
        clock[0] += job_pruning.WALK_AGAIN
        assert self.prune_all(pruner) == set()

    def test_without_one_nothing_is_walked_over(self) -> None:
        self.completed("a", 2 * MINUTE)
        queues.configure("a", {"max_size": 5})
        assert job_pruning.QueuePruner().prune() == 0


def test_what_is_to_be_overdue_for_a_while_is_pruned_that_much_later() -> None:
    job = in_state("completed")
    with override_settings(OJS=KEEP):
        age(job.pk, HOUR + MINUTE)
        assert job_pruning.prune(since=2 * MINUTE) == 0
        age(job.pk, 2 * MINUTE)
        assert job_pruning.prune(since=2 * MINUTE) == 1

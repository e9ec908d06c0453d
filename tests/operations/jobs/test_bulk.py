"""Many jobs at once: each moves as in the single operation, or says why it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from django_ojs import signals
from django_ojs.models import Attempt
from django_ojs.operations import ack, fetch, retry
from django_ojs.operations.jobs import bulk, bulk_step
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.maintenance import job_pruning
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidRequest, QueueFull
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests.cases import together
from tests.factories import (
    HOUR,
    MINUTE,
    age,
    in_state,
    jobs,
    push,
    push_many,
    read,
)
from tests.receivers import receiving
from tests.threads import at_once

pytestmark = pytest.mark.django_db

WAITING = ("available", "pending", "retryable", "scheduled")


def one_of_each(**values: Any) -> dict[str, UUID]:
    # The available one last: it would be claimed for those that have to run first.
    order = sorted(State, key=lambda state: state is State.AVAILABLE)
    return {state.value: in_state(state, **values).pk for state in order}


def states() -> Counter[str]:
    return Counter(jobs().values_list("state", flat=True))


@pytest.mark.requirement("ADM-007")
class TestRetry:
    def test_a_filter_retries_what_it_means_and_nothing_else(self) -> None:
        mine = [in_state("discarded", queue="email", type="email.send").pk for _ in range(3)]
        other = in_state("discarded", queue="email", type="email.bounce").pk
        found = bulk.retry_all(JobFilter(queue="email", type="email.send"))
        assert found == bulk.Summary(action="retry", matched=3, succeeded=3, failed=0)
        assert {read(key).state for key in mine} == {"available"}
        assert read(other).state == "discarded"

    def test_a_job_starts_anew_as_after_a_single_retry(self) -> None:
        job = in_state("discarded", expires_at=HOUR)
        age(job.pk, 2 * HOUR)
        bulk.retry_all([job.pk])
        again = read(job.pk)
        assert (again.attempt, again.returned, again.error) == (0, 0, None)
        assert (again.finished_at, again.expires_at, again.dead_letter) == (None, None, False)
        assert "expires_at" not in again.options
        assert again.attempts.count() == 1
        assert [claimed.id for claimed in fetch.fetch([job.queue])] == [job.pk]

    def test_a_filter_without_a_state_means_discarded_jobs(self) -> None:
        one_of_each(queue="q")
        found = bulk.retry_all(JobFilter(queue="q"))
        assert (found.matched, found.succeeded) == (1, 1)

    @together("state", [state for state in State if state != "discarded"], undo=True)
    def test_only_discarded_jobs_can_be_retried(self, state: State) -> None:
        key = in_state(state, queue="q").pk
        for which in (JobFilter(queue="q", states=(state,)), [key]):
            found = bulk.retry_all(which)
            assert (found.matched, found.succeeded, found.failed) == (1, 0, 1)
            assert found.errors == (
                bulk.Rejection(job_id=key, error=f"The job is {state}; retry needs it discarded."),
            )
        assert read(key).state == state

    def test_receivers_get_a_signal_for_each(self, django_capture_on_commit_callbacks: Any) -> None:
        reported: list[UUID] = []

        def note(job: Any, **kwargs: Any) -> None:
            reported.append(job.pk)

        keys = sorted(in_state("discarded").pk for _ in range(3))
        with receiving(note, signals.job_retried), django_capture_on_commit_callbacks(execute=True):
            bulk.retry_all(keys)
        assert sorted(reported) == keys

    def test_what_stands_in_the_way_of_one_leaves_the_others_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = sorted(in_state("discarded").pk for _ in range(3))
        real = retry.retry

        def full(*args: Any) -> None:
            raise QueueFull("The queue is full.")

        def single(key: UUID) -> Any:
            return full() if key == keys[1] else real(key)

        monkeypatch.setattr(
            bulk,
            "RETRY",
            bulk_step.StepAction("retry", frozenset({State.DISCARDED}), (), full, single),
        )
        found = bulk.retry_all(keys)
        assert (found.succeeded, found.failed) == (2, 1)
        reported = f"queue {read(keys[1]).queue} is full"
        assert found.errors == (bulk.Rejection(job_id=keys[1], error=reported),)
        assert [read(key).state for key in keys] == ["available", "discarded", "available"]


@pytest.mark.requirement("ADM-R005")
class TestCancel:
    @pytest.mark.parametrize("state", WAITING)
    def test_jobs_that_wait_are_cancelled(self, state: str) -> None:
        key = in_state(state, queue="q").pk
        assert bulk.cancel_all(JobFilter(queue="q")).succeeded == 1
        assert read(key).state == "cancelled"

    def test_running_jobs_are_left_alone_until_they_are_named(self) -> None:
        key = in_state("active", queue="q").pk
        assert bulk.cancel_all(JobFilter(queue="q")).matched == 0
        assert bulk.cancel_all(JobFilter(queue="q", states=(State.ACTIVE,))).succeeded == 1
        assert read(key).state == "cancelled"
        assert [attempt.outcome for attempt in read(key).attempts.all()] == ["cancelled"]

    @pytest.mark.parametrize("state", sorted(TERMINAL))
    def test_jobs_that_have_ended_stay_as_they_are(self, state: State) -> None:
        key = in_state(state).pk
        found = bulk.cancel_all([key])
        assert (found.succeeded, found.failed) == (0, 1)
        assert f"The job is {state}; cancel needs it" in found.errors[0].error


@pytest.mark.requirement("ADM-R005")
class TestDelete:
    def test_jobs_that_have_ended_go_with_their_histories(self) -> None:
        keys = one_of_each(queue="q")
        found = bulk.delete_all(JobFilter(queue="q"))
        assert (found.matched, found.succeeded) == (3, 3)
        assert states().keys() == {*WAITING, "active"}
        assert not Attempt.objects.filter(job_id=keys["discarded"]).exists()
        assert counts.by_queue(["q"])["q"].keys() == {*WAITING, "active"}

    @pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
    def test_no_other_job_is_deleted(self, state: State) -> None:
        key = in_state(state, queue="q").pk
        for which in (JobFilter(queue="q", states=(state,)), [key]):
            assert bulk.delete_all(which).failed == 1
        assert read(key).state == state


@pytest.mark.requirement("ADM-R001")
class TestPurge:
    @together("state", [state for state in State if state != "active"], undo=True)
    def test_it_deletes_the_states_it_names_in_its_queue(self, state: State) -> None:
        one_of_each(queue="q")
        kept = in_state(state, queue="other").pk
        assert bulk.purge("q", [state]).succeeded == 1
        assert state not in set(jobs().filter(queue="q").values_list("state", flat=True))
        assert read(kept)
        assert jobs().count() == 8

    def test_an_age_is_that_of_the_end(self) -> None:
        old, new = in_state("completed", queue="q").pk, in_state("completed", queue="q").pk
        age(old, HOUR)
        at = read(new).finished_at - MINUTE  # type: ignore[operator]  # it has ended
        assert bulk.purge("q", [State.COMPLETED], older_than=at).succeeded == 1
        assert [job.pk for job in jobs()] == [new]

    @pytest.mark.parametrize(
        ("wanted", "field"), [([], "states"), ([State.ACTIVE, State.COMPLETED], "states")]
    )
    def test_running_jobs_and_nothing_cannot_be_purged(
        self, wanted: list[State], field: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=field):
            bulk.purge("q", wanted)


def test_more_than_the_limit_are_left_for_the_next_call() -> None:
    push_many(5, queue="q")
    found = bulk.cancel_all(JobFilter(queue="q"), limit=3)
    assert (found.matched, found.succeeded, found.has_more) == (3, 3, True)
    found = bulk.cancel_all(JobFilter(queue="q"), limit=3)
    assert (found.matched, found.succeeded, found.has_more) == (2, 2, False)


def test_a_filter_that_leaves_no_job_out_is_rejected() -> None:
    push()
    for action in (bulk.retry_all, bulk.cancel_all, bulk.delete_all):
        with pytest.raises(InvalidRequest, match="filter"):
            action(JobFilter())
    assert states() == {"available": 1}


def test_an_id_without_a_job_and_one_twice() -> None:
    known, unknown = push().pk, ids.uuid7()
    found = bulk.cancel_all([known, unknown, known])
    assert (found.matched, found.succeeded, found.failed) == (2, 1, 1)
    assert found.errors == (bulk.Rejection(job_id=unknown, error="There is no job with this id."),)


def test_a_hundred_reasons_are_listed_and_all_are_counted() -> None:
    keys = [job.pk for job in push_many(120)]
    found = bulk.retry_all(keys)
    assert (found.failed, len(found.errors)) == (120, 100)


def test_whoever_is_kept_to_queues_changes_no_others() -> None:
    mine, theirs = push(queue="mine", type="a.b").pk, push(queue="theirs", type="a.b").pk
    within = frozenset({"mine"})
    assert bulk.cancel_all(JobFilter(type="a.b"), within=within).matched == 1
    found = bulk.cancel_all([theirs], within=within)
    assert (found.succeeded, found.failed) == (0, 1)
    assert (read(mine).state, read(theirs).state) == ("cancelled", "available")


def test_a_job_that_moved_on_since_it_was_found_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The filter means jobs that are available; by the time of the lock a worker runs one of them.
    taken, left = push(queue="q"), push(queue="q")
    real = bulk._Tally.take

    def late(self: Any, keys: list[UUID]) -> None:
        fetch.fetch(["q"], worker_id="w")
        real(self, keys)

    monkeypatch.setattr(bulk._Tally, "take", late)
    found = bulk.cancel_all(JobFilter(queue="q", states=(State.AVAILABLE,)))
    assert (found.matched, found.succeeded, found.failed) == (2, 1, 1)
    assert found.errors[0].job_id == taken.pk
    assert "has become active" in found.errors[0].error
    assert (read(taken.pk).state, read(left.pk).state) == ("active", "cancelled")


def test_a_race_that_is_lost_to_the_end_is_counted_and_not_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [job.pk for job in push_many(3)]

    def lose(operation: Any) -> Any:
        raise OperationalError("deadlock detected")

    monkeypatch.setattr(database, "in_write_transaction", lose)
    monkeypatch.setattr(type(database.dialect()), "is_contention_error", lambda self, error: True)
    found = bulk.cancel_all(keys)
    assert (found.succeeded, found.failed) == (0, 3)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round", range(3))
def test_beside_acks_in_groups_and_pruning_the_sums_add_up(round: int) -> None:
    number = 1200
    keys = [job.pk for job in push_many(number, queue="race")]
    claimed = fetch.fetch(["race"], count=number // 2, worker_id="w", due=False)
    claimed += fetch.fetch(["race"], count=number // 3, worker_id="w", due=False)
    old = [job.pk for job in push_many(number, queue="old")]
    for start in range(0, number, 500):
        bulk.cancel_all(old[start : start + 500])
    age(old, 30 * 24 * HOUR)

    def acks(mine: list[Any]) -> set[UUID]:
        held: set[UUID] = set()
        for n in range(0, len(mine), 50):
            held |= ack.ack_batch("w", [(job.id, job.run, None) for job in mine[n : n + 50]])
        return held

    tasks: dict[str, Callable[[], Any]] = {
        "acks forward": lambda: acks(claimed[::2]),
        "acks backward": lambda: acks(claimed[1::2][::-1]),
        "cancel": lambda: bulk.cancel_all(list(reversed(keys))),
        "cancel by filter": lambda: bulk.cancel_all(
            JobFilter(queue="race", states=(State.ACTIVE, State.AVAILABLE))
        ),
        "delete": lambda: bulk.delete_all(JobFilter(queue="old")),
        "prune": lambda: sum(job_pruning.prune() for _ in range(6)),
    }
    responses = dict(zip(tasks, at_once([*tasks.values()]), strict=True))
    completed = responses["acks forward"] | responses["acks backward"]
    by_id, by_filter = responses["cancel"], responses["cancel by filter"]
    assert by_id.matched == number
    assert by_id.succeeded + by_filter.succeeded + len(completed) == number
    ended = Counter(jobs().filter(queue="race").values_list("state", flat=True))
    assert ended["completed"] == len(completed)
    assert ended["cancelled"] == by_id.succeeded + by_filter.succeeded
    assert responses["delete"].succeeded + responses["prune"] == number
    assert not jobs().filter(queue="old").exists()
    assert counts.differences() == []

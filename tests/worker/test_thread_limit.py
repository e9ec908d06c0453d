"""The limit of threads: one for jobs that wait for nothing, all for the others."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest

from django_ojs.worker import thread_limit
from django_ojs.worker.executor import Executor
from django_ojs.worker.thread_limit import (
    LONGEST_BACKOFF,
    SAMPLE,
    SHORT,
    STALLED_AFTER,
    WAITING_PER_SLOT,
    ThreadLimit,
)
from tests.worker.parts import Gate, Outcomes, run_of
from tests.worker.waiting import eventually

SLOTS = 3
MANY = WAITING_PER_SLOT * SLOTS
SHORT_JOB, LONG_JOB = SHORT / 2, SHORT * 2


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(thread_limit, "time", clock)
    return clock


def reduced() -> ThreadLimit:
    limit = ThreadLimit(SLOTS)
    limit.submitted(MANY)
    assert (limit.threads, limit.is_reduced) == (1, True)
    return limit


def test_few_waiting_jobs_are_started_at_once() -> None:
    limit = ThreadLimit(SLOTS)
    limit.submitted(MANY - 1)
    assert (limit.threads, limit.is_reduced) == (SLOTS, False)


def test_a_process_of_one_slot_has_nothing_to_reduce() -> None:
    limit = ThreadLimit(1)
    limit.submitted(1000)
    assert not limit.is_reduced


def test_without_the_gil_all_threads_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    limit = ThreadLimit(SLOTS)
    limit.submitted(1000)
    assert not limit.is_reduced


def test_short_jobs_stay_with_one_thread_and_a_few_jobs_end_that() -> None:
    limit = reduced()
    assert not any(limit.ended(SHORT_JOB) for _ in range(SAMPLE * 10))
    assert limit.is_reduced
    limit.submitted(MANY - 1)
    assert limit.threads == SLOTS


def test_a_few_long_jobs_among_short_ones_do_not_end_it() -> None:
    limit = reduced()
    for _ in range(10):
        assert not limit.ended(LONG_JOB)
        assert not any(limit.ended(SHORT_JOB) for _ in range(SAMPLE - 1))
    assert limit.is_reduced


def long_jobs_until_lifted(limit: ThreadLimit) -> int:
    """Return how many long jobs end until more threads may start."""
    for jobs in range(1, SAMPLE + 1):
        if limit.ended(LONG_JOB):
            return jobs
    raise AssertionError("a whole sample of long jobs leaves one thread")


def test_long_jobs_start_the_other_threads_before_a_sample_is_full() -> None:
    limit = reduced()
    assert long_jobs_until_lifted(limit) <= SAMPLE // 2 + 1
    assert limit.threads == SLOTS
    assert not limit.ended(LONG_JOB)


def trials(submissions: int, *, seconds: float, limit: ThreadLimit) -> list[int]:
    """Return at which submissions one thread was tried."""
    found = []
    for number in range(submissions):
        limit.submitted(MANY)
        if limit.is_reduced:
            found.append(number)
        for _ in range(SAMPLE):
            limit.ended(seconds)
    return found


def test_after_long_jobs_one_thread_is_tried_less_and_less_often() -> None:
    tried = trials(500, seconds=LONG_JOB, limit=ThreadLimit(SLOTS))
    waits = [after - before for before, after in itertools.pairwise(tried)]
    assert waits == sorted(waits)
    assert waits[:3] == [2, 5, 17]
    assert waits[-1] == LONGEST_BACKOFF + 1


def test_short_jobs_make_the_next_trials_frequent_again() -> None:
    limit = ThreadLimit(SLOTS)
    trials(200, seconds=LONG_JOB, limit=limit)
    trials(LONGEST_BACKOFF + 1, seconds=SHORT_JOB, limit=limit)
    assert limit.is_reduced
    long_jobs_until_lifted(limit)
    assert trials(2, seconds=LONG_JOB, limit=limit) == [1]


def test_a_job_that_blocks_the_thread_starts_the_others(clock: Clock) -> None:
    limit = reduced()
    assert not limit.stalled()  # The first look.
    clock.now += STALLED_AFTER
    assert not limit.stalled()  # The thread that looks may have kept the job from running.
    clock.now += STALLED_AFTER
    assert limit.stalled()
    assert limit.threads == SLOTS
    assert not limit.stalled()


def test_looks_in_quick_succession_are_no_stall(clock: Clock) -> None:
    limit = reduced()
    assert not any(limit.stalled() for _ in range(100))
    assert limit.is_reduced


def test_jobs_that_end_are_no_stall(clock: Clock) -> None:
    limit = reduced()
    for _ in range(50):
        clock.now += STALLED_AFTER
        limit.ended(SHORT_JOB)
        assert not limit.stalled()
    assert limit.is_reduced


def looks_until_lifted(executor: Executor) -> None:
    """Look after the executor as the process does while it waits."""

    def look() -> bool:
        executor.fill()
        return executor.longest_wait() == float("inf")

    eventually(look, "the other threads may run")


def test_many_short_jobs_run_in_order_on_one_thread(
    outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a job that does nothing may take long.
    monkeypatch.setattr(thread_limit, "SHORT", float("inf"))
    executor = Executor(SLOTS, outcomes)
    runs = [run_of(lambda: None) for _ in range(MANY * 5)]
    executor.submit(runs)
    ended = [outcomes.next().run for _ in runs]
    assert ended == runs
    assert len({run.thread for run in runs}) == 1
    executor.close()


def test_a_job_that_blocks_among_many_leaves_the_others_their_threads(outcomes: Outcomes) -> None:
    executor, gate = Executor(SLOTS, outcomes), Gate()
    blocked = run_of(gate)
    executor.submit([blocked, *(run_of(lambda: None) for _ in range(MANY))])
    gate.has_started()
    assert executor.longest_wait() == STALLED_AFTER
    looks_until_lifted(executor)
    ended = [outcomes.next().run for _ in range(MANY)]
    assert blocked not in ended
    gate.open()
    assert outcomes.next().run is blocked
    executor.close()


def test_threads_that_are_too_many_rest_and_come_back(outcomes: Outcomes) -> None:
    executor, gate, second = Executor(SLOTS, outcomes), Gate(), Gate()
    executor.submit([run_of(gate) for _ in range(SLOTS)])
    for _ in range(SLOTS):
        gate.has_started()
    many: list[Any] = [run_of(second) for _ in range(MANY)]
    executor.submit(many)
    gate.open()
    for _ in range(SLOTS):
        outcomes.next()
    second.has_started()
    looks_until_lifted(executor)
    for _ in range(SLOTS - 1):
        second.has_started()
    second.open()
    for _ in many:
        outcomes.next()
    assert second.most == SLOTS
    executor.close()

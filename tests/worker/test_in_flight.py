"""Runs: whoever moves one on decides what becomes of its job."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from django_ojs.worker.in_flight import Hand, Phase, Run
from tests.worker.parts import run_of


def waiting(timeout: float = 60.0) -> Run:
    return run_of(lambda: None, timeout=timeout)


def running(timeout: float = 60.0) -> Run:
    run = waiting(timeout)
    assert run.begin()
    return run


def test_a_run_begins_and_ends_once() -> None:
    run = waiting()
    assert (run.begin(), run.begin(), run.end(), run.end()) == (True, False, True, False)


def test_a_run_that_was_taken_neither_begins_nor_ends() -> None:
    given_back, stopped = waiting(), running()
    assert given_back.take(Phase.WAITING)
    assert not given_back.begin()
    assert stopped.take(Phase.RUNNING)
    assert not stopped.end()
    assert (given_back.context.cancelled, stopped.context.cancelled) == (True, True)


@pytest.mark.parametrize(
    ("run", "phase"),
    [(waiting(), Phase.RUNNING), (running(), Phase.WAITING)],
    ids=["waiting", "running"],
)
def test_a_run_is_taken_from_the_phase_it_is_in_only(run: Run, phase: Phase) -> None:
    told: list[Run] = []
    assert not run.take(phase, told.append)
    assert (told, run.context.cancelled) == ([], False)


def test_the_claim_is_the_worker_and_the_run() -> None:
    run = waiting()
    assert run.claim.filters() == {"worker_id": "worker-a", "run": run.job.run}


def test_only_a_handler_that_runs_can_be_overdue() -> None:
    run = waiting(timeout=0.0)
    assert not run.overdue
    run.begin()
    assert run.overdue
    run.end()
    assert not run.overdue
    assert not running(timeout=60).overdue


def test_of_many_who_want_a_run_one_gets_it() -> None:
    def end(run: Run) -> bool:
        return run.end()

    def take(run: Run) -> bool:
        return run.take(Phase.RUNNING)

    ways: list[Callable[[Run], bool]] = [end, take, take, take]
    for _ in range(200):
        run, won = running(), []
        barrier = threading.Barrier(len(ways))

        def go(
            way: Callable[[Run], bool],
            run: Run = run,
            won: list[bool] = won,
            barrier: threading.Barrier = barrier,
        ) -> None:
            barrier.wait(20)
            won.append(way(run))

        threads = [threading.Thread(target=go, args=(way,)) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(won) == [False, False, False, True]


def test_the_hand_counts_what_holds_a_slot_and_keeps_what_is_not_written() -> None:
    hand, one, two = Hand(), waiting(), running()
    hand.add([one, two])
    assert (hand.busy, len(hand)) == (2, 2)
    hand.free()
    assert (hand.busy, len(hand)) == (1, 2)
    assert hand.in_phase(Phase.RUNNING) == [two]
    hand.remove([two])
    hand.remove([two])
    assert hand.all() == [one]


def test_two_runs_of_one_job_are_two() -> None:
    hand, run = Hand(), waiting()
    again = run_of(lambda: None, job=run.job)
    again.job.run += 1
    hand.add([run])
    run.job.run -= 1
    hand.add([again])
    assert len(hand) == 2

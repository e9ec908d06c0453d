"""Runs: whoever moves one on decides what becomes of its job."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from django_ojs.storage.transitions import Claim
from django_ojs.worker import in_flight
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from tests.worker.parts import run_of
from tests.worker.waiting import BOUND


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
    assert given_back.revoke(Phase.WAITING)
    assert not given_back.begin()
    assert stopped.revoke(Phase.RUNNING)
    assert not stopped.end()
    assert (given_back.context.cancelled, stopped.context.cancelled) == (True, True)


@pytest.mark.parametrize(
    ("run", "phase"),
    [(waiting(), Phase.RUNNING), (running(), Phase.WAITING)],
    ids=["waiting", "running"],
)
def test_a_run_is_revoked_from_its_own_phase_only(run: Run, phase: Phase) -> None:
    received: list[Run] = []
    assert not run.revoke(phase, received.append)
    assert (received, run.context.cancelled) == ([], False)


def test_the_claim_is_the_worker_and_the_run() -> None:
    run = waiting()
    assert run.claim == Claim(worker_id="worker-a", run=run.job.run)


def test_only_a_handler_that_runs_can_be_overdue() -> None:
    run = waiting(timeout=0.0)
    assert not run.overdue
    run.begin()
    assert run.overdue
    run.end()
    assert not run.overdue
    assert not running(timeout=60).overdue


def test_a_run_that_is_about_to_begin_is_not_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    run = waiting(timeout=60.0)
    seen: list[bool] = []

    def look() -> float:
        # As a heartbeat that checks the timeouts at any moment of `begin`.
        monkeypatch.setattr(in_flight.time, "monotonic", lambda: 1e6)
        seen.append(run.overdue)
        monkeypatch.setattr(in_flight.time, "monotonic", look)
        return 1e6

    def current() -> threading.Thread:
        look()
        return threading.main_thread()

    monkeypatch.setattr(in_flight.time, "monotonic", look)
    monkeypatch.setattr(in_flight.threading, "current_thread", current)
    assert run.begin()
    monkeypatch.undo()
    assert seen == [False, False]


def test_of_many_who_want_a_run_one_gets_it() -> None:
    def end(run: Run) -> bool:
        return run.end()

    def take(run: Run) -> bool:
        return run.revoke(Phase.RUNNING)

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
            barrier.wait(BOUND)
            won.append(way(run))

        threads = [threading.Thread(target=go, args=(way,)) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        assert sorted(won) == [False, False, False, True]


def test_busy_counts_the_runs_with_a_slot_and_a_run_stays_until_it_is_stored() -> None:
    in_flight, one, two = JobsInFlight(), waiting(), running()
    in_flight.add([one, two])
    assert (in_flight.busy, len(in_flight)) == (2, 2)
    in_flight.release_slot()
    assert (in_flight.busy, len(in_flight)) == (1, 2)
    assert in_flight.in_phase(Phase.RUNNING) == [two]
    in_flight.remove([two])
    in_flight.remove([two])
    assert in_flight.all() == [one]


def test_two_runs_of_one_job_are_two() -> None:
    in_flight, run = JobsInFlight(), waiting()
    again = run_of(lambda: None, job=run.job)
    again.job.run += 1
    in_flight.add([run])
    run.job.run -= 1
    in_flight.add([again])
    assert len(in_flight) == 2

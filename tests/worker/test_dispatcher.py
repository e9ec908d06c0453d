"""The dispatcher: from claimed jobs to runs, and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.handlers import get_handler
from django_ojs.spec.failure import Failure
from django_ojs.spec.timeouts import failure_of
from django_ojs.storage.claimed_job import Claimed
from django_ojs.worker.dispatcher import Dispatcher
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from django_ojs.worker.job_log import JobLog
from tests.factories import active
from tests.worker.parts import claimed


class Bench:
    """A dispatcher between parts that record their calls."""

    def __init__(self, slots: int = 2) -> None:
        self.in_flight, self.job_log = JobsInFlight(), JobLog()
        self.submitted: list[Run] = []
        self.held_back: list[tuple[Run, Failure]] = []
        self.dispatcher = Dispatcher("worker-a", self.in_flight, self, self, self.job_log, slots)

    def submit(self, runs: list[Run]) -> None:
        self.submitted += runs

    def hold(self, runs: list[Run], failure: Failure) -> None:
        self.held_back += [(run, failure) for run in runs]

    def dispatch(self, *jobs: Claimed) -> list[Run]:
        self.unknown = self.dispatcher.dispatch(list(jobs))
        return self.submitted


def test_a_job_becomes_a_run_of_its_handler_in_the_order_it_was_claimed() -> None:
    bench = Bench()
    jobs = [
        claimed(type="testapp.echo"),
        claimed(type="testapp.shout"),
        claimed(type="worker.note"),
    ]
    runs = bench.dispatch(*jobs)
    assert [run.job for run in runs] == jobs
    assert [run.handler for run in runs] == [get_handler(job.type) for job in jobs]
    assert [run.context.is_async for run in runs] == [False, True, False]
    assert (bench.in_flight.busy, len(bench.in_flight)) == (3, 3)


def test_the_timeout_is_the_jobs_or_else_the_settings(settings: Any) -> None:
    settings.OJS = {"DEFAULT_TIMEOUT": 7}
    runs = Bench().dispatch(
        claimed(type="testapp.echo", timeout_ms=1500), claimed(type="testapp.echo")
    )
    assert [run.timeout for run in runs] == [1.5, 7.0]


@pytest.mark.django_db
def test_a_run_may_not_take_longer_than_the_total_timeout_of_its_job() -> None:
    job = active(type="testapp.echo", total_timeout=900, timeout_ms=800_000)
    job.created_at -= timedelta(seconds=600)
    (run,) = Bench().dispatch(job)
    assert run.timeout == pytest.approx(300, abs=60)
    assert failure_of(job, timedelta(minutes=30)).type == "total_timeout"


def test_a_type_without_a_handler_is_held_back_and_takes_no_slot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    assert bench.dispatch(claimed(type="nobody.knows")) == []
    assert bench.unknown == 1
    ((run, failure),) = bench.held_back
    assert (failure.type, run.phase, bench.in_flight.busy) == ("unknown_job_type", Phase.REVOKED, 0)
    # It is in flight until that is stored.
    assert len(bench.in_flight) == 1
    assert "nobody.knows" in caplog.text


def test_a_waiting_run_can_be_revoked_and_a_running_one_cannot() -> None:
    bench = Bench()
    running, waiting = bench.dispatch(claimed(type="testapp.echo"), claimed(type="testapp.echo"))
    running.begin()
    assert bench.dispatcher.revoke_waiting() == [waiting]
    assert (waiting.begin(), bench.in_flight.busy) == (False, 1)
    assert bench.dispatcher.revoke_waiting() == []


def test_only_runs_that_wait_behind_full_slots_are_revoked_by_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(slots=2)
    runs = bench.dispatch(*(claimed(type="testapp.echo") for _ in range(3)))
    for run in runs[:2]:
        run.begin()
    assert bench.dispatcher.revoke_waiting(longer_than=60) == []
    runs[2].claimed_at -= 100
    assert bench.dispatcher.revoke_waiting(longer_than=60) == [runs[2]]
    # As many as there are slots: each has one, or will have it in a moment.
    few = Bench(slots=2)
    (run,) = few.dispatch(claimed(type="testapp.echo"))
    run.claimed_at -= 100
    assert few.dispatcher.revoke_waiting(longer_than=60) == []

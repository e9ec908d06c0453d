"""The intake: from claimed jobs to runs, and back."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.handlers import get_handler
from django_ojs.spec.failure import Failure
from django_ojs.storage.claims import Claimed
from django_ojs.worker.dispatcher import Intake
from django_ojs.worker.in_flight import Hand, Phase, Run
from django_ojs.worker.job_log import Report
from tests.worker.parts import claimed


class Bench:
    """An intake between parts that only note what they are given."""

    def __init__(self, slots: int = 2) -> None:
        self.hand, self.report = Hand(), Report()
        self.submitted: list[Run] = []
        self.put_aside: list[tuple[Run, Failure]] = []
        self.intake = Intake("worker-a", self.hand, self, self, self.report, slots)

    def submit(self, runs: list[Run]) -> None:
        self.submitted += runs

    def held(self, run: Run, failure: Failure) -> None:
        self.put_aside.append((run, failure))

    def accept(self, *jobs: Claimed) -> list[Run]:
        self.intake.accept(list(jobs))
        return self.submitted


def test_a_job_becomes_a_run_of_its_handler_in_the_order_it_was_claimed() -> None:
    bench = Bench()
    jobs = [
        claimed(type="testapp.echo"),
        claimed(type="testapp.shout"),
        claimed(type="worker.note"),
    ]
    runs = bench.accept(*jobs)
    assert [run.job for run in runs] == jobs
    assert [run.handler for run in runs] == [get_handler(job.type) for job in jobs]
    assert [run.context.is_async for run in runs] == [False, True, False]
    assert (bench.hand.busy, len(bench.hand)) == (3, 3)


def test_the_timeout_is_the_jobs_or_else_the_settings(settings: Any) -> None:
    settings.OJS = {"DEFAULT_TIMEOUT": 7}
    runs = Bench().accept(
        claimed(type="testapp.echo", timeout_ms=1500), claimed(type="testapp.echo")
    )
    assert [run.timeout for run in runs] == [1.5, 7.0]


def test_a_type_without_a_handler_is_put_aside_and_takes_no_slot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    assert bench.accept(claimed(type="nobody.knows")) == []
    ((run, failure),) = bench.put_aside
    assert (failure.type, run.phase, bench.hand.busy) == ("unknown_job_type", Phase.TAKEN, 0)
    # It is in the hand until that is written.
    assert len(bench.hand) == 1
    assert "nobody.knows" in caplog.text


def test_what_waits_can_be_taken_back_and_what_runs_cannot() -> None:
    bench = Bench()
    running, waiting = bench.accept(claimed(type="testapp.echo"), claimed(type="testapp.echo"))
    running.begin()
    assert bench.intake.take_waiting() == [waiting]
    assert (waiting.begin(), bench.hand.busy) == (False, 1)
    assert bench.intake.take_waiting() == []


def test_only_what_waits_behind_full_slots_is_stranded(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(slots=2)
    runs = bench.accept(*(claimed(type="testapp.echo") for _ in range(3)))
    for run in runs[:2]:
        run.begin()
    assert bench.intake.take_waiting(older_than=60) == []
    runs[2].claimed_at -= 100
    assert bench.intake.take_waiting(older_than=60) == [runs[2]]
    # As many as there are slots: each has one, or will have it in a moment.
    few = Bench(slots=2)
    (run,) = few.accept(claimed(type="testapp.echo"))
    run.claimed_at -= 100
    assert few.intake.take_waiting(older_than=60) == []

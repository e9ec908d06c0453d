"""What an operator does to steps, and what the maintenance deletes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.steps import pruning
from django_ojs.extensions.steps.models import Step, StepSignal
from django_ojs.extensions.steps.operations import end_wait, run_again_from
from django_ojs.operations.maintenance import job_pruning as jobs_pruning
from django_ojs.spec.errors import Conflict, NotFound
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import Calls, Program

pytestmark = pytest.mark.django_db

SUSPENDED = Drained(suspended=1)
COMPLETED = Drained(completed=1)


def test_a_wait_is_timed_out_by_hand(ojs: TestContext) -> None:
    def waits(ctx: django_ojs.JobContext) -> Any:
        try:
            return steps.wait("packed", "order-7")
        except steps.WaitTimedOut:
            return "given up"

    program = Program(ojs, waits)
    program.run()
    with pytest.raises(Conflict):
        end_wait(program.id, 1)  # It waits in another step.
    end_wait(program.id, 0)
    assert program.run() == COMPLETED
    assert program.job.result == "given up"
    with pytest.raises(Conflict, match="it must be scheduled, with a step that waits"):
        end_wait(program.id)


def test_a_sleep_is_ended_by_hand(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.sleep("cool-off", timedelta(days=2)))
    program.run()
    end_wait(program.id)
    assert program.run() == COMPLETED


def test_a_job_runs_again_from_a_step(ojs: TestContext) -> None:
    charge, ship = Calls(), Calls(fails=1)

    def fulfil(ctx: django_ojs.JobContext) -> Any:
        steps.run("charge", charge)
        steps.run("pack", Calls())
        return steps.run("ship", ship, 1, retry=django_ojs.RetryPolicy(max_attempts=1))

    program = Program(ojs, fulfil)
    assert program.run() == Drained(discarded=1)
    with pytest.raises(NotFound):
        run_again_from(program.id, 2)
    run_again_from(program.id, 1)
    assert [name for name, _ in program.history] == ["charge"]
    assert program.run() == COMPLETED
    assert len(charge.made) == 1
    with pytest.raises(Conflict, match="discarded or scheduled"):
        run_again_from(program.id, 0)


def test_a_sleeper_runs_again_from_a_step(ojs: TestContext) -> None:
    charge = Calls()

    def fulfil(ctx: django_ojs.JobContext) -> None:
        steps.run("charge", charge)
        steps.sleep("cool-off", 60)

    program = Program(ojs, fulfil)
    program.run()
    run_again_from(program.id, 0)
    assert program.run() == SUSPENDED
    assert len(charge.made) == 2


def test_old_signals_are_deleted(ojs: TestContext) -> None:
    steps.signal("packed", "order-7")
    assert pruning.prune_signals() == 0
    ojs.advance(timedelta(days=31))
    steps.signal("packed", "order-8")
    assert pruning.prune_signals() == 1
    assert StepSignal.objects.get().key == "order-8"


def test_the_steps_of_a_job_live_as_long_as_its_row(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.run("one", Calls()))
    program.run()
    jobs_pruning.prune()
    assert Step.objects.filter(job_id=program.id).exists()
    ojs.advance(timedelta(days=400))
    jobs_pruning.prune()
    assert not Step.objects.filter(job_id=program.id).exists()

"""`steps.gather`: jobs that a step starts, and waits for without a slot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import override_settings

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.steps import gathering, store
from django_ojs.extensions.steps.models import Step
from django_ojs.extensions.workflows.models import Workflow
from django_ojs.extensions.workflows.operations.advance import advance_all
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations.cancel import cancel
from django_ojs.storage import database, transitions
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import Calls, Program
from tests.other_session import open_transaction
from tests.testapp.jobs import echo
from tests.testapp.testing_jobs import save

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_results_of_its_jobs_come_in_order(ojs: TestContext) -> None:
    after = Calls(fails=1)

    def labels(ctx: django_ojs.JobContext) -> Any:
        found = steps.gather("labels", [echo.s(number) for number in range(3)])
        steps.run("after", after)
        return found

    program = Program(ojs, labels)
    assert program.run(max_jobs=1) == Drained(suspended=1)
    job = program.job
    assert (job.state, job.worker_id) == ("scheduled", None)
    children = Job.objects.filter(type="testapp.echo")
    assert {child.parent_id for child in children} == {program.id}
    assert ojs.drain(with_retries=True) == Drained(completed=4, retryable=1)
    assert program.job.result == [[0], [1], [2]]
    assert Job.objects.filter(type="testapp.echo").count() == 3
    assert program.history == [("labels", "done"), ("after", "done")]


def test_no_jobs_have_no_results(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.gather("labels", []))
    assert program.run() == Drained(completed=1)
    assert program.job.result == []


def test_a_job_that_fails_fails_the_step_in_each_run(ojs: TestContext) -> None:
    raised: list[str] = []
    after = Calls(fails=1)

    def labels(ctx: django_ojs.JobContext) -> None:
        failing = save.options(retry=django_ojs.RetryPolicy(max_attempts=1))
        try:
            steps.gather("labels", [echo.s(1), failing.s("broken")])
        except steps.StepFailed as error:
            raised.append(str(error))
        steps.run("after", after)

    program = Program(ojs, labels)
    ojs.drain(with_retries=True)
    assert program.job.state == "completed"
    assert len(raised) == 2
    assert "1 of 2 jobs did not complete (testing.save" in raised[0]
    assert raised[0] == raised[1]


def test_jobs_that_cannot_start_are_an_error_that_the_handler_may_catch(ojs: TestContext) -> None:
    unique = django_ojs.UniquePolicy(on_conflict="ignore")
    echo.options(unique=unique, scheduled_at="+PT1H").enqueue(1)
    caught: list[tuple[str, bool]] = []

    def labels(ctx: django_ojs.JobContext) -> None:
        try:
            steps.gather("labels", [echo.options(unique=unique).s(1)])
        except Exception as error:
            caught.append((str(error), ctx.cancelled))
        steps.sleep("later", 60)

    program = Program(ojs, labels)
    assert program.run() == Drained(suspended=1)
    assert program.history == [("labels", "failed"), ("later", "waiting")]
    ojs.advance(timedelta(minutes=2))
    assert program.run() == Drained(completed=1)
    assert [is_lost for _, is_lost in caught] == [False, False]
    assert all("by its unique policy" in text for text, _ in caught)


def test_whatever_keeps_jobs_from_starting_is_an_error_that_the_handler_may_catch(
    ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = Calls(fails=1)

    def begin(*args: Any) -> None:
        raise ValueError("no jobs today")

    def labels(ctx: django_ojs.JobContext) -> None:
        with suppress(ValueError):
            steps.gather("labels", [echo.s(1)])
        steps.run("after", after)

    monkeypatch.setattr(gathering, "begin", begin)
    program = Program(ojs, labels)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.history == [("labels", "failed"), ("after", "done")]


@override_settings(OJS={"MAX_STEP_RESULT_BYTES": 20})
def test_results_that_are_too_large_together_are_an_error_that_the_handler_may_catch(
    ojs: TestContext,
) -> None:
    after = Calls(fails=1)

    def labels(ctx: django_ojs.JobContext) -> None:
        with suppress(Exception):
            steps.gather("labels", [echo.s("x" * 10), echo.s("y" * 10)])
        steps.run("after", after)

    program = Program(ojs, labels)
    assert ojs.drain(with_retries=True).completed == 3
    assert program.history == [("labels", "failed"), ("after", "done")]


def test_a_result_outlives_its_job(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.gather("labels", [echo.s(1), echo.s()]))
    program.run(max_jobs=1)
    assert ojs.drain(max_jobs=2) == Drained(completed=2)
    Job.objects.exclude(pk=program.id).delete()
    assert program.run() == Drained(completed=1)
    assert program.job.result == [[1], []]


@pytest.mark.postgresql
def test_jobs_that_end_while_their_parent_falls_asleep_are_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workflow = django_ojs.group(echo.s(1), name="steps.gather labels").enqueue()
    Job.objects.update(state="completed", finished_at=Now())
    asleep = partial(store.lock_signal, gathering.WORKFLOW, str(workflow.id))
    with open_transaction(asleep), database.passing_by():
        advance_all([workflow.id])
    assert workflow.workflow().state == "running"
    assert not caplog.records
    advance_all([workflow.id])
    assert workflow.workflow().state == "completed"


def test_a_parent_that_is_cancelled_cancels_its_jobs(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.gather("labels", [echo.s(1), echo.s(2)]))
    program.run(max_jobs=1)
    cancel(program.id)
    assert Workflow.objects.get().state == "cancelled"
    states = Job.objects.filter(type="testapp.echo").values_list("state", flat=True)
    assert list(states) == ["cancelled", "cancelled"]


@pytest.mark.postgresql
def test_a_job_that_is_locked_does_not_keep_those_of_other_parents(
    ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = [Program(ojs, lambda ctx: steps.gather("labels", [echo.s(1)])) for _ in range(2)]
    ojs.drain(max_jobs=2)
    waits = {step.job_id: step for step in Step.objects.all()}
    locked, free = (waits[program.id] for program in programs)
    child = Job.objects.get(parent_id=programs[0].id)
    limits: list[float] = []
    passing_by = database.passing_by

    def limited(timeout: float = 0.0) -> AbstractContextManager[None]:
        limits.append(timeout)
        return passing_by(timeout)

    with open_transaction(lambda: transitions.lock(child.pk)), database.passing_by():
        monkeypatch.setattr(database, "passing_by", limited)
        gathering.cancel([locked, locked, free])
    assert limits[0] > limits[1] >= limits[2] >= 0
    states = {str(each.pk): each.state for each in Workflow.objects.all()}
    assert (states[locked.key or ""], states[free.key or ""]) == ("running", "cancelled")


def drain_without_steps(ojs: TestContext) -> None:
    (extension,) = (each for each in registry.extensions() if each.name == "steps")
    registry.remove(extension)
    try:
        ojs.drain()
    finally:
        registry.register(extension)


def test_a_job_is_woken_whose_jobs_ended_in_a_process_without_steps(
    ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "WALK", 1)
    programs = [Program(ojs, lambda ctx: steps.gather("labels", [echo.s(1)])) for _ in range(2)]
    programs[0].run(max_jobs=2)
    asleep = gathering.LeftAsleep()
    while asleep.wake():
        pass
    assert [program.job.state for program in programs] == ["scheduled"] * 2
    drain_without_steps(ojs)
    assert [each.state for each in Workflow.objects.all()] == ["completed"] * 2
    assert [program.job.state for program in programs] == ["scheduled"] * 2
    while asleep.wake():
        pass
    assert ojs.drain() == Drained(completed=2)
    assert [program.job.result for program in programs] == [[[1]]] * 2


def test_a_job_that_another_process_has_woken_sleeps_on_in_its_next_step(
    ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def labels(ctx: django_ojs.JobContext) -> None:
        steps.gather("labels", [echo.s(1)])
        steps.sleep("later", 3600)

    program = Program(ojs, labels)
    program.run(max_jobs=1)
    drain_without_steps(ojs)

    def late(operation: Callable[[], None]) -> None:
        monkeypatch.undo()
        gathering.LeftAsleep().wake()
        assert program.run() == Drained(suspended=1)
        database.in_write_transaction(operation)

    monkeypatch.setattr(database, "in_write_transaction", late)
    gathering.LeftAsleep().wake()
    assert program.history == [("labels", "done"), ("later", "waiting")]
    assert program.job.state == "scheduled"


@pytest.mark.postgresql
def test_a_job_that_is_locked_does_not_keep_others_asleep(ojs: TestContext) -> None:
    programs = [Program(ojs, lambda ctx: steps.gather("labels", [echo.s(1)])) for _ in range(2)]
    ojs.drain(max_jobs=2)
    drain_without_steps(ojs)
    locked = programs[0].id
    with open_transaction(lambda: transitions.lock(locked)), database.passing_by():
        gathering.LeftAsleep().wake()
    assert [program.job.state for program in programs] == ["scheduled", "available"]

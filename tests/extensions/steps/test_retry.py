"""The attempts of a step, and versions of a program."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

import django_ojs
from django_ojs.extensions import steps
from django_ojs.models import Attempt
from django_ojs.operations.retry import retry
from django_ojs.spec.errors import InvalidRequest
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import AsyncProgram, Calls, Program

pytestmark = pytest.mark.django_db

THRICE = django_ojs.RetryPolicy(
    max_attempts=3, initial_interval="PT1M", max_interval="PT1M", jitter=False
)
SUSPENDED = Drained(suspended=1)
COMPLETED = Drained(completed=1)


def test_a_step_waits_for_its_next_attempt_without_a_slot(ojs: TestContext) -> None:
    charge = Calls(fails=2)
    program = Program(ojs, lambda ctx: steps.run("charge", charge, 3, retry=THRICE))
    for number in (1, 2):
        assert program.run() == SUSPENDED
        (step,) = program.steps
        assert (step.outcome, step.attempts) == ("waiting", number)
        assert step.error["message"] == "not this time"
        assert program.run() == Drained()
        ojs.advance(timedelta(minutes=1, seconds=1))
    assert program.run() == COMPLETED
    (step,) = program.steps
    assert (step.outcome, step.attempts, step.value) == ("done", 3, 3)
    assert (program.job.result, program.job.spent) == (3, 1)
    assert not Attempt.objects.filter(job_id=program.id).exists()


def test_a_step_that_has_spent_its_attempts_fails_the_job_for_good(ojs: TestContext) -> None:
    charge = Calls(fails=4)
    program = Program(ojs, lambda ctx: steps.run("charge", charge, retry=THRICE))
    for _ in range(2):
        program.run()
        ojs.advance(timedelta(minutes=2))
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "not this time (the step 'charge')" in program.job.error["message"]
    # By hand, it has all its attempts again.
    retry(program.id)
    assert program.run() == SUSPENDED
    ojs.advance(timedelta(minutes=2))
    assert program.run() == COMPLETED
    assert len(charge.made) == 5


def test_the_error_of_a_step_is_of_the_class_that_its_function_raised(ojs: TestContext) -> None:
    caught: list[Exception] = []
    undo = Calls(fails=1)

    def fulfil(ctx: django_ojs.JobContext) -> None:
        try:
            steps.run("charge", Calls(fails=3), retry=django_ojs.RetryPolicy(max_attempts=1))
        except ValueError as error:
            caught.append(error)
        steps.run("undo", undo)

    program = Program(ojs, fulfil)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert [type(error).__name__ for error in caught] == ["StepFailed_ValueError"] * 2
    assert all(isinstance(error, steps.StepFailed) for error in caught)
    assert len({str(error) for error in caught}) == 1


@pytest.mark.parametrize("error", [ValidationError("not valid"), InvalidRequest("not valid")])
def test_the_error_of_a_step_has_its_message_whatever_its_class(
    ojs: TestContext, error: Exception
) -> None:
    def fails() -> None:
        raise error

    once = django_ojs.RetryPolicy(max_attempts=1)
    program = Program(ojs, lambda ctx: steps.run("charge", fails, retry=once))
    assert program.run() == Drained(discarded=1)
    stored = program.job.error
    assert stored["type"] == f"StepFailed_{type(error).__name__}"
    assert stored["message"] == f"{error} (the step 'charge')"


def test_a_handler_that_catches_the_last_error_of_its_last_step_completes(
    ojs: TestContext,
) -> None:
    def fulfil(ctx: django_ojs.JobContext) -> Any:
        try:
            steps.run("charge", Calls(fails=9), retry=THRICE)
        except steps.StepFailed:
            return "not charged"

    program = Program(ojs, fulfil)
    for _ in range(2):
        assert program.run() == SUSPENDED
        ojs.advance(timedelta(minutes=2))
    assert program.run() == COMPLETED
    assert program.job.result == "not charged"
    assert program.history == [("charge", "failed")]


def test_a_handler_response_of_a_step_is_that_of_the_handler(ojs: TestContext) -> None:
    def gone() -> None:
        raise django_ojs.Discard("the order was deleted")

    program = Program(ojs, lambda ctx: steps.run("charge", gone, retry=THRICE))
    assert program.run() == Drained(discarded=1)
    assert program.job.discard_reason == "discard"
    assert not program.job.dead_letter


def test_async_steps_have_attempts_too(ojs: TestContext) -> None:
    made: list[int] = []

    async def charge() -> int:
        made.append(1)
        if len(made) == 1:
            raise ValueError("not this time")
        return 1

    async def fulfil(ctx: django_ojs.JobContext) -> Any:
        return await steps.arun("charge", charge, retry=THRICE)

    program = AsyncProgram(ojs, fulfil)
    assert program.run() == SUSPENDED
    ojs.advance(timedelta(minutes=2))
    assert program.run() == COMPLETED


def test_an_async_handler_that_catches_the_last_error_completes(ojs: TestContext) -> None:
    async def charge() -> None:
        raise ValueError("not this time")

    async def fulfil(ctx: django_ojs.JobContext) -> Any:
        try:
            await steps.arun("charge", charge, retry=THRICE)
        except steps.StepFailed:
            return "not charged"

    program = AsyncProgram(ojs, fulfil)
    for _ in range(2):
        assert program.run() == SUSPENDED
        ojs.advance(timedelta(minutes=2))
    assert program.run() == COMPLETED
    assert program.history == [("charge", "failed")]


def test_a_new_part_of_a_program_is_for_jobs_that_come_there_first(ojs: TestContext) -> None:
    def old(ctx: django_ojs.JobContext) -> Any:
        steps.run("charge", Calls())
        steps.sleep("cool-off", 60)
        return steps.run("ship", Calls(), "shipped")

    def new(ctx: django_ojs.JobContext) -> Any:
        steps.run("charge", Calls())
        if steps.version("check"):
            steps.run("check", Calls())
        steps.sleep("cool-off", 60)
        taxed = steps.version("tax", 2)
        return [steps.run("ship", Calls(), "shipped"), taxed, steps.version("check")]

    asleep = Program(ojs, old)
    asleep.run()
    asleep.change(new)
    later = Program(ojs, new)
    later.run()
    ojs.advance(timedelta(minutes=2))
    assert ojs.drain() == Drained(completed=2)
    assert asleep.job.result == ["shipped", 2, 0]
    assert later.job.result == ["shipped", 2, 1]
    assert [name for name, _ in later.history] == [
        *("charge", "check", "check", "cool-off", "tax", "ship"),
    ]

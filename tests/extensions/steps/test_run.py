"""`steps.run`: what is stored is not done again, and the program must stay as it was."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.steps.models import Step
from django_ojs.operations.fetch import fetch
from django_ojs.operations.retry import retry
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import ClaimLost
from django_ojs.storage import transitions
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import AsyncProgram, AtomicProgram, Calls, Program

pytestmark = pytest.mark.django_db


def test_a_step_that_is_stored_is_not_done_again(ojs: TestContext) -> None:
    charge, ship = Calls(), Calls(fails=2)

    def fulfil(ctx: django_ojs.JobContext) -> Any:
        payment = steps.run("charge", charge, {"amount": 3})
        return [payment, steps.run("ship", ship, 7)]

    program = Program(ojs, fulfil)
    assert program.run(with_retries=True) == Drained(retryable=2, completed=1)
    assert program.job.result == [{"amount": 3}, 7]
    assert charge.made == [{"amount": 3}]
    assert ship.made == [7, 7, 7]
    assert program.history == [("charge", "done"), ("ship", "done")]
    assert [step.run for step in program.steps] == [1, 3]


def test_a_replay_reads_the_history_once(ojs: TestContext, django_assert_num_queries: Any) -> None:
    counts: list[int] = []

    def many(ctx: django_ojs.JobContext) -> None:
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        with CaptureQueriesContext(
            connection,
        ) as queries:
            for number in range(50):
                assert steps.run("step", Calls(), number) == number
        counts.append(len(queries))
        if len(counts) == 1:
            raise ValueError("again")

    program = Program(ojs, many)
    program.run(with_retries=True)
    assert counts == [50, 1]
    assert [name for name, _ in program.history[:3]] == ["step", "step#2", "step#3"]


def test_a_run_gets_what_a_replay_gets(ojs: TestContext) -> None:
    values: list[Any] = []

    def returns(ctx: django_ojs.JobContext) -> None:
        values.append(steps.run("pair", lambda: {"pair": (1, 2)}))
        if len(values) == 1:
            raise ValueError("again")

    Program(ojs, returns).run(with_retries=True)
    assert values == [{"pair": [1, 2]}, {"pair": [1, 2]}]


@pytest.mark.parametrize("value", [{1, 2}, "x" * (1024 * 1024)], ids=["no JSON", "too large"])
def test_a_result_that_cannot_be_stored_fails_the_job_for_good(
    ojs: TestContext, value: Any
) -> None:
    called = Calls()

    def bad(ctx: django_ojs.JobContext) -> None:
        called(1)
        steps.run("bad", lambda: value)

    program = Program(ojs, bad)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "the step 'bad', whose effects remain" in program.job.error["message"]
    assert called.made == [1]


def test_a_step_knows_its_key_in_each_run(ojs: TestContext) -> None:
    keys: list[str] = []

    def charge() -> None:
        keys.append(steps.idempotency_key())
        if len(keys) == 1:
            raise ValueError("the answer is lost")

    program = Program(ojs, lambda ctx: steps.run("charge", charge))
    program.run(with_retries=True)
    assert keys == [f"{program.id}:charge"] * 2
    with pytest.raises(steps.StepError, match="in the function of a step"):
        steps.idempotency_key()


def test_a_program_that_takes_another_step_stops_and_goes_on_after_the_mend(
    ojs: TestContext,
) -> None:
    ship = Calls(fails=1)

    def old(ctx: django_ojs.JobContext) -> Any:
        steps.run("charge", Calls(), 1)
        return steps.run("ship", ship, 2)

    def new(ctx: django_ojs.JobContext) -> Any:
        steps.run("check", Calls(), 1)
        return steps.run("ship", ship, 2)

    program = Program(ojs, old)
    assert program.run() == Drained(retryable=1)
    program.change(new)
    assert program.run(with_retries=True) == Drained(discarded=1)
    error = program.job.error
    assert error["type"] == "ProgramChanged"
    assert "'check' (run)" in error["message"]
    assert "'charge' (run)" in error["message"]
    program.change(old)
    retry(program.id)
    assert program.run() == Drained(completed=1)
    assert ship.made == [2, 2]


def test_a_program_that_leaves_a_step_out_stops(ojs: TestContext) -> None:
    def old(ctx: django_ojs.JobContext) -> None:
        steps.run("charge", Calls())
        steps.run("ship", Calls())
        raise ValueError("again")

    program = Program(ojs, old)
    program.run()
    program.change(lambda ctx: steps.run("charge", Calls()))
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "'ship' comes next" in program.job.error["message"]


def test_a_program_that_catches_the_error_of_a_change_stops_too(ojs: TestContext) -> None:
    def old(ctx: django_ojs.JobContext) -> None:
        steps.run("charge", Calls())
        raise ValueError("again")

    def new(ctx: django_ojs.JobContext) -> None:
        try:
            steps.run("other", Calls())
        except Exception:
            return

    program = Program(ojs, old)
    program.run()
    program.change(new)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert program.job.error["type"] == "ProgramChanged"


def test_a_failed_step_that_the_handler_catches_fails_in_each_replay(ojs: TestContext) -> None:
    charge, undo = Calls(fails=1), Calls(fails=1)
    raised: list[str] = []

    def fulfil(ctx: django_ojs.JobContext) -> Any:
        try:
            return steps.run("charge", charge)
        except ValueError as error:
            raised.append(str(error))
            return steps.run("undo", undo, "undone")

    program = Program(ojs, fulfil)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.job.result == "undone"
    assert len(charge.made) == 1
    assert raised == ["not this time", "not this time (the step 'charge')"]
    assert program.history == [("charge", "failed"), ("undo", "done")]


def test_a_rejected_result_that_the_handler_catches_is_rejected_in_each_replay(
    ojs: TestContext,
) -> None:
    after, caught = Calls(fails=1), list[str]()

    def goes_on(ctx: django_ojs.JobContext) -> None:
        try:
            steps.run("bad", lambda: {1, 2})
        except Exception as error:
            caught.append(str(error))
        steps.run("good", Calls())
        steps.run("after", after)

    program = Program(ojs, goes_on)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.history == [("bad", "failed"), ("good", "done"), ("after", "done")]
    assert ["whose effects remain" in text for text in caught] == [True, True]


def test_two_steps_at_the_same_time_are_refused(ojs: TestContext) -> None:
    async def both(ctx: django_ojs.JobContext) -> None:
        async def nothing() -> None:
            await asyncio.sleep(0)

        await asyncio.gather(steps.arun("one", nothing), steps.arun("two", nothing))

    program = AsyncProgram(ojs, both)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "'two' begins while 'one' is not done" in program.job.error["message"]


def test_a_step_in_a_step_is_refused(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.run("one", lambda: steps.run("two", Calls())))
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "'two' begins while 'one' is not done" in program.job.error["message"]


def test_a_step_on_another_thread_is_refused(ojs: TestContext) -> None:
    raised: list[BaseException] = []

    def other() -> None:
        try:
            steps.run("one", Calls())
        except BaseException as error:
            raised.append(error)

    def threaded(ctx: django_ojs.JobContext) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    Program(ojs, threaded).run()
    assert "the handler of a job" in str(raised[0])


def test_async_handlers_take_the_same_steps(ojs: TestContext) -> None:
    made: list[int] = []

    async def charge(number: int) -> int:
        made.append(number)
        return number

    async def fulfil(ctx: django_ojs.JobContext) -> Any:
        results = [await steps.arun("charge", charge, number) for number in range(3)]
        if len(made) == 3 and ctx.attempt == 1:
            raise ValueError("again")
        return results

    program = AsyncProgram(ojs, fulfil)
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.job.result == [0, 1, 2]
    assert made == [0, 1, 2]


def test_an_async_function_needs_the_async_twin(ojs: TestContext) -> None:
    async def charge() -> None: ...

    program = Program(ojs, lambda ctx: steps.run("charge", charge))
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "await steps.arun" in program.job.error["message"]


def test_a_step_in_a_transaction_of_the_handler_is_refused_before_it_is_done(
    ojs: TestContext,
) -> None:
    charge = Calls()

    def careless(ctx: django_ojs.JobContext) -> None:
        with transaction.atomic():
            steps.run("charge", charge)

    program = Program(ojs, careless)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "in a transaction of the handler" in program.job.error["message"]
    assert charge.made == []


def test_an_atomic_handler_takes_no_steps(ojs: TestContext) -> None:
    charge = Calls()
    program = AtomicProgram(ojs, lambda ctx: steps.run("charge", charge))
    assert program.run() == Drained(discarded=1)
    assert "atomic=True takes no steps" in program.job.error["message"]
    assert charge.made == []


def test_a_checkpoint_and_steps_are_refused_together(ojs: TestContext) -> None:
    def both(ctx: django_ojs.JobContext) -> None:
        if ctx.attempt == 1:
            ctx.checkpoint({"row": 1})
            raise ValueError("again")
        steps.run("charge", Calls())

    program = Program(ojs, both)
    assert program.run(with_retries=True) == Drained(retryable=1, discarded=1)
    assert "saved a checkpoint" in program.job.error["message"]


def test_a_run_that_has_lost_its_job_stores_no_step_and_begins_none(ojs: TestContext) -> None:
    later = Calls()
    raised: list[BaseException] = []

    def loses(ctx: django_ojs.JobContext) -> None:
        def effect() -> None:
            rescue.rescue([str(ctx.job.worker_id)])
            fetch(["default"], count=1, worker_id="another", pool=None)

        for function in (effect, later):
            try:
                steps.run("step", function)
            except ClaimLost as error:
                raised.append(error)

    program = Program(ojs, loses)
    program.run()
    assert len(raised) == 2
    assert later.made == []
    assert program.steps == []
    assert transitions.get(program.id).worker_id == "another"


@override_settings(OJS={"MAX_STEPS": 2})
def test_a_job_takes_at_most_so_many_steps(ojs: TestContext) -> None:
    def loop(ctx: django_ojs.JobContext) -> None:
        while True:
            steps.run("step", Calls())

    program = Program(ojs, loop)
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "at most 2 steps" in program.job.error["message"]


@pytest.mark.parametrize("name", ["", "a#2", "x" * 201])
def test_the_names_of_steps(ojs: TestContext, name: str) -> None:
    program = Program(ojs, lambda ctx: steps.run(name, Calls()))
    assert program.run(with_retries=True) == Drained(discarded=1)
    assert "The name of a step" in program.job.error["message"]


def test_a_job_that_is_not_stored_takes_no_steps(ojs: TestContext) -> None:
    from tests.testapp import steps_jobs

    steps_jobs.program = lambda ctx: steps.run("one", Calls())
    with pytest.raises(steps.StepError, match="a job that is stored"):
        ojs.perform(steps_jobs.run_program)


def test_the_steps_of_a_job_end_with_its_row(ojs: TestContext) -> None:
    from django_ojs.operations.delete import delete

    program = Program(ojs, lambda ctx: steps.run("one", Calls()))
    program.run()
    delete(program.id)
    assert not Step.objects.filter(job_id=program.id).exists()

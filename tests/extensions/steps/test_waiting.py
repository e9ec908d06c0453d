"""`sleep`, `wait` and `signal`: a job that waits is one scheduled row, and is woken once."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

import django_ojs
from django_ojs import testing
from django_ojs.extensions import steps
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.steps.models import StepSignal
from django_ojs.models import Attempt
from django_ojs.operations import run_now
from django_ojs.operations.cancel import cancel
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import AsyncProgram, Calls, Program
from tests.testapp import steps_jobs

pytestmark = pytest.mark.django_db

SUSPENDED = Drained(suspended=1)
COMPLETED = Drained(completed=1)


def waits(ctx: django_ojs.JobContext) -> Any:
    """Wait for a parcel, and return what it says."""
    return steps.wait("packed", "order-7", timeout=timedelta(days=14))


def test_a_sleeper_is_scheduled_and_holds_nothing(ojs: TestContext) -> None:
    before, after = Calls(), Calls()

    def sleeps(ctx: django_ojs.JobContext) -> int:
        steps.run("before", before)
        steps.sleep("cool-off", timedelta(days=2))
        steps.run("after", after)
        return ctx.spent

    program = Program(ojs, sleeps)
    assert program.run() == SUSPENDED
    job = program.job
    assert (job.state, job.worker_id, job.lease_until) == ("scheduled", None, None)
    assert timedelta(days=1, hours=23) < job.due_at - timezone.now() <= timedelta(days=2)
    assert not Attempt.objects.filter(job_id=program.id).exists()
    assert program.history == [("before", "done"), ("cool-off", "waiting")]
    ojs.advance(timedelta(days=1))
    assert program.run() == Drained()
    ojs.advance(timedelta(days=1))
    assert program.run() == COMPLETED
    job = program.job
    assert (job.result, job.attempt, job.spent) == (1, 2, 1)
    assert len(before.made) == len(after.made) == 1
    assert program.history[1] == ("cool-off", "done")


@override_settings(OJS={"KEEP_EVENTS": ["job.*"]})
def test_the_events_show_both_transitions_in_order(ojs: TestContext) -> None:
    program = Program(ojs, waits)
    program.run()
    events = Event.objects.filter(subject=str(program.id)).order_by("id")
    assert list(events.values_list("type", flat=True)) == [
        "job.enqueued",
        "job.started",
        "job.enqueued",
        "job.scheduled",
    ]


def test_a_job_may_sleep_until_a_time(ojs: TestContext) -> None:
    until = timezone.now() + timedelta(days=300)
    program = Program(ojs, lambda ctx: steps.sleep("night", until))
    program.run()
    assert program.job.due_at == until
    past = Program(ojs, lambda ctx: steps.sleep("night", datetime(2020, 1, 1, tzinfo=UTC)))
    assert past.run() == COMPLETED
    assert past.history == [("night", "done")]


def test_more_suspensions_than_attempts_spend_none(ojs: TestContext) -> None:
    def naps(ctx: django_ojs.JobContext) -> int:
        for _ in range(8):
            steps.sleep("nap", timedelta(minutes=1))
        return ctx.spent

    program = Program(ojs, naps)
    for _ in range(8):
        assert program.run() == SUSPENDED
        ojs.advance(timedelta(minutes=2))
    assert program.run() == COMPLETED
    job = program.job
    assert (job.result, job.attempt, job.max_attempts) == (1, 9, 5)
    assert program.history[1][0] == "nap#2"


def test_an_operator_wakes_a_sleeper(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.sleep("cool-off", timedelta(days=2)))
    program.run()
    run_now.run_now(program.id)
    assert program.run() == COMPLETED


def test_a_signal_wakes_the_job_that_waits_for_it(ojs: TestContext) -> None:
    program, other = Program(ojs, waits), Program(ojs, waits)
    assert ojs.drain() == Drained(suspended=2)
    steps.signal("packed", "order-8", 1)
    steps.signal("shipped", "order-7", 2)
    assert program.run() == Drained()
    steps.signal("packed", "order-7", {"parts": [1, 2]})
    assert program.job.state == "available"
    assert ojs.drain() == Drained(completed=2)
    assert program.job.result == other.job.result == {"parts": [1, 2]}


def test_a_signal_before_its_waiter_is_kept(ojs: TestContext) -> None:
    steps.signal("packed", "order-7", None)
    program = Program(ojs, waits)
    assert program.run() == COMPLETED
    (step,) = program.steps
    assert (step.outcome, step.value, step.signal_id is None) == ("done", None, False)


def test_each_signal_comes_once_to_a_job_that_waits_in_a_loop(ojs: TestContext) -> None:
    def collects(ctx: django_ojs.JobContext) -> list[Any]:
        return [steps.wait("packed", "order-7") for _ in range(3)]

    program = Program(ojs, collects)
    steps.signal("packed", "order-7", "first")
    assert program.run() == SUSPENDED
    steps.signal("packed", "order-7", "second")
    assert program.run() == SUSPENDED
    assert program.history == [("packed", "done"), ("packed#2", "done"), ("packed#3", "waiting")]
    steps.signal("packed", "order-7", "third")
    assert program.run() == COMPLETED
    assert program.job.result == ["first", "second", "third"]


def test_a_wait_that_timed_out_has_timed_out_in_each_run(ojs: TestContext) -> None:
    after = Calls(fails=1)

    def gives_up(ctx: django_ojs.JobContext) -> str:
        try:
            payload: str = steps.wait("packed", "order-7", timeout=timedelta(days=1))
        except steps.WaitTimedOut:
            payload = "none"
        steps.run("after", after)
        return payload

    program = Program(ojs, gives_up)
    assert program.run() == SUSPENDED
    ojs.advance(timedelta(days=1, seconds=1))
    assert program.run() == Drained(retryable=1)
    assert program.history == [("packed", "timed_out")]
    steps.signal("packed", "order-7", "too late")
    assert program.run(with_retries=True) == COMPLETED
    assert program.job.result == "none"


def test_a_signal_is_kept_for_the_wait_after_the_one_that_timed_out(ojs: TestContext) -> None:
    def tries(ctx: django_ojs.JobContext) -> list[str]:
        found = []
        for _ in range(2):
            try:
                found.append(steps.wait("packed", "order-7", timeout=60))
            except TimeoutError:
                found.append("none")
        return found

    program = Program(ojs, tries)
    program.run()
    ojs.advance(timedelta(seconds=61))
    assert program.run() == SUSPENDED
    steps.signal("packed", "order-7", "there")
    assert program.run() == COMPLETED
    assert program.job.result == ["none", "there"]


def test_a_wait_that_is_resumed_for_nothing_waits_on(ojs: TestContext) -> None:
    program = Program(ojs, waits)
    program.run()
    due_at = program.job.due_at
    run_now.run_now(program.id)
    assert program.run() == SUSPENDED
    assert program.job.due_at == due_at
    steps.signal("packed", "order-7", 1)
    assert program.run() == COMPLETED


def test_a_drain_runs_sleepers_before_their_time_and_leaves_those_that_wait(
    ojs: TestContext,
) -> None:
    def sleeps(ctx: django_ojs.JobContext) -> Any:
        for _ in range(2):
            steps.sleep("nap", timedelta(days=1))
        return waits(ctx)

    program = Program(ojs, sleeps)
    # Twice it slept, and once it looked for its signal in vain.
    assert program.run(with_scheduled=True) == Drained(suspended=4)
    assert program.history == [("nap", "done"), ("nap#2", "done"), ("packed", "waiting")]
    steps.signal("packed", "order-7", 1)
    assert program.run(with_scheduled=True) == COMPLETED


def test_a_signal_commits_with_the_rows_of_its_sender(ojs: TestContext) -> None:
    program = Program(ojs, waits)
    program.run()
    with transaction.atomic():
        steps.signal("packed", "order-7")
        transaction.set_rollback(True)
    assert program.job.state == "scheduled"
    assert not StepSignal.objects.exists()


def test_a_sleeper_is_cancelled_at_once(ojs: TestContext) -> None:
    program = Program(ojs, waits)
    program.run()
    cancel(program.id)
    assert program.job.state == "cancelled"
    steps.signal("packed", "order-7")
    assert program.run() == Drained()


def test_a_timeout_before_hides_no_cancellation(ojs: TestContext) -> None:
    after = Calls()

    def gives_up(ctx: django_ojs.JobContext) -> None:
        with suppress(steps.WaitTimedOut):
            steps.wait("packed", "order-7", timeout=60)
        steps.run("cancel", lambda: cancel(ctx.job.id) and None)
        steps.run("after", after)

    program = Program(ojs, gives_up)
    program.run()
    ojs.advance(timedelta(seconds=61))
    program.run()
    assert program.job.state == "cancelled"
    assert program.history == [("packed", "timed_out")]
    assert after.made == []


def test_no_handler_catches_a_suspension(ojs: TestContext) -> None:
    caught: list[BaseException] = []

    def careful(ctx: django_ojs.JobContext) -> Any:
        try:
            return steps.wait("packed", "order-7")
        except Exception as error:
            caught.append(error)
            raise

    program = Program(ojs, careful)
    assert program.run() == SUSPENDED
    assert not caught


def test_a_handler_that_catches_everything_is_suspended_too(ojs: TestContext) -> None:
    after = Calls()

    def careless(ctx: django_ojs.JobContext) -> Any:
        with suppress(BaseException):
            steps.sleep("cool-off", 60)
        with suppress(BaseException):
            steps.run("after", after)
        return "done"

    program = Program(ojs, careless)
    assert program.run() == SUSPENDED
    assert after.made == []


def test_a_suspension_in_a_transaction_is_refused(ojs: TestContext) -> None:
    def careless(ctx: django_ojs.JobContext) -> None:
        with transaction.atomic():
            steps.sleep("cool-off", 60)

    program = Program(ojs, careless)
    assert program.run() == Drained(discarded=1)
    assert "in a transaction of the handler" in program.job.error["message"]


def test_a_sleep_that_ends_after_its_job_is_refused(ojs: TestContext) -> None:
    steps_jobs.program = lambda ctx: steps.sleep("cool-off", timedelta(days=3))
    job = steps_jobs.run_program.options(expires_at=timedelta(days=2)).enqueue()
    assert ojs.drain() == Drained(discarded=1)
    message = django_ojs.get_job(job.id).error["message"]
    assert "'cool-off' would wait until" in message
    assert "its job expires at" in message


@override_settings(OJS={"LONGEST_WAIT": "P1D"})
def test_the_longest_wait(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.wait("packed", "order-7"))
    program.run()
    assert program.job.due_at - timezone.now() <= timedelta(days=1)
    longer = Program(ojs, lambda ctx: steps.sleep("cool-off", timedelta(days=2)))
    longer.run()
    assert "the longest is 1 day, 0:00:00 (LONGEST_WAIT)" in longer.job.error["message"]
    date = timezone.now() + timedelta(days=2)
    longer = Program(ojs, lambda ctx: steps.sleep("cool-off", date))
    longer.run()
    assert "the longest is 1 day, 0:00:00 (LONGEST_WAIT)" in longer.job.error["message"]


def test_a_wait_without_a_timeout_ends_with_its_job(ojs: TestContext) -> None:
    steps_jobs.program = lambda ctx: steps.wait("packed", "order-7")
    job = steps_jobs.run_program.options(expires_at=timedelta(days=2)).enqueue()
    assert ojs.drain() == SUSPENDED
    stored = django_ojs.get_job(job.id)
    assert stored.due_at == stored.expires_at
    ojs.advance(timedelta(days=3))
    assert django_ojs.get_job(job.id).state == "discarded"


def test_async_handlers_sleep_and_wait(ojs: TestContext) -> None:
    async def waits(ctx: django_ojs.JobContext) -> Any:
        await steps.asleep("cool-off", 60)
        return await steps.await_signal("packed", "order-7")

    program = AsyncProgram(ojs, waits)
    assert program.run() == SUSPENDED
    ojs.advance(timedelta(seconds=61))
    assert program.run() == SUSPENDED
    steps.signal("packed", "order-7", 5)
    assert program.run() == COMPLETED
    assert program.job.result == 5


@pytest.mark.parametrize(
    ("name", "key", "payload", "error"),
    [
        ("", "key", None, InvalidRequest),
        ("name", "k" * 201, None, InvalidRequest),
        ("name", "key", {1, 2}, InvalidRequest),
        ("name", "key", "x" * 11_000_000, PayloadTooLarge),
    ],
)
def test_a_signal_is_checked(name: str, key: str, payload: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        steps.signal(name, key, payload)


@pytest.mark.parametrize("key", [7, "", "k" * 201, "a\0b"])
def test_the_key_of_a_wait_is_checked(ojs: TestContext, key: Any) -> None:
    program = Program(ojs, lambda ctx: steps.wait("packed", key))
    assert program.run() == Drained(discarded=1)
    assert "The key of a signal is a text of 1 to 200" in program.job.error["message"]
    assert program.history == []


def test_inline_runs_to_the_next_wait() -> None:
    steps_jobs.program = waits
    with testing.inline() as ojs:
        job = steps_jobs.run_program.enqueue()
        ojs.assert_job_state(job, "scheduled")
        steps.signal("packed", "order-7", 3)
        assert ojs.drain() == COMPLETED
    assert django_ojs.get_job(job.id).result == 3

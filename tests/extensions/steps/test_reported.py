"""What users of other engines have reported: each kind is a test, here or beside this file."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.steps import store
from django_ojs.extensions.steps.models import Step, StepKind
from django_ojs.handlers import registry
from django_ojs.operations import fail, queues
from django_ojs.operations.fetch import fetch
from django_ojs.operations.workers import rescue
from django_ojs.storage import database
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim
from django_ojs.testing import Drained, TestContext
from tests.extensions.steps.programs import Calls, Program

pytestmark = pytest.mark.django_db(transaction=True)

SUSPENDED = Drained(suspended=1)
COMPLETED = Drained(completed=1)
SOON = django_ojs.RetryPolicy(max_attempts=3, initial_interval="PT1M", jitter=False)


def test_null_is_a_payload_and_no_timeout(ojs: TestContext) -> None:
    """In each run, as the signal that a job waits for, and as one that was there before."""
    after = Calls(fails=1)

    def waits(ctx: django_ojs.JobContext) -> list[Any]:
        found = [steps.wait("packed", "order-7", timeout=60) for _ in range(2)]
        steps.run("after", after)
        return ["came", *found]

    program = Program(ojs, waits)
    assert program.run() == SUSPENDED
    steps.signal("packed", "order-7", None)
    steps.signal("packed", "order-7")
    assert program.run(with_retries=True) == Drained(retryable=1, completed=1)
    assert program.job.result == ["came", None, None]
    assert program.history == [("packed", "done"), ("packed#2", "done"), ("after", "done")]


def test_a_sleeper_of_an_older_program_is_taken_up(ojs: TestContext) -> None:
    """By whatever process has a handler of its type; where none has, the job is postponed."""
    charge, ship = Calls(), Calls()

    def old(ctx: django_ojs.JobContext) -> None:
        steps.run("charge", charge)
        steps.sleep("cool-off", timedelta(days=2))

    def new(ctx: django_ojs.JobContext) -> str:
        old(ctx)
        steps.run("ship", ship)
        return "by the new one"

    program = Program(ojs, old)
    program.run()
    ojs.advance(timedelta(days=2))
    handler = registry.handlers.pop("steps.program")
    try:
        assert program.run() == Drained(without_handler=1)
    finally:
        registry.add(handler)
    program.change(new)
    ojs.advance(timedelta(hours=1))
    assert program.run() == COMPLETED
    assert program.job.result == "by the new one"
    assert (len(charge.made), len(ship.made)) == (1, 1)


def test_a_run_that_was_lost_between_two_steps_blocks_no_queue_with_one_place(
    ojs: TestContext,
) -> None:
    queues.configure("default", {"concurrency": 1})
    first = Calls()

    def two(ctx: django_ojs.JobContext) -> None:
        if ctx.job.id == lost.id:
            steps.run("first", first)
        steps.run("second", Calls())

    lost = Program(ojs, two)
    behind = Program(ojs, two)
    (job,) = fetch(["default"], count=1, worker_id="dies", pool=None)
    assert job.started_at is not None
    store.insert(job, first_of(job, job.started_at))
    assert fetch(["default"], count=1, worker_id="other", pool=None) == []
    rescue.rescue(["dies"])
    assert ojs.drain() == Drained(completed=2)
    assert lost.history == [("first", "done"), ("second", "done")]
    assert behind.history == [("second", "done")]
    assert first.made == []


def first_of(job: Claimed, now: datetime) -> Step:
    return Step(
        job_id=job.id, number=0, name="first", kind=StepKind.RUN, run=job.run, started_at=now
    )


def test_the_attempts_of_a_step_outlive_the_process(ojs: TestContext) -> None:
    """They are in its row. A run that dies with its worker is no attempt of the step."""
    charge = Calls(fails=2)
    program = Program(ojs, lambda ctx: steps.run("charge", charge, retry=SOON))
    assert program.run() == SUSPENDED
    ojs.advance(timedelta(minutes=2))
    (job,) = fetch(["default"], count=1, worker_id="dies", pool=None)
    rescue.rescue(["dies"])
    assert (job.attempt, program.steps[0].attempts) == (2, 1)
    assert program.run() == SUSPENDED
    assert program.steps[0].attempts == 2
    ojs.advance(timedelta(minutes=3))
    assert program.run() == COMPLETED
    assert program.steps[0].attempts == 3


def test_a_worker_that_stops_takes_no_attempt_from_a_run(ojs: TestContext) -> None:
    charge = Calls()

    def fulfil(ctx: django_ojs.JobContext) -> int:
        steps.run("charge", charge)
        return ctx.spent

    program = Program(ojs, fulfil)
    for _ in range(program.job.max_attempts + 2):
        (job,) = fetch(["default"], count=1, worker_id="stops", pool=None)
        fail.requeue(job.id, claim=Claim(worker_id="stops", run=job.run))
    assert program.run() == COMPLETED
    ended = program.job
    assert (ended.result, ended.attempt) == (1, ended.max_attempts + 3)


def test_a_step_is_stored_when_the_database_is_back(
    ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its effect is there: the worker does not end with its connection."""
    charge, failures = Calls(), [OperationalError("gone"), OperationalError("gone")]
    insert = store.insert

    def flaky(*args: Any) -> None:
        if failures:
            raise failures.pop()
        insert(*args)

    monkeypatch.setattr(store, "insert", flaky)
    monkeypatch.setattr(database, "is_unavailable", lambda error: "gone" in str(error))
    program = Program(ojs, lambda ctx: steps.run("charge", charge))
    assert program.run() == COMPLETED
    assert len(charge.made) == 1
    assert program.history == [("charge", "done")]

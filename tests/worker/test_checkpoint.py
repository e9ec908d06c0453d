"""Checkpoints that handlers save: with their rows in one commit, and never for a lost claim."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs.context import JobContext
from django_ojs.extensions.checkpoints import worker as checkpoint
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.extensions.checkpoints.operations import latest
from django_ojs.operations import cancel, fail, fetch
from django_ojs.spec.errors import Conflict
from django_ojs.storage.claimed_job import Claimed
from django_ojs.worker.executor import Executor
from django_ojs.worker.in_flight import Run
from tests.factories import active, read
from tests.testapp.models import Thing
from tests.worker.parts import Outcome, Outcomes, handler

pytestmark = pytest.mark.django_db(transaction=True)


def executed(outcomes: Outcomes, job: Claimed, function: Callable[..., Any]) -> Outcome:
    made = handler(function)
    context = JobContext(job, is_async=made.is_async, extensions={"checkpoint": checkpoint.save})
    executor = Executor(1, outcomes)
    try:
        executor.submit([Run(job, made, context, 60.0)])
        return outcomes.next()
    finally:
        executor.close()


def state(job: Claimed) -> Any:
    found = latest(read(job.id))
    return None if found is None else found.state


@pytest.mark.requirement("DUR-R002")
def test_a_checkpoint_is_stored_when_the_call_returns(outcomes: Outcomes) -> None:
    job = active()

    async def function(ctx: JobContext) -> Any:
        await ctx.acheckpoint({"row": 1})
        return ctx.last_checkpoint

    def sync(ctx: JobContext) -> Any:
        ctx.checkpoint({"row": 2})
        seen.append(state(job))

    seen: list[Any] = []
    assert executed(outcomes, job, function).result is None
    assert state(job) == {"row": 1}
    assert executed(outcomes, job, sync).error is None
    assert seen == [{"row": 2}]


def test_a_checkpoint_commits_with_the_rows_of_the_handler_or_not_at_all(
    outcomes: Outcomes,
) -> None:
    job = active()

    def function(ctx: JobContext) -> None:
        with transaction.atomic():
            Thing.objects.create(name="kept")
            ctx.checkpoint({"row": 1})
        with transaction.atomic():
            Thing.objects.create(name="undone")
            ctx.checkpoint({"row": 2})
            raise ValueError

    assert isinstance(executed(outcomes, job, function).error, ValueError)
    assert [thing.name for thing in Thing.objects.all()] == ["kept"]
    assert state(job) == {"row": 1}


@pytest.mark.postgresql
def test_a_checkpoint_in_a_transaction_locks_no_job(outcomes: Outcomes) -> None:
    job = active()

    def function(ctx: JobContext) -> None:
        with transaction.atomic():
            for row in range(2):
                ctx.checkpoint({"row": row})
            copy = connection.copy()
            try:
                with copy.cursor() as cursor:
                    # A beat could lock the job now.
                    cursor.execute("SELECT id FROM ojs_job FOR UPDATE NOWAIT")
            finally:
                copy.close()

    assert executed(outcomes, job, function).error is None
    assert state(job) == {"row": 1}


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_run_that_lost_its_claim_gets_a_conflict_and_stores_nothing(
    outcomes: Outcomes, in_transaction: bool
) -> None:
    job = active()

    def function(ctx: JobContext) -> bool:
        cancel.cancel(job.id)
        outer = transaction.atomic() if in_transaction else nullcontext()
        with outer, pytest.raises(Conflict):
            ctx.checkpoint({"row": 1})
        return ctx.cancelled

    assert executed(outcomes, job, function).result is True
    assert not Checkpoint.objects.exists()


@pytest.mark.postgresql
def test_the_open_transaction_of_an_earlier_run_delays_no_outcome(outcomes: Outcomes) -> None:
    job = active()
    checkpoint.save(job, {"row": 1})
    copy = connection.copy()
    try:
        copy.set_autocommit(False)
        with copy.cursor() as cursor:
            cursor.execute("UPDATE ojs_checkpoint SET sequence = 9")
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        cancel.cancel(job.id)
        assert read(job.id).state == "cancelled"
        assert state(job) is None
    finally:
        copy.close()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")


def test_the_next_run_finds_it_in_its_context(outcomes: Outcomes) -> None:
    job = active()

    def function(ctx: JobContext) -> Any:
        if ctx.last_checkpoint is None:
            ctx.checkpoint([1, 2])
        return ctx.last_checkpoint

    assert executed(outcomes, job, function).result is None
    fail.requeue(job.id)
    (again,) = fetch.fetch([job.queue])
    assert executed(outcomes, again, function).result == [1, 2]

"""Progress that handlers report: written outside their transactions, before the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs.context import JobContext
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.operations import cancel
from django_ojs.spec.progress import Report
from django_ojs.storage import database
from django_ojs.storage.claimed_job import Claimed
from django_ojs.worker import progress
from django_ojs.worker.executor import Executor
from django_ojs.worker.in_flight import Run
from tests.factories import active, read
from tests.testapp.models import Thing
from tests.worker.parts import Outcome, Outcomes, handler

pytestmark = pytest.mark.django_db(transaction=True)


def executed(
    outcomes: Outcomes, job: Claimed, function: Callable[..., Any], *, atomic: bool = False
) -> Outcome:
    made = handler(function, atomic=atomic)
    context = JobContext(job, is_async=made.is_async, report=progress.report)
    executor = Executor(1, outcomes)
    try:
        executor.submit([Run(job, made, context, 60.0)])
        return outcomes.next()
    finally:
        executor.close()


def stored(job: Claimed) -> dict[str, Any]:
    return read(job.id).progress or {}


@pytest.mark.parametrize("fails", [False, True])
def test_the_last_report_of_a_handler_is_stored_before_its_outcome(
    outcomes: Outcomes, fails: bool
) -> None:
    job = active()

    def function(ctx: JobContext) -> None:
        for row in range(1, 11):
            ctx.progress(row / 10, data={"row": row})
        if fails:
            raise ValueError

    outcome = executed(outcomes, job, function)
    assert (outcome.error is not None) is fails
    assert (stored(job)["progress"], stored(job)["data"]) == (1.0, {"row": 10})
    assert stored(job)["run"] == job.run


def test_a_coroutine_reports_too_and_its_last_word_is_kept(outcomes: Outcomes) -> None:
    job = active()

    async def function(ctx: JobContext) -> None:
        await ctx.aprogress(0.1)
        await ctx.aprogress(0.9, checkpoint={"row": 9})
        await asyncio.sleep(0)

    assert executed(outcomes, job, function).error is None
    assert stored(job)["progress"] == 0.9
    assert checkpoint.read(job.id).state == {"row": 9}


@pytest.mark.postgresql
def test_the_checkpoint_of_a_report_commits_with_the_transaction_of_the_handler() -> None:
    job = active()
    with transaction.atomic():
        # The transaction holds the row of the checkpoint from the first report on.
        for row in (1, 2):
            assert progress.report(job, Report(progress=0.5, checkpoint={"row": row}))
    assert checkpoint.read(job.id).state == {"row": 2}
    with transaction.atomic():
        assert progress.report(job, Report(progress=0.9, checkpoint={"row": 9}))
        transaction.set_rollback(True)
    assert checkpoint.read(job.id).state == {"row": 2}
    assert stored(job)["progress"] == 0.9


@pytest.mark.postgresql
def test_a_report_is_stored_without_a_checkpoint_that_is_locked(monkeypatch: Any) -> None:
    monkeypatch.setattr(database, "RETRIES", 1)
    job = active()
    checkpoint.save(job.id, {"row": 1})
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("UPDATE ojs_checkpoint SET sequence = 9")
        assert progress.report(job, Report(progress=0.5, checkpoint={"row": 2}))
    finally:
        other.close()
    assert stored(job)["progress"] == 0.5
    assert checkpoint.read(job.id).state == {"row": 1}


@pytest.mark.postgresql
def test_others_see_the_progress_of_a_handler_whose_transaction_is_open(outcomes: Outcomes) -> None:
    job = active()
    seen: list[Any] = []

    def function(ctx: JobContext) -> None:
        Thing.objects.create(name="undone")
        ctx.progress(0.5)
        copy = connection.copy()
        try:
            with copy.cursor() as cursor:
                # And nobody waits for it: a beat could lock the job now.
                cursor.execute("SELECT progress FROM ojs_job FOR UPDATE NOWAIT")
                seen.append(cursor.fetchone())
        finally:
            copy.close()
        raise ValueError

    executed(outcomes, job, function, atomic=True)
    assert seen != [(None,)]
    assert stored(job)["progress"] == 0.5
    assert not Thing.objects.exists()


@pytest.mark.sqlite
def test_on_sqlite_progress_shares_the_transaction_it_is_reported_in(outcomes: Outcomes) -> None:
    job = active()

    def function(ctx: JobContext) -> None:
        Thing.objects.create(name="done")
        ctx.progress(0.5)

    assert executed(outcomes, job, function, atomic=True).committed
    assert stored(job)["progress"] == 0.5


def test_a_handler_learns_from_its_report_that_the_job_is_not_its_own_any_more(
    outcomes: Outcomes,
) -> None:
    job = active()

    def function(ctx: JobContext) -> list[bool]:
        cancel.cancel(job.id)
        return [ctx.progress(0.5), ctx.cancelled]

    assert executed(outcomes, job, function).result == [False, True]
    assert stored(job) == {}


def test_a_report_of_a_job_that_was_deleted_harms_nothing() -> None:
    job = active()
    read(job.id).delete()
    assert progress.report(job, Report(progress=0.5)) is False
    with transaction.atomic():
        assert progress.report(job, Report(progress=0.5)) is False

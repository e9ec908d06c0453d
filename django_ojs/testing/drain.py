"""Run the jobs of a test until none is left."""

import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django_ojs.extension import Suspended
from django_ojs.handlers import get_handler
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.states import State
from django_ojs.storage import transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.testing import runner
from django_ojs.testing.injected_errors import Failures
from django_ojs.testing.rows import Rows
from django_ojs.testing.savepoints import savepoint
from django_ojs.worker.job_log import JobLog

_SUSPENDED: Final = "suspended"
_WITHOUT_HANDLER: Final = "without_handler"


@dataclass(frozen=True, kw_only=True)
class Drained:
    """How many runs of a drain left their job in which state.

    A job that failed and was run again counts twice. `suspended` jobs sleep, or wait for something.
    `without_handler` jobs were postponed, as a worker does with a job whose type has no handler.
    """

    completed: int = 0
    retryable: int = 0
    discarded: int = 0
    cancelled: int = 0
    suspended: int = 0
    without_handler: int = 0


class DrainTimeout(AssertionError):
    """A drain did not end: a job may enqueue itself."""


def drain(
    store: Rows,
    failures: Failures,
    *,
    queue: str | None,
    max_jobs: int | None,
    timeout: float,
    with_scheduled: bool,
    with_retries: bool,
) -> Drained:
    """Run jobs until none is available; see `TestContext.drain`."""
    early = [State.SCHEDULED] * with_scheduled + [State.RETRYABLE] * with_retries
    log, ends = JobLog(), Counter[str]()
    ran = Counter[str]()
    woken: dict[UUID, datetime | None] = {}
    end = time.monotonic() + timeout
    while max_jobs is None or ran.total() < max_jobs:
        if time.monotonic() > end:
            raise DrainTimeout(_unfinished(ran, timeout))
        with savepoint():
            job = store.claim(queue, early, woken)
        if job is None:
            break
        ran[job.type] += 1
        ends[_run(store, failures, log, job)] += 1
    return Drained(**{state: ends[state] for state in Drained.__dataclass_fields__})


def _run(store: Rows, failures: Failures, log: JobLog, job: Claimed) -> str:
    """Run a claimed job. Return its state afterwards, or why it has no outcome."""
    handler = get_handler(job.type)
    context = store.context_of(job, is_async=handler is not None and handler.is_async)
    run = runner.new_run(job, handler, context, failures)
    if handler is None:
        log.unknown_type(job.type)
        with savepoint():
            store.postpone(run)
        return _WITHOUT_HANDLER
    started = time.monotonic()
    try:
        try:
            result, committed = runner.call(run, store.complete_atomic)
        except BaseException as error:
            if runner.ends_test(error):
                raise
            failure = runner.failure_of(run, error)
            with savepoint():
                failed = store.fail(run, failure)
            log.failed(run, failure, failed, time.monotonic() - started, error)
        else:
            if isinstance(result, Suspended):
                with savepoint():
                    result.store()
                return _SUSPENDED
            with savepoint():
                store.complete(run, result, committed=committed)
            log.completed([(run, time.monotonic() - started)])
    except (Conflict, JobNotFound):
        log.claim_lost(run)
    if job.marks:
        store.add_next_jobs()
    try:
        return transitions.get(job.id).state
    except JobNotFound:
        return ""  # The handler deleted it.


def _unfinished(ran: Counter[str], timeout: float) -> str:
    types = ", ".join(f"{number} of {type}" for type, number in ran.most_common(3))
    return (
        f"drain() ran {ran.total()} jobs in {timeout:g} seconds and was not done ({types}). Does a "
        "job enqueue itself? max_jobs= limits the jobs of a drain, timeout= its seconds."
    )

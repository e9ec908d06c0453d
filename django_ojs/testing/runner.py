"""Run one job on the thread of the test, as a worker does on one of its own."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync

from django_ojs import context as contexts
from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.handlers import Handler, get_handler, job_types
from django_ojs.operations.enqueue.admission import admit
from django_ojs.options import Request, envelope_of
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.storage.claims import Claimed
from django_ojs.testing.failures import Failures
from django_ojs.testing.memory_store import MemoryStore, admit_in_memory
from django_ojs.testing.savepoints import savepoint, transactions_ended
from django_ojs.worker import executor, handler_call
from django_ojs.worker.in_flight import Run


def new_run(
    job: Claimed, handler: Handler[..., Any] | None, context: JobContext, failures: Failures
) -> Run:
    """Return the run of a claimed job, which fails where the test has injected an error."""
    injected = None if handler is None else failures.inject(handler)
    return Run(job, injected, context, timeout=float("inf"))


def call(run: Run, complete: Callable[..., object]) -> tuple[Any, bool]:
    """Run the handler; see `executor.run_handler`. Exceptions are raised."""
    run.begin()
    # As in a worker, what the handler sets there, such as a language, ends with it.
    return copy_context().run(_run_in_context, run, complete)


def _run_in_context(run: Run, complete: Callable[..., object]) -> tuple[Any, bool]:
    contexts.enter(run.context)
    with savepoint():
        return executor.run_handler(run, call=_call, complete=complete)


def _call(run: Run) -> Any:
    with transactions_ended():
        returned = handler_call.call(run)
        if inspect.isawaitable(returned):
            # On this thread, whose connections have the transaction of the test.
            returned = async_to_sync(_awaited)(returned)
    return returned


async def _awaited(returned: Any) -> Any:
    return await returned


def perform(request: Request, failures: Failures, *, in_memory: bool) -> Any:
    """Run a job that is not stored, and return its result. Exceptions are raised."""
    check = admit_in_memory if in_memory else admit
    [envelope] = check([envelope_of(request)], batch=False)
    if envelope is None:
        raise AssertionError("An enqueue middleware dropped the job.")
    envelope.scheduled_at = envelope.expires_at = envelope.unique = None
    envelope.pending = False
    store = MemoryStore()
    store.insert(envelope)
    run = _claimed(store, envelope.id, failures)
    assert run is not None
    return call(run, store.complete_atomic)[0]


def run_inline(store: MemoryStore, job_id: UUID, failures: Failures) -> None:
    """Run a job, whenever it is scheduled, and store its outcome. Exceptions are raised."""
    run = _claimed(store, job_id, failures)
    if run is None:
        return  # It expired before it was enqueued.
    try:
        result, committed = call(run, store.complete_atomic)
    except BaseException as error:
        if not ends_test(error):
            with suppress(Conflict, JobNotFound):
                store.fail(run, failure_of(run, error))
        raise
    # The handler may have cancelled or deleted its own job: as in a worker, the result is ignored.
    with suppress(Conflict, JobNotFound):
        store.complete(run, result, committed=committed)


def _claimed(store: MemoryStore, job_id: UUID, failures: Failures) -> Run | None:
    job = store.claim(None, [State.SCHEDULED], only=job_id)
    if job is None:
        return None
    handler = get_handler(job.type)
    if handler is None:
        known = did_you_mean(job.type, job_types())
        raise LookupError(f"The job type {job.type!r} has no handler here. {known}")
    context = store.context_of(job, is_async=handler.is_async)
    return new_run(job, handler, context, failures)


def ends_test(error: BaseException) -> bool:
    """Whether an exception is for the test run: an interrupt, or one of pytest, such as a skip.

    All others fail the job of the handler that raises them, as in a worker.
    """
    return isinstance(error, KeyboardInterrupt) or any(
        kind.__module__.partition(".")[0] == "_pytest" for kind in type(error).__mro__
    )


def failure_of(run: Run, error: BaseException) -> Failure:
    """Return what a worker reports of an exception."""
    return Failure.from_exception(
        error,
        backtrace=settings().backtraces,
        keep_class=run.handler.keeps_exception_class,
    )

"""Run one job on the thread of the test, as a worker does on one of its own."""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.utils import timezone

from django_ojs import context as contexts
from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.enqueue_options import Request, envelope_of
from django_ojs.handlers import Handler, get_handler
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations.enqueue.admission import admit
from django_ojs.spec import json
from django_ojs.spec.failure import Failure
from django_ojs.storage import database, queue_configs
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.job_row import CLAIMED
from django_ojs.testing.injected_errors import Failures
from django_ojs.testing.recorder import admit_in_memory, recorded
from django_ojs.testing.savepoints import savepoint, transactions_ended
from django_ojs.worker import event_loop, executor, handler_call
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
    # As in a worker, what the handler sets in its context, such as a language, ends with it.
    return copy_context().run(_run_in_context, run, complete)


def _run_in_context(run: Run, complete: Callable[..., object]) -> tuple[Any, bool]:
    contexts.enter(run.context)
    with savepoint():
        if not run.context.is_async:
            return executor.run_handler(run, call=_call, complete=complete)
        try:
            with transactions_ended():
                # It runs on this thread, whose connections have the transaction of the test.
                return async_to_sync(event_loop.run_handler)(run), False
        finally:
            run.context.flush()


def _call(run: Run) -> Any:
    with transactions_ended():
        return handler_call.call(run)


def perform(request: Request, failures: Failures, *, in_memory: bool) -> Any:
    """Run a job that is not stored, and return its result. Exceptions are raised."""
    wanted = [envelope_of(request)]
    if in_memory:
        [envelope] = admit_in_memory(wanted, batch=False)
    else:
        [envelope] = admit(wanted, queue_configs.current(), batch=False)
    if envelope is None:
        raise AssertionError("An enqueue middleware dropped the job.")
    envelope.scheduled_at = envelope.expires_at = envelope.unique = None
    envelope.pending = False
    job = claimed(recorded(envelope).model())
    handler = get_handler(job.type)
    assert handler is not None  # The request was made with it.
    context = JobContext(
        job,
        is_async=handler.is_async,
        report=lambda job, reported: True,
        extensions=context_functions(),
    )
    return call(new_run(job, handler, context, failures), _check_transaction)[0]


def context_functions() -> dict[str, Callable[..., Any]]:
    """Return what extensions do for the context of a handler that runs in a test."""
    functions = dict(registry.context)
    for each in registry.for_tests():
        functions |= each.context
    return functions


def claimed(job: Job) -> Claimed:
    """Return what FETCH would return for the first run of a job that is not stored."""
    first = {"attempt": 1, "run": 1, "started_at": timezone.now()}
    first |= {name: json.dumps(getattr(job, name)) for name in ("args", "meta", "options")}
    return Claimed(tuple(first.get(name, getattr(job, name)) for name in CLAIMED))


def _check_transaction(job_id: UUID, **values: Any) -> None:
    """Take the place of the ACK of an atomic handler, whose job has no row."""
    # The first statement of a worker would raise if the transaction was going to be rolled back.
    database.connection().validate_no_broken_transaction()


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

"""Sentry: the errors of jobs, with their type, queue and attempt, and without their arguments.

`sentry_sdk.init(..., integrations=[OJSIntegration()])` turns it on. It needs the extra `sentry`.
Settings modules import this one: it imports no model.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import sentry_sdk
from sentry_sdk.integrations import Integration
from sentry_sdk.scope import add_global_event_processor
from sentry_sdk.tracing import TransactionSource

from django_ojs.conf import settings
from django_ojs.extension import Extension, Hooks
from django_ojs.hooks import registry
from django_ojs.spec.failure import Discard, Failure, HandlerResponse
from django_ojs.worker import end_callbacks

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

    from django_ojs.context import JobContext
    from django_ojs.worker.in_flight import Run

#: Seconds that the end of a worker process waits for events to be sent.
FLUSH_TIMEOUT: Final = 2.0

LEVELS: Final = ("fatal", "error", "warning", "info", "debug")


class OJSIntegration(Integration):
    """Reports failed runs to Sentry, and isolates the scope of each run."""

    identifier = "django_ojs"

    def __init__(
        self,
        *,
        final_level: str | None = "error",
        retry_level: str | None = "warning",
        fingerprint: bool = True,
        local_variables: bool = False,
    ) -> None:
        """Take the level of runs after which the job ends, and of runs that will be retried.

        Runs whose level is None are not reported. `fingerprint` groups events by job type and error
        type instead of by traceback. `local_variables` sends the local variables of the frames,
        which hold arguments.
        """
        for level in (final_level, retry_level):
            if level is not None and level not in LEVELS:
                raise ValueError(f"A level must be one of {', '.join(LEVELS)}, or None.")
        self.final_level, self.retry_level = final_level, retry_level
        self.fingerprint, self.local_variables = fingerprint, local_variables

    @staticmethod
    def setup_once() -> None:
        """Register the extension; the SDK calls this once in a process."""
        registry.register(SentryExtension())
        add_global_event_processor(_process)
        end_callbacks.register(_flush)

    def report(self, context: "JobContext", error: BaseException, seconds: float) -> None:
        """Report the exception of a run, at a level that depends on what follows the run."""
        # It is not imported at the top, because settings modules import this one.
        from django_ojs.operations import fail
        from django_ojs.worker import handler_call

        stopped = handler_call.was_stopped(context, error)
        if stopped and not handler_call.has_timed_out(context, seconds):
            return  # The run was cancelled, or its worker stopped and returned the job.
        failure = Failure.from_exception(error, backtrace=False)
        retries = fail.decide(context.job, failure).action == "retry"
        if isinstance(error, HandlerResponse) and (retries or isinstance(error, Discard)):
            return  # The handler wanted this.
        level = self.retry_level if retries else self.final_level
        if level is None:
            return
        options: dict[str, Any] = {"level": level, "tags": {"ojs.job.retried": retries}}
        if self.fingerprint:
            options["fingerprint"] = [context.job.type, "timeout" if stopped else failure.type]
        sentry_sdk.capture_exception(error, **options)


class SentryExtension(Extension):
    """Isolates the scope of each run."""

    name = "sentry"
    number = 7

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(around_run=_run)


def _integration() -> OJSIntegration | None:
    # The active client may have been made without this integration.
    return sentry_sdk.get_client().get_integration(OJSIntegration)


def _run(run: "Run", go_on: Callable[[], Any]) -> Any:
    integration = _integration()
    if integration is None:
        return go_on()
    if run.context.is_async:
        return _run_async(integration, run.context, go_on)
    with _scope(integration, run.context):
        return go_on()


async def _run_async(
    integration: OJSIntegration, context: "JobContext", go_on: Callable[[], Any]
) -> Any:
    with _scope(integration, context):
        return await go_on()


@contextmanager
def _scope(integration: OJSIntegration, context: "JobContext") -> Iterator[None]:
    job = context.job
    about = {
        "id": str(job.id),
        "type": job.type,
        "queue": job.queue,
        "attempt": context.attempt,
        "max_attempts": job.max_attempts,
        "worker_id": job.worker_id,
    }
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_context("ojs", about)
        for name in ("id", "type", "queue", "attempt"):
            scope.set_tag(f"ojs.job.{name}", about[name])
        with sentry_sdk.start_transaction(
            op="queue.process", name=job.type, source=TransactionSource.TASK
        ):
            began = time.monotonic()
            try:
                yield
            except BaseException as error:
                # The worker logs the failure, which the SDK would report a second time.
                context.metadata["reported"] = True
                integration.report(context, error, time.monotonic() - began)
                raise


def _process(event: "Event", hint: "Hint") -> "Event | None":
    """Drop events that were reported already, and keep arguments of jobs out of the others."""
    integration = _integration()
    record = hint.get("log_record")
    is_ours = record is not None and record.name.startswith("django_ojs")
    if integration is None or not (is_ours or "ojs" in event.get("contexts", {})):
        return event
    if getattr(record, "reported", False):
        return None
    for stack in (*_values(event, "exception"), *_values(event, "threads")):
        if not settings().log_error_messages and "value" in stack:
            stack["value"] = ""
        if not integration.local_variables:
            for frame in (stack.get("stacktrace") or {}).get("frames", ()):
                frame.pop("vars", None)
    return event


def _values(event: "Event", name: str) -> list[dict[str, Any]]:
    found: Any = event.get(name) or {}
    return list(found.get("values", ()))


def _flush() -> None:
    sentry_sdk.flush(FLUSH_TIMEOUT)

"""Spans and metrics by OpenTelemetry (ojs-observability, ojs-distributed-tracing).

`OJS = {"OPENTELEMETRY": True}` or `instrument()` turns it on. It needs the extra `otel`, and an SDK
that the project configures; nothing here is imported otherwise.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from opentelemetry import baggage, metrics, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_ojs.conf import NAME_BYTES, settings
from django_ojs.context import JobContext
from django_ojs.extension import Batch, Extension, Hooks
from django_ojs.extensions.statistics import rollups
from django_ojs.hooks import registry
from django_ojs.operations.enqueue import caller_database
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.enqueue.unique import UniqueKeyLocked
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.failure import Failure
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.version import VERSION
from django_ojs.worker import end_callbacks
from django_ojs.worker.handler_call import has_timed_out, was_stopped
from django_ojs.worker.in_flight import Run

SCOPE: Final = "django_ojs"

#: The attribute with the outcome of an enqueue: an `Outcome`, or one of the two below.
OUTCOME: Final = "ojs.enqueue.outcome"
#: The transaction was rolled back.
ROLLED_BACK: Final = "rolled_back"
#: Django does not know when the transaction ends (`set_autocommit(False)`).
UNCOMMITTED: Final = "uncommitted"

#: Members of `meta` of the jobs of a workflow (§6.3), so that a worker in any language can set the
#: attributes of their spans (§5.3): the trace in which it was created, its type, and the step.
WORKFLOW_ORIGIN: Final = "ojs.workflow.trace_origin"
WORKFLOW_TYPE: Final = "ojs.workflow.type"
WORKFLOW_STEP: Final = "ojs.workflow.step"

#: The limit of ojs-distributed-tracing §9.3; entries beyond it are not stored.
MAX_BAGGAGE_BYTES: Final = 8192
#: Milliseconds that the end of a worker process waits for the SDK to export.
FLUSH_TIMEOUT_MS: Final = 3_000

# ojs-observability §8.2
_DURATION_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 120, 300),
)
_QUEUE_TIME_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600)
#: Bytes, up to the limit of a checkpoint.
_CHECKPOINT_BUCKETS: Final = tuple(4**power for power in range(3, 11))

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()
_BAGGAGE: Final = W3CBaggagePropagator()


class _Instrumentation(Extension):
    """The tracer and the instruments of one call of `instrument`."""

    name = "opentelemetry"
    #: It stands before the outbox, so that the span is around all that an enqueue does.
    number = 6

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._providers = (tracer_provider, meter_provider)
        self._tracer = trace.get_tracer(SCOPE, VERSION, tracer_provider)
        meter = metrics.get_meter(SCOPE, VERSION, meter_provider)
        self._counters = {
            rollups.ENQUEUED: meter.create_counter("ojs.job.enqueued", "{job}", "Jobs enqueued."),
            rollups.COMPLETED: meter.create_counter(
                "ojs.job.completed", "{job}", "Jobs completed."
            ),
            rollups.DISCARDED: meter.create_counter("ojs.job.failed", "{job}", "Jobs discarded."),
        }
        self._counters[rollups.DROPPED] = self._counters[rollups.DISCARDED]
        self._progress_updates = meter.create_counter(
            "ojs.progress.updates_total", "{report}", "Reports of progress."
        )
        self._checkpoint_size = meter.create_histogram(
            "ojs.progress.checkpoint_size_bytes",
            "By",
            "Size of the checkpoints of jobs.",
            explicit_bucket_boundaries_advisory=_CHECKPOINT_BUCKETS,
        )
        self._retried = meter.create_counter("ojs.job.retried", "{job}", "Repeated attempts.")
        self._duration = meter.create_histogram(
            "ojs.job.duration",
            "s",
            "How long jobs ran.",
            explicit_bucket_boundaries_advisory=_DURATION_BUCKETS,
        )
        self._queue_time = meter.create_histogram(
            "ojs.job.queue_time",
            "s",
            "How long jobs waited for their start.",
            explicit_bucket_boundaries_advisory=_QUEUE_TIME_BUCKETS,
        )
        self._enqueue_duration = meter.create_histogram(
            "ojs.job.enqueue_duration", "s", "How long enqueues took."
        )

    def hooks(self) -> Hooks:
        """Return the hooks: spans of enqueues, runs and maintenance, and checkpoint sizes."""
        return Hooks(
            around_push=self.enqueue,
            around_run=self.run,
            task_done=self.maintained,
            published=self.checkpointed,
            published_types=frozenset({EventType.JOB_CHECKPOINTED}),
        )

    def enqueue(self, batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
        """Store jobs inside a PRODUCER span, whose context goes into their `meta`.

        A job that has a trace context was enqueued by a client with a span of its own: it stays
        as it is (ojs-distributed-tracing §6.2).
        """
        began = time.perf_counter()
        envelopes = batch.jobs = list(batch.jobs)  # Equal jobs now have an envelope each.
        own = [each for each in envelopes if "traceparent" not in each.meta]
        results = self._enqueue_in_span(own, store) if own else store()
        queue = _common(each.queue for each in envelopes)
        self._enqueue_duration.record(
            time.perf_counter() - began, {} if queue is None else {"queue": queue}
        )
        return results

    def _enqueue_in_span(
        self, own: Sequence[Envelope], store: Callable[[], list[EnqueuedJob]]
    ) -> list[EnqueuedJob]:
        operation = "enqueue" if len(own) == 1 else "enqueue_batch"
        queue = _common(each.queue for each in own)
        span = self._tracer.start_span(
            f"{queue or 'ojs'} {operation}",
            kind=SpanKind.PRODUCER,
            attributes=_enqueue_attributes(own, operation, queue),
        )
        fields = _fields(span)
        for envelope in own if fields else ():
            envelope.meta = {**envelope.meta, **fields}
            envelope.document = None  # The size is computed again, from what is stored.
        try:
            with trace.use_span(
                span, end_on_exit=False, record_exception=False, set_status_on_exception=False
            ):
                results = store()
        except BaseException as error:
            # An enqueue that raises UniqueKeyLocked is tried again, perhaps for hours.
            if not isinstance(error, UniqueKeyLocked):
                _record_error(span, error)
            span.end()
            raise
        _end_after_commit(span, results)
        return results

    def step_meta(self, workflow_type: str, position: int) -> dict[str, str | int]:
        """Return the `meta` of a step's job about its workflow and the current trace."""
        meta: dict[str, str | int] = {WORKFLOW_TYPE: workflow_type, WORKFLOW_STEP: position}
        if origin := _fields(trace.get_current_span()).get("traceparent"):
            meta[WORKFLOW_ORIGIN] = origin
        return meta

    def run(self, run: Run, go_on: Callable[[], Any]) -> Any:
        """Run a handler inside a CONSUMER span that links to the span of the enqueue."""
        if run.context.is_async:
            return self._run_async(run.context, go_on)
        with self._process_span(run.context):
            return go_on()

    async def _run_async(self, context: JobContext, go_on: Callable[[], Any]) -> Any:
        with self._process_span(context):
            return await go_on()

    @contextmanager
    def _process_span(self, context: JobContext) -> Iterator[None]:
        job = context.job
        parent = _extracted(_BAGGAGE, job.meta)
        # The run has a trace of its own, because the job may run hours after the request (§6.1).
        span = self._tracer.start_span(
            f"{job.queue} process",
            context=parent,
            kind=SpanKind.CONSUMER,
            links=_links(job.meta),
            attributes={
                **_job_attributes(job.id, job.type, job.queue),
                **_workflow_attributes(context),
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "ojs.job.attempt": context.attempt,
                "ojs.job.priority": job.priority,
                "ojs.worker.id": job.worker_id or "",
            },
        )
        if job.spent > 1:
            self._retried.add(1, {"queue": job.queue, "type": job.type})
        context.metadata.update(_fields(span))
        began = time.monotonic()
        token = otel_context.attach(trace.set_span_in_context(span, parent))
        try:
            yield
        except BaseException as error:
            if was_stopped(context, error):
                _record_interruption(span, context, time.monotonic() - began)
            else:
                _record_error(span, error, context)
            raise
        else:
            span.set_attribute("ojs.job.state", State.COMPLETED.value)
            span.set_status(StatusCode.OK)
        finally:
            otel_context.detach(token)
            span.end()

    def count(
        self,
        what: int,
        queue: str,
        type: str,
        number: int,
        waited: float | None,
        ran: float | None,
    ) -> None:
        """Count a committed change, as the metrics for Prometheus do."""
        if what == rollups.PROGRESS_UPDATES:
            self._progress_updates.add(number, {"queue": queue, "job_type": type})
            return
        attributes = {"queue": queue, "type": type}
        if (counter := self._counters.get(what)) is not None:
            counter.add(number, attributes)
        if waited is not None:
            self._queue_time.record(waited, attributes)
        if ran is not None:
            self._duration.record(ran, {**attributes, "state": State.COMPLETED.value})

    def checkpointed(self, events: Sequence[NewEvent]) -> None:
        """Measure checkpoints, once they are committed."""
        database.after_commit(lambda: self._measure(events))

    def _measure(self, events: Sequence[NewEvent]) -> None:
        for each in events:
            self._checkpoint_size.record(
                each.data["size_bytes"], {"job_type": each.data["job_type"]}
            )

    def maintained(self, name: str, began: int, ended: int, changed: int) -> None:
        """Record a span for work of the server itself (ojs-distributed-tracing §4.2)."""
        attributes = {"ojs.worker.changed_rows": changed}
        span = self._tracer.start_span(
            name, otel_context.Context(), SpanKind.INTERNAL, attributes, start_time=began
        )
        span.end(end_time=ended)

    def flush(self) -> None:
        """Export what the SDK has collected."""
        tracer_provider, meter_provider = self._providers
        for provider in (
            tracer_provider or trace.get_tracer_provider(),
            meter_provider or metrics.get_meter_provider(),
        ):
            # The providers of the SDK have this method; the API's lack it.
            force_flush = getattr(provider, "force_flush", None)
            if force_flush is not None:
                force_flush(FLUSH_TIMEOUT_MS)


_active: _Instrumentation | None = None


def instrument(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Trace enqueues and runs from now on, by these providers or the global ones."""
    global _active
    uninstrument()
    _active = _Instrumentation(tracer_provider, meter_provider)
    registry.register(_active)
    if (step_metas := _step_metas()) is not None:
        step_metas.append(_active.step_meta)
    rollups.observers.append(_active.count)
    end_callbacks.register(_active.flush)


def _step_metas() -> list[Any] | None:
    if not apps.is_installed("django_ojs.extensions.workflows"):
        return None
    from django_ojs.extensions.workflows.operations import creation

    return creation.step_metas


def uninstrument() -> None:
    """Undo `instrument`."""
    global _active
    if _active is None:
        return
    registry.remove(_active)
    if (step_metas := _step_metas()) is not None:
        step_metas.remove(_active.step_meta)
    rollups.observers.remove(_active.count)
    end_callbacks.unregister(_active.flush)
    _active = None


class _UntilCommit:
    """Ends the span of an enqueue when its transaction has ended.

    Django calls functions after a commit and none after a rollback; it then drops them, and with
    them this object.
    """

    def __init__(self, span: Span, results: Sequence[EnqueuedJob]) -> None:
        self._span: Span | None = span
        self._results = results
        self._ended_at = time.time_ns()
        self._process = os.getpid()

    def committed(self) -> None:
        """End the span of jobs that are stored."""
        if self._span is not None:
            self._span.set_status(StatusCode.OK)
            if len(self._results) == 1 and (state := self._results[0].state) is not None:
                self._span.set_attribute("ojs.job.state", state.value)
            self._end()

    def uncommitted(self, outcome: str) -> None:
        """End the span of jobs that do not exist, or may not."""
        if self._span is not None:
            self._span.set_attribute(OUTCOME, outcome)
            self._end()

    def _end(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end(end_time=self._ended_at)

    def __del__(self) -> None:
        # A forked child has a copy, and drops it at its end.
        if self._process == os.getpid():
            self.uncommitted(ROLLED_BACK)


def _end_after_commit(span: Span, results: Sequence[EnqueuedJob]) -> None:
    if not span.is_recording():
        span.end()
        return
    if len(results) == 1:
        # For a duplicate, this is the job that exists.
        span.set_attribute("ojs.job.id", str(results[0].id))
    if (outcome := _common(each.outcome for each in results)) is not None:
        span.set_attribute(OUTCOME, outcome)
    pending = _UntilCommit(span, results)
    if outcome == Outcome.DROPPED:
        pending.committed()
        return
    connection = _connection(outcome)
    if connection.in_atomic_block or connection.get_autocommit():
        connection.on_commit(pending.committed, robust=True)
    else:
        pending.uncommitted(UNCOMMITTED)


def _connection(outcome: str | None) -> BaseDatabaseWrapper:
    """Return the connection in whose transaction jobs were stored."""
    if outcome == Outcome.OUTBOX and settings().wrong_database == "outbox":
        return database.connection(caller_database.foreign_transaction())
    return database.connection()


def _job_attributes(id: object, type: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "ojs",
        "messaging.destination.name": queue,
        "messaging.message.id": str(id),
        "ojs.job.id": str(id),
        "ojs.job.type": type,
        "ojs.job.queue": queue,
    }


def _workflow_attributes(context: JobContext) -> dict[str, str | int]:
    """Return the attributes of a job of a workflow (§5.3)."""
    if context.workflow_id is None:
        return {}
    found: dict[str, str | int] = {"ojs.workflow.id": str(context.workflow_id)}
    meta = context.job.meta
    if isinstance(kind := meta.get(WORKFLOW_TYPE), str):
        found[WORKFLOW_TYPE] = kind[:NAME_BYTES]
    if isinstance(step := meta.get(WORKFLOW_STEP), int):
        found[WORKFLOW_STEP] = step
    return found


def _links(meta: Mapping[str, Any]) -> list[Link]:
    """Return links to the enqueue of a job, and to what created its workflow."""
    links = []
    for value, attributes in (
        (meta, None),
        ({"traceparent": meta.get(WORKFLOW_ORIGIN)}, {"ojs.link": "workflow"}),
    ):
        found = trace.get_current_span(_extracted(_TRACE_CONTEXT, value)).get_span_context()
        if found.is_valid:
            links.append(Link(found, attributes))
    return links


def _enqueue_attributes(
    envelopes: Sequence[Envelope], operation: str, queue: str | None
) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": "ojs",
        "messaging.operation.name": operation,
        "messaging.operation.type": "publish",
    }
    type = _common(each.type for each in envelopes)
    if len(envelopes) == 1 and type is not None and queue is not None:
        envelope = envelopes[0]
        attributes |= _job_attributes(envelope.id, type, queue)
        if isinstance(envelope.priority, int):
            attributes["ojs.job.priority"] = envelope.priority
        if envelope.scheduled_at_text is not None:
            attributes["ojs.job.scheduled_at"] = envelope.scheduled_at_text
        return attributes
    attributes["messaging.batch.message_count"] = len(envelopes)
    if queue is not None:
        attributes |= {"messaging.destination.name": queue, "ojs.job.queue": queue}
    if type is not None:
        attributes["ojs.job.type"] = type
    return attributes


def _common(values: Iterable[object]) -> str | None:
    """Return the value that all of them have, or None if they differ.

    Queues and types are not validated yet, and may be of any type and length.
    """
    first, *others = values
    return str(first)[:NAME_BYTES] if all(each == first for each in others) else None


def _fields(span: Span) -> dict[str, str]:
    """Return the members of `meta` that carry the context of a span, and the current baggage."""
    fields: dict[str, str] = {}
    _TRACE_CONTEXT.inject(fields, trace.set_span_in_context(span))
    if fields and baggage.get_all():
        _BAGGAGE.inject(fields)
        kept = _within_limit(fields.pop("baggage", ""))
        if kept:
            fields["baggage"] = kept
    return fields


def _within_limit(header: str) -> str:
    """Return the entries of a baggage header that fit, in their order."""
    kept, size = [], 0
    for entry in header.split(","):
        if size + len(entry) + 1 > MAX_BAGGAGE_BYTES:
            break
        kept.append(entry)
        size += len(entry) + 1
    return ",".join(kept)


def _extracted(
    propagator: TraceContextTextMapPropagator | W3CBaggagePropagator, meta: Mapping[str, Any]
) -> otel_context.Context:
    """Return a new context with what `meta` carries; other values than texts are ignored."""
    fields = {name: value for name, value in meta.items() if isinstance(value, str)}
    return propagator.extract(fields, otel_context.Context())


def _record_error(span: Span, error: BaseException, context: JobContext | None = None) -> None:
    """Mark a span as failed. LOG_ERROR_MESSAGES and LOG_TRACEBACKS apply, as to the log."""
    if not span.is_recording():
        return
    failure = Failure.from_exception(error, backtrace=False)
    if context is not None:
        span.set_attribute("ojs.job.error.attempt", context.attempt)
    span.set_attribute("error.type", failure.type)
    if not settings().log_error_messages:
        span.add_event("exception", {"exception.type": failure.type})
        span.set_status(Status(StatusCode.ERROR, failure.type))
        return
    span.set_attribute("error.message", failure.message)
    if settings().log_tracebacks:
        span.record_exception(error)
    else:
        span.add_event(
            "exception", {"exception.type": failure.type, "exception.message": failure.message}
        )
    span.set_status(Status(StatusCode.ERROR, f"{failure.type}: {failure.message}"))


def _record_interruption(span: Span, context: JobContext, seconds: float) -> None:
    """Mark the span of a run that was stopped: only a timeout is an error (§8.1)."""
    if not has_timed_out(context, seconds):
        # The run was cancelled, or given back because its worker ended.
        span.add_event("ojs.job.interrupted")
        span.set_status(StatusCode.OK)
        return
    span.set_attribute("ojs.job.error.attempt", context.attempt)
    span.set_attribute("error.type", "timeout")
    span.set_status(Status(StatusCode.ERROR, "timeout"))

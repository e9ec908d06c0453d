"""Spans from the enqueue to the run, and their metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection, transaction
from django.test import override_settings
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import django_ojs as ojs
from django_ojs import JobContext, cancel, chain, handlers, job
from django_ojs.contrib import opentelemetry as tracing
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints.spec import MAX_BYTES
from django_ojs.extensions.statistics import rollups
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations import ack, progress
from django_ojs.spec.errors import DuplicateJob
from django_ojs.spec.progress import Report
from django_ojs.testing import TestContext
from django_ojs.worker.handler_call import Interrupted
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.maintenance import MaintenanceThread
from tests.factories import HOUR, active, age, push, read, steady
from tests.figures import note
from tests.http.api import Api
from tests.testapp.jobs import echo, shout
from tests.worker.processes import ROOT, Tree
from tests.worker.waiting import eventually

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

pytestmark = [pytest.mark.django_db, pytest.mark.once]

Capture = Callable[..., AbstractContextManager[Any]]


class Telemetry:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader])
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        (scope,) = data.resource_metrics[0].scope_metrics
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    found = Telemetry()
    tracing.instrument(tracer_provider=found.provider, meter_provider=found.meter_provider)
    yield found
    tracing.uninstrument()


@pytest.fixture
def commits(django_capture_on_commit_callbacks: Capture) -> Capture:
    """Return a context at the end of which the jobs enqueued in it are committed."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


def traceparent(span: ReadableSpan) -> str:
    found = span.get_span_context()
    assert found is not None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.requirement("OBS-001")
@pytest.mark.requirement("OBS-002")
@pytest.mark.requirement("DT-001")
@pytest.mark.requirement("DT-005")
def test_an_enqueue_is_a_producer_span_and_its_context_is_in_meta(
    telemetry: Telemetry, commits: Capture
) -> None:
    with telemetry.tracer.start_as_current_span("request") as request, commits():
        job = echo.options(meta={"a": 1}, priority=3).enqueue("secret")
    span = telemetry.span("default enqueue")
    assert (span.kind, span.status.status_code) == (SpanKind.PRODUCER, StatusCode.OK)
    assert span.parent == request.get_span_context()
    assert job.job().meta == {"a": 1, "traceparent": traceparent(span)}
    assert attributes(span) == {
        "messaging.system": "ojs",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "publish",
        "messaging.destination.name": "default",
        "messaging.message.id": str(job.id),
        "ojs.job.id": str(job.id),
        "ojs.job.type": "testapp.echo",
        "ojs.job.queue": "default",
        "ojs.job.priority": 3,
        "ojs.job.state": "available",
        "ojs.enqueue.outcome": "stored",
    }


@pytest.mark.requirement("OBS-003")
@pytest.mark.requirement("DT-002")
@pytest.mark.requirement("DT-004")
@pytest.mark.requirement("DT-005")
def test_a_run_is_a_consumer_span_of_a_trace_of_its_own_that_links_to_the_enqueue(
    telemetry: Telemetry, commits: Capture, ojs: TestContext
) -> None:
    with telemetry.tracer.start_as_current_span("request"), commits():
        job = echo.enqueue("secret")
    ojs.drain()
    enqueued, span = telemetry.span("default enqueue"), telemetry.span("default process")
    assert (span.kind, span.status.status_code) == (SpanKind.CONSUMER, StatusCode.OK)
    (link,) = span.links
    context, producer = span.get_span_context(), enqueued.get_span_context()
    assert context is not None
    assert producer is not None
    assert (link.context.trace_id, link.context.span_id) == (producer.trace_id, producer.span_id)
    assert span.parent is None
    assert context.trace_id != producer.trace_id
    found = attributes(span)
    assert found.pop("ojs.worker.id")
    assert found == {
        "messaging.system": "ojs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": str(job.id),
        "ojs.job.id": str(job.id),
        "ojs.job.type": "testapp.echo",
        "ojs.job.queue": "default",
        "ojs.job.attempt": 1,
        "ojs.job.priority": 0,
        "ojs.job.state": "completed",
    }
    assert "secret" not in span.to_json() + enqueued.to_json()


@pytest.mark.requirement("DT-006")
def test_each_attempt_has_a_span_that_links_to_the_enqueue(
    telemetry: Telemetry, commits: Capture, ojs: TestContext
) -> None:
    with commits():
        shout.options(retry=2).enqueue("hello")
    ojs.fail_all(shout, ValueError("boom"))
    ojs.drain(with_retries=True)
    spans = [span for span in telemetry.spans if span.name == "default process"]
    assert [attributes(span)["ojs.job.attempt"] for span in spans] == [1, 2]
    expected = telemetry.span("default enqueue").get_span_context()
    for number, span in enumerate(spans, 1):
        assert expected is not None
        assert [link.context.span_id for link in span.links] == [expected.span_id]
        assert span.status.status_code == StatusCode.ERROR
        found = attributes(span)
        assert found["error.type"] == "ValueError"
        assert found["error.message"] == "boom"
        assert found["ojs.job.error.attempt"] == number
        (event,) = span.events
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "ValueError"
        assert "Traceback" in str(event.attributes["exception.stacktrace"])
    (retried,) = telemetry.metrics()["ojs.job.retried"]
    assert retried.value == 1


@pytest.mark.requirement("DT-007")
@pytest.mark.requirement("DT-010")
def test_the_steps_of_a_workflow_say_which_and_link_to_what_created_it(
    telemetry: Telemetry, commits: Capture, ojs: TestContext
) -> None:
    with telemetry.tracer.start_as_current_span("request") as request, commits():
        workflow = chain(echo.s("first"), shout.options(meta={"a": 1}).s("second")).enqueue()
    ojs.drain()
    runs = [span for span in telemetry.spans if span.name == "default process"]
    for position, span in enumerate(runs):
        found = attributes(span)
        assert found["ojs.workflow.id"] == str(workflow.id)
        assert (found["ojs.workflow.type"], found["ojs.workflow.step"]) == ("chain", position)
        _, origin = span.links
        assert origin.context.span_id == request.get_span_context().span_id
    metas = {job.type: job.meta for job in Job.primary.all()}
    assert metas["testapp.shout"]["a"] == 1
    for meta in metas.values():
        assert meta["ojs.workflow.trace_origin"] == traceparent(telemetry.span("request"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"LOG_TRACEBACKS": False}, {"exception.type": "ValueError", "exception.message": "boom"}),
        ({"LOG_ERROR_MESSAGES": False}, {"exception.type": "ValueError"}),
    ],
)
def test_what_the_log_leaves_out_the_spans_leave_out(
    values: dict[str, bool],
    expected: dict[str, str],
    telemetry: Telemetry,
    ojs: TestContext,
) -> None:
    with override_settings(OJS=values):
        echo.options(retry=1).enqueue()
        ojs.fail_all(echo, ValueError("boom"))
        ojs.drain()
    span = telemetry.span("default process")
    assert [dict(event.attributes or {}) for event in span.events] == [expected]
    assert ("boom" in span.to_json()) == ("exception.message" in expected)


def test_a_job_that_a_handler_enqueues_is_part_of_the_trace_of_its_run(
    telemetry: Telemetry, ojs: TestContext
) -> None:
    context = Mock(is_async=False, attempt=1, metadata={})
    context.job = Mock(meta={}, queue="q", type="t", priority=0, spent=1, worker_id="w")
    tracing._active.run(Mock(context=context), echo.enqueue)  # type: ignore[union-attr]  # the fixture set it
    parent = telemetry.span("q process").get_span_context()
    assert parent is not None
    assert Job.objects.get().meta["traceparent"].split("-")[1] == f"{parent.trace_id:032x}"
    # The traces of log records, and of spans that other instrumentation makes.
    assert context.metadata["traceparent"] == traceparent(telemetry.span("q process"))
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    ("error", "timeout_ms", "status"),
    [(Interrupted(), 600_000, StatusCode.OK), (Interrupted(), 0.000_001, StatusCode.ERROR)],
)
def test_of_the_runs_that_are_stopped_only_a_timeout_is_an_error(
    error: BaseException, timeout_ms: float, status: StatusCode, telemetry: Telemetry
) -> None:
    context = Mock(is_async=False, attempt=1, metadata={})
    context.job = Mock(meta={}, queue="q", type="t", priority=0, spent=1, worker_id="w")
    context.job.timeout_ms, context.job.expires_at = timeout_ms, None
    with pytest.raises(Interrupted):
        tracing._active.run(Mock(context=context), Mock(side_effect=error))  # type: ignore[union-attr]  # as above
    assert telemetry.span("q process").status.status_code == status


@pytest.mark.django_db(transaction=True)
def test_a_completion_that_is_rejected_is_no_error_of_the_handler(
    telemetry: Telemetry, ojs: TestContext
) -> None:
    @job("test.cancelled", queue="q", atomic=True)
    def cancelled(context: JobContext) -> None:
        cancel(context.job.id)

    try:
        cancelled.enqueue()
        ojs.drain()
    finally:
        handlers.registry.remove(cancelled.type)
    span = telemetry.span("q process")
    assert [event.name for event in span.events] == ["ojs.job.interrupted"]
    assert span.status.status_code == StatusCode.OK


def test_the_span_of_an_enqueue_ends_with_its_transaction(
    telemetry: Telemetry, commits: Capture
) -> None:
    with commits():
        with transaction.atomic():
            ojs.enqueue("test.job", queue="kept")
        with transaction.atomic():
            ojs.enqueue("test.job", queue="undone")
            assert not telemetry.spans
            transaction.set_rollback(True)
        undone = telemetry.span("undone enqueue")
        assert [span.name for span in telemetry.spans] == ["undone enqueue"]
    assert attributes(undone)["ojs.enqueue.outcome"] == "rolled_back"
    assert "ojs.job.state" not in attributes(undone)
    assert undone.status.status_code == StatusCode.UNSET
    assert attributes(telemetry.span("kept enqueue"))["ojs.enqueue.outcome"] == "stored"


@pytest.mark.django_db(transaction=True)
@pytest.mark.once
def test_without_a_transaction_the_span_ends_with_the_call(telemetry: Telemetry) -> None:
    ojs.enqueue("test.job")
    assert attributes(telemetry.span("default enqueue"))["ojs.enqueue.outcome"] == "stored"
    # Django does not know when such a transaction ends.
    connection.set_autocommit(False)
    try:
        ojs.enqueue("test.job", queue="by-hand")
        assert attributes(telemetry.span("by-hand enqueue"))["ojs.enqueue.outcome"] == "uncommitted"
    finally:
        connection.rollback()
        connection.set_autocommit(True)


def test_a_batch_is_one_span_that_all_its_jobs_name(telemetry: Telemetry, commits: Capture) -> None:
    with commits():
        ojs.enqueue_batch([ojs.request("test.job", queue=queue) for queue in ("a", "a")])
        ojs.enqueue_batch([ojs.request("test.job", queue=queue) for queue in ("a", "b")])
    span, mixed = telemetry.span("a enqueue_batch"), telemetry.span("ojs enqueue_batch")
    assert attributes(span)["messaging.batch.message_count"] == 2
    assert attributes(span)["ojs.job.queue"] == "a"
    assert "ojs.job.queue" not in attributes(mixed)
    assert {job.meta["traceparent"] for job in Job.objects.all()} == {
        traceparent(span),
        traceparent(mixed),
    }


def test_an_enqueue_that_is_rejected_is_an_error(telemetry: Telemetry) -> None:
    job = ojs.enqueue("test.job")
    with pytest.raises(DuplicateJob):
        ojs.enqueue("test.job", id=job.id)
    span = telemetry.span("default enqueue")
    assert span.status.status_code == StatusCode.ERROR
    assert attributes(span)["error.type"] == "DuplicateJob"
    assert "ojs.enqueue.outcome" not in attributes(span)


@pytest.mark.parametrize(
    "wrong",
    [{"queue": ["a"]}, {"queue": "x" * 10_000}, {"type": {}}, {"meta": 7}, {"priority": "high"}],
)
def test_what_is_not_valid_is_rejected_as_without_tracing(
    wrong: dict[str, Any], telemetry: Telemetry
) -> None:
    body = {"type": "test.job", "args": [], **wrong}
    found = Api().post("jobs", body)
    tracing.uninstrument()
    assert found.status == Api().post("jobs", body).status in (400, 413, 422)
    for span in telemetry.spans:
        assert span.status.status_code == StatusCode.ERROR
        assert len(span.name) < 300


def test_a_duplicate_names_the_job_that_exists(telemetry: Telemetry, commits: Capture) -> None:
    unique = ojs.UniquePolicy(keys=["type"], on_conflict="ignore")
    with commits():
        first = ojs.enqueue("test.job", unique=unique, queue="first")
        ojs.enqueue("test.job", unique=unique, queue="second")
    found = attributes(telemetry.span("second enqueue"))
    assert (found["ojs.enqueue.outcome"], found["ojs.job.id"]) == ("duplicate", str(first.id))


@pytest.mark.requirement("DT-003")
def test_the_trace_context_of_a_client_goes_through_push_and_fetch_as_it_is(
    telemetry: Telemetry, commits: Capture
) -> None:
    api = Api()
    meta = {"traceparent": TRACE, "tracestate": "ojs=p:8;r:62", "baggage": "tenant=acme"}
    with commits():
        api.post("jobs", {"type": "test.job", "args": [], "meta": meta}).ok(201)
    assert not telemetry.spans  # The client has the span of this enqueue.
    with commits():
        api.post("jobs", {"type": "test.job", "args": []}).ok(201)
    body = {"queues": ["default"], "worker_id": "w", "count": 2}
    fetched = api.post("workers/fetch", body).ok()["jobs"]
    assert [job["meta"] for job in fetched] == [
        meta,
        {"traceparent": traceparent(telemetry.span("default enqueue"))},
    ]


@pytest.mark.requirement("DT-008")
def test_baggage_goes_with_the_job_up_to_its_limit(
    telemetry: Telemetry, commits: Capture, ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(echo, "function", lambda: seen.append(dict(baggage.get_all())))
    values = baggage.set_baggage("tenant", "acme")
    values = baggage.set_baggage("large", "x" * 4000, values)
    values = baggage.set_baggage("larger", "x" * 5000, values)
    token = otel_context.attach(values)
    try:
        echo.enqueue()
    finally:
        otel_context.detach(token)
    stored = Job.objects.get().meta["baggage"]
    assert stored == f"tenant=acme,large={'x' * 4000}"
    ojs.drain()
    assert seen == [{"tenant": "acme", "large": "x" * 4000}]
    assert not baggage.get_all()


@pytest.mark.parametrize("meta", [{"traceparent": 7}, {"traceparent": "hunter2"}, {}])
def test_without_a_valid_trace_context_a_run_has_no_link(
    meta: dict[str, Any], telemetry: Telemetry, ojs: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "around_push", None)
    echo.options(meta=meta).enqueue()
    ojs.drain()
    assert not telemetry.span("default process").links


@pytest.mark.requirement("OBS-004", "EV-14")
@pytest.mark.requirement("OBS-005")
def test_the_metrics_of_the_documents(
    telemetry: Telemetry, commits: Capture, ojs: TestContext
) -> None:
    with commits():
        echo.enqueue()
    note(rollups.COMPLETED, "q", "t", waited=0.25, ran=1.5)
    note(rollups.DISCARDED, "q", "t", number=2)
    found = telemetry.metrics()
    (enqueued,), (completed,) = found["ojs.job.enqueued"], found["ojs.job.completed"]
    assert (enqueued.value, dict(enqueued.attributes)) == (
        1,
        {"queue": "default", "type": "testapp.echo"},
    )
    assert (completed.value, found["ojs.job.failed"][0].value) == (1, 2)
    (ran,), (waited,) = found["ojs.job.duration"], found["ojs.job.queue_time"]
    assert (ran.sum, waited.sum) == (1.5, 0.25)
    assert dict(ran.attributes) == {"queue": "q", "type": "t", "state": "completed"}
    assert ran.explicit_bounds[0] == 0.005
    assert waited.explicit_bounds[-1] == 3600
    assert [dict(each.attributes) for each in found["ojs.job.enqueue_duration"]] == [
        {"queue": "default"}
    ]


@pytest.mark.requirement("PRG-R007")
@pytest.mark.requirement("PRG-R009")
def test_reports_of_progress_are_counted_and_their_checkpoints_measured(
    telemetry: Telemetry, commits: Capture
) -> None:
    job = active(queue="reports", type="report.build")
    with commits():
        for page in (1, 2):
            progress.report(job.id, Report(progress=page / 10))
        progress.report(job.id, Report(progress=0.3, checkpoint={"page": "é"}))
        checkpoint.save(job.id, list(range(500)))
    with commits(), transaction.atomic():
        progress.report(job.id, Report(progress=0.4, checkpoint={}))
        transaction.set_rollback(True)
    ack.ack(job.id)
    with commits():
        progress.report(job.id, Report(progress=0.5, checkpoint={}))
    found = telemetry.metrics()
    (updates,) = found["ojs.progress.updates_total"]
    assert dict(updates.attributes) == {"queue": "reports", "job_type": "report.build"}
    assert updates.value == 3
    (size,) = found["ojs.progress.checkpoint_size_bytes"]
    assert dict(size.attributes) == {"job_type": "report.build"}
    of_report, alone = json.dumps({"page": "é"}, ensure_ascii=False), json.dumps([*range(500)])
    assert (size.count, size.min, size.max) == (
        2,
        len(of_report.replace(" ", "").encode()),
        len(alone.replace(" ", "")),
    )
    assert size.explicit_bounds[-1] == MAX_BYTES


@pytest.mark.requirement("DT-009")
@pytest.mark.django_db(transaction=True)
def test_work_of_the_server_has_spans_where_it_changed_something(telemetry: Telemetry) -> None:
    due = push(scheduled_at=HOUR)
    age([due.pk], 2 * HOUR)
    lapsed = active(worker_id=None)
    age(lapsed.id, HOUR)
    with steady():
        running = MaintenanceThread("maintenance", JobLog())
        try:
            eventually(
                lambda: {read(due.pk).state, read(lapsed.id).state} == {"available"}, "it is done"
            )
        finally:
            running.close()
    found = {span.name: span for span in telemetry.spans if span.name.startswith("ojs.")}
    assert found.keys() == {"ojs.scheduler.poll", "ojs.visibility.check"}
    span = found["ojs.scheduler.poll"]
    assert (span.kind, attributes(span)) == (SpanKind.INTERNAL, {"ojs.worker.changed_rows": 1})
    assert (span.start_time or 0) <= (span.end_time or 0)


def test_without_an_sdk_jobs_run_and_carry_nothing(ojs: TestContext) -> None:
    tracing.instrument()
    try:
        echo.enqueue()
        assert ojs.drain().completed == 1
        assert Job.objects.get().meta == {}
    finally:
        tracing.uninstrument()


def test_it_outlives_a_change_of_the_settings_and_can_be_undone(
    telemetry: Telemetry, ojs: TestContext
) -> None:
    with override_settings(OJS={"SERVICE_NAME": "other"}):
        echo.enqueue()
        ojs.drain()
    assert telemetry.span("default process")
    tracing.uninstrument()
    number = len(telemetry.spans)
    echo.options(queue="later").enqueue()
    ojs.drain()
    assert "traceparent" not in Job.objects.get(queue="later").meta
    assert [span.name for span in telemetry.spans[number:]] == []


@pytest.mark.smoke
def test_a_real_worker_exports_the_spans_of_its_jobs_at_its_end(
    telemetry: Telemetry, process_environment: dict[str, str], tmp_path: Path
) -> None:
    spans = tmp_path / "spans"
    job = shout.enqueue("hello")
    worker = Tree(
        process_environment,
        tmp_path / "worker.log",
        ojs={"OPENTELEMETRY": True},
        OJS_TEST_APPS=json.dumps(["tests.contrib.tracing"]),
        OJS_TEST_SPANS=str(spans),
    )
    try:
        worker.says(f"{job.id} completed")
        worker.process.terminate()
        assert worker.ends() == 0
    finally:
        worker.kill()
    (line,) = spans.read_text().splitlines()
    span = json.loads(line)
    assert (span["name"], span["kind"]) == ("default process", "SpanKind.CONSUMER")
    assert span["attributes"]["ojs.job.id"] == str(job.id)
    (link,) = span["links"]
    enqueued = telemetry.span("default enqueue").get_span_context()
    assert enqueued is not None
    assert link["context"]["span_id"] == f"0x{enqueued.span_id:016x}"


WITHOUT = """
import sys
for name in ("opentelemetry", "sentry_sdk"):
    sys.modules[name] = None  # As if it were not installed: an import of it raises.
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_ojs"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    USE_TZ=True,
)
django.setup()
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import override_settings
import django_ojs as ojs
from django_ojs.worker import process, supervisor
call_command("migrate", verbosity=0)
print(ojs.enqueue("test.job").outcome)
try:
    with override_settings(OJS={"OPENTELEMETRY": True}):
        apps.get_app_config("django_ojs").ready()
except ImproperlyConfigured as error:
    print(error)
"""


@pytest.mark.once
def test_a_project_without_the_packages_works_and_the_setting_says_what_is_missing() -> None:
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    outcome, error = found.stdout.splitlines() or found.stderr
    assert (outcome, "install django-ojs[otel]" in error) == ("stored", True)

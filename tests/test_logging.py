"""Records as JSON, with the job that runs and without what is secret."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal
from django.utils.module_loading import import_string

import django_ojs as ojs
from django_ojs import context as contexts
from django_ojs import signals
from django_ojs.extensions.signals import transition_log
from django_ojs.logging import (
    JobContextFilter,
    JSONFormatter,
    SampleFilter,
    component,
)
from django_ojs.operations import ack, cancel, fail, fetch, retry
from django_ojs.spec import ids
from tests.cases import together
from tests.docs.pages import ROOT, blocks
from tests.factories import BOOM, HOUR, active, age, hourly, push
from tests.testapp.jobs import add, shout
from tests.worker.parts import claimed
from tests.worker.processes import Tree

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PAGE = ROOT / "docs/how-to/log-as-json.md"


def record(message: str = "hello", level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    name = extra.pop("logger", "shop")
    return logging.getLogger(name).makeRecord(
        name, level, __file__, 1, message, (), extra.pop("exc_info", None), extra=extra
    )


def written(made: logging.LogRecord, **options: Any) -> dict[str, Any]:
    text = JSONFormatter(**options).format(made)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def running() -> Iterator[ojs.JobContext]:
    """Let a job run on this thread."""
    context = ojs.JobContext(claimed())
    contexts.enter(context)
    yield context
    contexts.enter(None)


@pytest.mark.requirement("LOG-001")
@pytest.mark.requirement("LOG-002")
def test_a_record_has_the_fields_of_the_document() -> None:
    found = written(record("one\ntwo", template="welcome"))
    assert found.pop("timestamp")[-5:].endswith("Z")
    assert found == {
        "severity": "INFO",
        "severity_number": 9,
        "message": "one\ntwo",
        "component": "server",
        "attributes": {"logger": "shop", "template": "welcome"},
    }
    made = record()
    made.created = 1771192800.1234
    assert written(made)["timestamp"] == "2026-02-15T22:00:00.123Z"


@pytest.mark.requirement("LOG-R001")
@together(
    ("level", "severity", "number"),
    [
        (5, "TRACE", 1),
        (10, "DEBUG", 5),
        (20, "INFO", 9),
        (25, "INFO", 9),
        (30, "WARN", 13),
        (40, "ERROR", 17),
        (50, "FATAL", 21),
    ],
)
def test_a_level_is_a_severity_of_opentelemetry(level: int, severity: str, number: int) -> None:
    found = written(record(level=level))
    assert (found["severity"], found["severity_number"]) == (severity, number)


@pytest.mark.requirement("LOG-003")
def test_a_record_that_is_logged_while_a_job_runs_has_the_job(running: ojs.JobContext) -> None:
    job = running.job
    job.__dict__["meta"] = {"traceparent": TRACE, "ojs.context.request_id": "req_1", "secret": "x"}
    found = written(record())
    assert found["ojs"] == {
        "job_id": str(job.id),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": job.attempt,
        "worker_id": job.worker_id,
        "correlation_id": "req_1",
    }
    assert found["trace"] == {"trace_id": TRACE[3:35], "span_id": TRACE[36:52]}
    assert found["component"] == "worker"
    job.meta["traceparent"] = "hunter2"
    assert "trace" not in written(record())


@pytest.mark.requirement("LOG-R004")
def test_the_span_of_the_moment_goes_before_that_of_the_enqueue(
    running: ojs.JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.job.__dict__["meta"] = {"traceparent": TRACE}
    current = SimpleNamespace(is_valid=True, trace_id=1, span_id=2)
    span = SimpleNamespace(get_span_context=lambda: current)
    trace = SimpleNamespace(get_current_span=lambda: span)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)  # type: ignore[arg-type]  # a part of it
    assert written(record())["trace"] == {"trace_id": "1".zfill(32), "span_id": "2".zfill(16)}
    current.is_valid = False
    assert written(record())["trace"]["trace_id"] == TRACE[3:35]


@pytest.mark.requirement("LOG-004")
def test_an_error_has_type_message_and_backtrace(settings: Any) -> None:
    try:
        raise ValueError("no\nmoney")
    except ValueError:
        info = sys.exc_info()
    error = written(record(exc_info=info))["error"]
    assert (error["type"], error["message"]) == ("ValueError", "no\nmoney")
    assert error["backtrace"].startswith("Traceback")
    settings.OJS = {"LOG_ERROR_MESSAGES": False}
    error = written(record(exc_info=info))["error"]
    assert "message" not in error
    assert "test_logging.py" in error["backtrace"]
    assert "money" not in error["backtrace"].replace('raise ValueError("no\\nmoney")', "")
    # The worker has named the type, and left out the traceback.
    assert written(record(error="timeout"))["error"] == {"type": "timeout"}


class Silent:
    def __str__(self) -> str:
        raise RuntimeError


class Unreadable(Silent, Exception):
    """Its message cannot be read, nor what the traceback module asks for."""

    def __getattr__(self, name: str) -> Any:
        return {"status": 503}[name]


def test_a_record_of_objects_that_cannot_be_read_is_written_all_the_same(settings: Any) -> None:
    settings.OJS = {"LOG_ERROR_MESSAGES": True}
    try:
        raise Unreadable
    except Unreadable:
        made = record(exc_info=sys.exc_info(), x=Silent(), y={Silent(): Silent()}, z=10**5_000)
    found = written(made)
    assert found["error"]["type"] == "Unreadable"
    assert found["error"]["message"] == "(Unreadable)"
    assert "test_logging.py" in found["error"]["backtrace"]
    assert found["attributes"] == {
        "logger": "shop",
        "x": "(Silent)",
        "y": {"(Silent)": "(Silent)"},
        "z": "(int)",
    }


@pytest.mark.requirement("LOG-005")
def test_what_is_secret_or_in_the_job_is_left_out() -> None:
    extra = {
        "args_": 1,
        "job_args": ["s3cret"],
        "kwargs": {"to": "s3cret"},
        "result": "s3cret",
        "auth_token": "s3cret",
        "headers": {"Authorization": "s3cret", "nested": [{"Password": "s3cret", "ok": 1}]},
        "iban": "s3cret",
    }
    found = written(record(**extra), redact=["iban"])["attributes"]
    assert "s3cret" not in repr(found)
    assert found["args_"] == 1
    assert found["headers"]["nested"] == [{"Password": "[redacted]", "ok": 1}]
    assert found["iban"] == found["auth_token"] == "[redacted]"
    assert written(record(iban="DE"))["attributes"]["iban"] == "DE"


def test_words_that_other_libraries_use_too_are_attributes(running: ojs.JobContext) -> None:
    found = written(record(queue="support", state="open"))
    assert found["ojs"]["queue"] == running.job.queue
    assert found["attributes"] == {"logger": "shop", "queue": "support", "state": "open"}


def test_any_value_is_written(settings: Any) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    odd = {
        "nan": float("nan"),
        "large": 10**30,
        "path": Path("/x"),
        "deep": deep,
        "nul": "a\0\ud800",
    }
    found = written(record("\ud800", **odd))["attributes"]
    assert (found["nan"], found["large"], found["path"]) == ("nan", str(10**30), "/x")


def test_the_component_is_that_of_the_process() -> None:
    ours = record(logger="django_ojs.worker")
    with component("worker"):
        assert written(record())["component"] == "worker"
        assert written(ours)["category"] == "worker"
        assert "category" not in written(record())
    assert written(record())["component"] == "server"


def test_the_filter_gives_other_formatters_the_job_and_records_without_one_are_empty(
    running: ojs.JobContext,
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobContextFilter())
    handler.setFormatter(logging.Formatter("[%(job_type)s %(attempt)s] %(message)s"))
    logger = logging.Logger("shop")
    logger.addHandler(handler)
    logger.info("inside")
    made = record()
    assert JobContextFilter().filter(made)
    contexts.enter(None)
    # In the thread of a QueueListener.
    assert written(made)["ojs"]["job_id"] == str(running.job.id)
    logger.info("outside")
    job = running.job
    assert stream.getvalue() == f"[{job.type} {job.attempt}] inside\n[ ] outside\n"
    made = record()
    JobContextFilter().filter(made)
    assert "ojs" not in written(made)


def documented() -> list[dict[str, Any]]:
    """Return each LOGGING of the page."""
    found = []
    for block in blocks(PAGE):
        if block.module == "mysite.settings":
            values: dict[str, Any] = {}
            exec(block.text, values)
            found.append(values["LOGGING"])
    return found


def test_the_classes_of_the_other_examples_take_their_options() -> None:
    _, redacting, sampling, filtering = documented()
    of_filters = (sampling["filters"]["sample"], filtering["filters"]["job"])
    for made in (redacting["formatters"]["json"], *of_filters):
        assert import_string(made.pop("()"))(**made)


@pytest.mark.requirement("LOG-R005")
def test_a_sample_has_all_records_of_some_jobs_and_all_warnings() -> None:
    sampled, everything = SampleFilter(10), SampleFilter(1)
    keys = [str(ids.uuid7()) for _ in range(2_000)]
    kept = {key for key in keys if sampled.filter(record(job_id=key))}
    assert 100 < len(kept) < 350
    for key in keys[:50]:
        # Each process decides alike, whoever logs.
        assert SampleFilter(10).filter(record("again", job_id=key)) is (key in kept)
        assert sampled.filter(record(level=logging.WARNING, job_id=key))
        assert sampled.filter(record(job_id=key, status="completed"))
        assert everything.filter(record(job_id=key))
    dropped = next(key for key in keys if key not in kept)
    ends = SampleFilter(10, keep_ends=False)
    assert not ends.filter(record(job_id=dropped, status="completed"))
    assert ends.filter(record(level=logging.ERROR, job_id=dropped, status="failed"))
    for outside in (record(), record(job_id=""), record(job_id="no id")):
        assert sampled.filter(outside)
    with pytest.raises(ValueError, match="at least 1"):
        SampleFilter(0)


def test_the_running_job_decides_about_the_records_of_its_handler(
    running: ojs.JobContext,
) -> None:
    own = record(job_id=str(running.job.id))
    for one_in in range(1, 6):
        chosen = SampleFilter(one_in)
        assert chosen.filter(record()) is chosen.filter(own)


@contextmanager
def transitions() -> Iterator[None]:
    """Log each change of state within the block."""
    transition_log.connect()
    try:
        yield
    finally:
        for name, signal in vars(signals).items():
            if isinstance(signal, Signal):
                signal.disconnect(dispatch_uid=f"django_ojs.transition_log.{name}")


@pytest.mark.requirement("LOG-R002")
@pytest.mark.django_db(transaction=True)
def test_each_change_of_state_is_logged_after_its_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "django_ojs.transitions")
    with transitions():
        with transaction.atomic():
            push(args=["s3cret"])
            transaction.set_rollback(True)
        assert caplog.records == []
        failing = active(args=["s3cret"], retry=hourly(2), meta={"correlation_id": "req_1"})
        fail.fail(failing.id, BOOM)
        age(failing.id, 2 * HOUR)
        fetch.fetch([failing.queue])
        fail.fail(failing.id, BOOM)
        retry.retry(failing.id)
        cancel.cancel(failing.id)
        ack.ack(active().id)
        given_back = active()
        fail.requeue(given_back.id, BOOM)
    push()
    found = [written(made) for made in caplog.records]
    of_job = [each for each in found if each["ojs"]["job_id"] == str(failing.id)]
    assert [each["message"].partition(": ")[2] for each in of_job] == [
        "enqueued",
        "fetched by a worker",
        "failed, it will be retried",
        "fetched by a worker",
        "discarded",
        "retried by hand",
        "cancelled",
    ]
    assert [each["severity"] for each in of_job[2:]] == ["WARN", "DEBUG", "ERROR", "INFO", "INFO"]
    assert (of_job[2]["error"], of_job[2]["category"]) == ({"type": "Boom"}, "lifecycle")
    assert of_job[0]["ojs"] == {
        "job_id": str(failing.id),
        "job_type": failing.type,
        "queue": failing.queue,
        "state": "available",
        "correlation_id": "req_1",
    }
    rest = [each["message"].partition(": ")[2] for each in found if each not in of_job]
    assert rest[2] == "completed"
    assert rest[-1] == "returned, as its claim lapsed or was given back"
    assert "s3cret" not in str(found)


def test_a_worker_logs_the_end_of_a_run_once(
    caplog: pytest.LogCaptureFixture, db: None, django_capture_on_commit_callbacks: Any
) -> None:
    caplog.set_level(logging.INFO, "django_ojs.transitions")
    with transitions(), component("worker"), django_capture_on_commit_callbacks(execute=True):
        ack.ack(active().id)
        fail.fail(active(retry=hourly(1)).id, BOOM)
    said = {each.getMessage().partition(": ")[2] for each in caplog.records}
    assert said == {"enqueued"}


@pytest.mark.requirement("LOG-R003", "LOG-R006")
@pytest.mark.smoke
def test_a_real_worker_with_the_documented_logging_writes_json_lines(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    good = shout.enqueue("s3cret")
    bad = add.options(retry=1, meta={"correlation_id": "req_1"}).enqueue("s3cret", None)
    worker = Tree(
        process_environment,
        tmp_path / "worker.log",
        OJS_TEST_LOGGING=json.dumps(documented()[0]),
        PYTHONWARNINGS="ignore",
    )
    try:
        for job in (good, bad):
            worker.says(str(job.id))
        worker.process.terminate()
        assert worker.ends() == 0
    finally:
        worker.kill()
    lines = [json.loads(line) for line in worker.log.splitlines()]
    assert all(
        line.keys()
        >= {"timestamp", "severity", "severity_number", "message", "component", "attributes"}
        for line in lines
    )
    assert {line["component"] for line in lines} == {"worker"}
    by_id = {line["ojs"]["job_id"]: line for line in lines if "ojs" in line}
    completed, failed = by_id[str(good.id)], by_id[str(bad.id)]
    assert (completed["category"], completed["ojs"]["state"]) == ("lifecycle", "completed")
    assert completed["attributes"].keys() == {"logger", "duration_ms"}
    assert (failed["severity"], failed["error"]["type"]) == ("ERROR", "TypeError")
    assert failed["ojs"]["correlation_id"] == "req_1"
    assert failed["ojs"]["worker_id"].startswith("worker_")
    assert "s3cret" not in worker.log

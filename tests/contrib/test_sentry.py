"""The errors of jobs in Sentry, by the real SDK, whose transport keeps the events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import sentry_sdk
from django.test import override_settings
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

import django_ojs as ojs
from django_ojs import JobContext, cancel, hooks, job
from django_ojs.contrib import sentry
from django_ojs.contrib.sentry import OJSIntegration
from django_ojs.handler_registry import registry
from django_ojs.testing import TestContext
from django_ojs.worker.handler_call import Interrupted
from tests.testapp.jobs import add, echo, shout
from tests.worker.parts import claimed
from tests.worker.processes import Tree

SECRET = "4111-1111-1111-1111"

pytestmark = [pytest.mark.django_db, pytest.mark.once]

Event = dict[str, Any]


class Sentry:
    """A client of the SDK, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def init(self, **options: Any) -> None:
        sent = self.sent

        class Kept(Transport):
            def capture_envelope(self, envelope: Envelope) -> None:
                sent.extend(item.payload.json for item in envelope.items if item.payload.json)

        # Not the default ones: they would patch Django for the other tests of this process.
        integrations = [OJSIntegration(**options), LoggingIntegration(), DedupeIntegration()]
        sentry_sdk.init(
            transport=Kept(),
            default_integrations=False,
            auto_enabling_integrations=False,
            integrations=integrations,
            traces_sample_rate=1.0,
        )

    @property
    def events(self) -> list[Event]:
        return [event for event in self.sent if event.get("type") != "transaction"]

    @property
    def transactions(self) -> list[Event]:
        return [event for event in self.sent if event.get("type") == "transaction"]


@pytest.fixture
def tracker() -> Iterator[Sentry]:
    with sentry_sdk.isolation_scope():
        found = Sentry()
        found.init()
        hooks.registry.register(sentry.SentryExtension())  # The SDK does so once in a process.
        yield found
        hooks.registry.remove(sentry.SentryExtension())
        sentry_sdk.get_global_scope().set_client(None)


def test_a_run_that_fails_is_one_event_that_says_which_job_and_nothing_that_is_in_it(
    tracker: Sentry, ojs: TestContext
) -> None:
    # It raises a TypeError, with the argument in the variables of its frames.
    job = add.options(retry=1, meta={"card": SECRET}).enqueue(SECRET, None)
    ojs.drain()
    (event,) = tracker.events
    assert event["level"] == "error"
    assert event["fingerprint"] == ["testapp.add", "TypeError"]
    assert event["transaction"] == "testapp.add"
    tags = {name: value for name, value in event["tags"].items() if name.startswith("ojs.job.")}
    assert tags == {
        "ojs.job.id": str(job.id),
        "ojs.job.type": "testapp.add",
        "ojs.job.queue": "default",
        "ojs.job.attempt": 1,
        "ojs.job.retried": False,
    }
    assert {"id", "max_attempts", "worker_id"} <= event["contexts"]["ojs"].keys()
    assert event["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "add"
    assert SECRET not in json.dumps(tracker.sent)
    (transaction,) = tracker.transactions
    assert transaction["transaction"] == "testapp.add"
    assert transaction["contexts"]["trace"]["op"] == "queue.process"


def test_a_run_that_will_be_retried_has_a_level_of_its_own(
    tracker: Sentry, ojs: TestContext
) -> None:
    # Each attempt raises an exception of its own; the SDK drops one that it has seen.
    add.options(retry=2).enqueue("a", None)
    ojs.drain(with_retries=True)
    assert [event["level"] for event in tracker.events] == ["warning", "error"]
    assert [event["tags"]["ojs.job.attempt"] for event in tracker.events] == [1, 2]


def test_an_async_handler_is_reported_as_a_plain_one(tracker: Sentry, ojs: TestContext) -> None:
    shout.options(retry=1).enqueue(7)  # type: ignore[arg-type]  # what fails
    ojs.drain()
    (event,) = tracker.events
    assert event["fingerprint"] == ["testapp.shout", "AttributeError"]


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({"retry_level": None}, ["error"]),
        ({"final_level": None}, ["warning"]),
        ({"final_level": "fatal", "retry_level": "info"}, ["info", "fatal"]),
    ],
)
def test_the_levels_are_options(
    options: dict[str, Any], levels: list[str], tracker: Sentry, ojs: TestContext
) -> None:
    tracker.init(**options)
    add.options(retry=2).enqueue("a", None)
    ojs.drain(with_retries=True)
    assert [event["level"] for event in tracker.events] == levels


def test_a_level_that_sentry_does_not_know_is_an_error() -> None:
    with pytest.raises(ValueError, match="fatal, error, warning"):
        OJSIntegration(final_level="critical")


@pytest.mark.parametrize(
    ("raised", "number"),
    [
        (ojs.Retry("later"), 0),
        (ojs.Discard("no"), 0),
        (ojs.DeadLetter("look at it"), 1),
        (ojs.OJSError("bad"), 1),
    ],
)
def test_what_a_handler_decides_is_reported_only_where_an_operator_must_look(
    raised: Exception, number: int, tracker: Sentry, ojs: TestContext
) -> None:
    echo.enqueue()
    ojs.fail_next(echo, raised)
    ojs.drain()
    assert len(tracker.events) == number


def test_a_run_whose_job_was_cancelled_is_no_error_where_its_completion_is_rejected(
    tracker: Sentry, ojs: TestContext
) -> None:
    @job("test.cancelled", atomic=True)
    def cancelled(context: JobContext) -> None:
        cancel(context.job.id)

    try:
        cancelled.enqueue()
        ojs.drain()
    finally:
        registry.remove(cancelled.type)
    assert tracker.events == []


@pytest.mark.parametrize("error", [Interrupted(), asyncio.CancelledError()])
def test_of_the_runs_that_are_stopped_only_a_timeout_is_reported(
    error: BaseException, tracker: Sentry
) -> None:
    context = ojs.JobContext(claimed())
    for timeout_ms in (600_000, 0.000_001):
        context.job.timeout_ms = timeout_ms  # type: ignore[assignment]  # less than a millisecond
        with pytest.raises(type(error)):
            sentry._run(Mock(context=context), Mock(side_effect=error))
    (event,) = tracker.events
    assert event["fingerprint"] == [context.job.type, "timeout"]


def test_messages_local_variables_and_fingerprints_can_be_chosen(
    tracker: Sentry, ojs: TestContext
) -> None:
    tracker.init(fingerprint=False, local_variables=True)
    with override_settings(OJS={"LOG_ERROR_MESSAGES": False}):
        add.options(retry=1).enqueue(SECRET, None)
        ojs.drain()
    (event,) = tracker.events
    assert "fingerprint" not in event
    (value,) = event["exception"]["values"]
    assert value["value"] == ""
    assert value["stacktrace"]["frames"][-1]["vars"]["a"] == repr(SECRET)


def test_the_scope_of_a_run_is_its_own(tracker: Sentry, ojs: TestContext) -> None:
    seen: list[Any] = []

    def tagging() -> None:
        seen.append(dict(sentry_sdk.get_isolation_scope()._tags))
        sentry_sdk.set_tag("mine", "x")
        sentry_sdk.capture_message("a message of the handler")

    for _ in range(2):
        sentry._run(
            Mock(context=Mock(is_async=False, metadata={}, job=claimed(), attempt=1)), tagging
        )
    assert "mine" not in seen[1]
    assert "ojs.job.id" not in sentry_sdk.get_isolation_scope()._tags
    first, second = tracker.events
    assert (first["message"], first["transaction"]) == ("a message of the handler", "test.job")
    assert "fingerprint" not in first
    assert first["tags"]["ojs.job.id"] != second["tags"]["ojs.job.id"]


def test_other_records_of_the_worker_are_reported_without_arguments(tracker: Sentry) -> None:
    card = SECRET
    for name in ("django_ojs", "shop"):
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger(name).exception("a thread ended")
    ours, other = tracker.events
    assert card not in json.dumps(ours)
    assert card in json.dumps(other)


def test_a_client_without_the_integration_reports_nothing_of_ours(
    tracker: Sentry, ojs: TestContext
) -> None:
    sentry_sdk.init(default_integrations=False, auto_enabling_integrations=False)
    echo.enqueue()
    assert ojs.drain().completed == 1
    assert not tracker.sent


@pytest.mark.smoke
def test_a_real_worker_sends_its_events_before_it_ends(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    events = tmp_path / "events"
    job = add.options(retry=1).enqueue(SECRET, None)
    worker = Tree(
        process_environment,
        tmp_path / "worker.log",
        OJS_TEST_APPS=json.dumps(["tests.contrib.tracing"]),
        OJS_TEST_SPANS=str(tmp_path / "spans"),
        OJS_TEST_EVENTS=str(events),
    )
    try:
        worker.says(f"{job.id} failed")
        worker.process.terminate()
        assert worker.ends() == 0
    finally:
        worker.kill()
    (line,) = events.read_text().splitlines()
    event = json.loads(line)
    assert (event["tags"]["ojs.job.id"], event["level"]) == (str(job.id), "error")
    assert SECRET not in line

"""What a handler knows of its run, and what it can ask for."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured

import django_ojs as ojs
from django_ojs import context as contexts
from django_ojs.operations import fail, promotion
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.progress import Report
from django_ojs.storage.claimed_job import Claimed
from tests import factories as make
from tests.cases import together

pytestmark = pytest.mark.django_db


class Heart:
    """A worker's heartbeat, as far as the context sees it."""

    def __init__(self, *, held: bool) -> None:
        self.held = held
        self.beats: list[tuple[Claimed, timedelta | None]] = []

    def __call__(self, job: Claimed, extend: timedelta | None) -> bool:
        self.beats.append((job, extend))
        return self.held


def test_it_shows_the_job_its_queue_and_the_attempt() -> None:
    job = make.active(args=["x"], meta={"a": 1})
    context = ojs.JobContext(job)
    assert context.job is job
    assert (context.queue, context.attempt, context.spent) == (job.queue, 1, 1)
    assert (context.job.args, context.job.meta) == (["x"], {"a": 1})
    assert context.metadata == {}
    assert not context.cancelled


def test_a_claim_that_was_given_back_is_an_attempt_and_is_not_spent() -> None:
    job = make.push()
    for _ in range(3):
        fail.requeue(make.claim(job).id)
    context = ojs.JobContext(make.claim(job))
    assert (context.attempt, context.spent) == (4, 1)
    fail.fail(job.pk, make.BOOM)
    make.age(job.pk, make.HOUR)
    promotion.promote()
    context = ojs.JobContext(make.claim(job))
    assert (context.attempt, context.spent) == (5, 2)


def test_what_it_logs_says_which_run_it_is(caplog: pytest.LogCaptureFixture) -> None:
    job = make.active(args=["hunter2"])
    with caplog.at_level(logging.INFO, "django_ojs.job"):
        ojs.JobContext(job).log.info("half of it is done")
    (record,) = caplog.records
    shown: Any = record
    assert record.getMessage() == "half of it is done"
    assert (shown.job_id, shown.job_type) == (str(job.id), "test.job")
    assert (shown.queue, shown.attempt) == (job.queue, 1)
    assert "hunter2" not in str(vars(record))


@pytest.mark.parametrize("extend", [None, timedelta(minutes=5)])
def test_a_heartbeat_says_whether_the_job_is_still_held(extend: timedelta | None) -> None:
    job = make.active()
    heart = Heart(held=True)
    context = ojs.JobContext(job, heartbeat=heart)
    assert context.heartbeat(extend) is True
    assert async_to_sync(context.aheartbeat)(extend) is True
    assert heart.beats == [(job, extend), (job, extend)]
    assert not context.cancelled


@pytest.mark.parametrize("way", ["heartbeat", "aheartbeat"])
def test_a_heartbeat_for_a_job_that_is_lost_cancels_the_run(way: str) -> None:
    context = ojs.JobContext(make.active(), heartbeat=Heart(held=False))
    beat = context.heartbeat if way == "heartbeat" else async_to_sync(context.aheartbeat)
    assert beat() is False
    assert context.cancelled


@pytest.mark.parametrize("extend", [300, 300.0, "PT5M", "5m"])
def test_a_heartbeat_takes_seconds_and_durations(extend: float | str) -> None:
    job = make.active()
    heart = Heart(held=True)
    context = ojs.JobContext(job, heartbeat=heart)
    assert context.heartbeat(extend) is True
    assert async_to_sync(context.aheartbeat)(extend) is True
    assert heart.beats == [(job, timedelta(minutes=5))] * 2


@pytest.mark.parametrize("extend", [0, -5, timedelta(0), timedelta(seconds=-5), 1e300, "soon"])
@pytest.mark.parametrize("way", ["heartbeat", "aheartbeat"])
def test_a_heartbeat_by_no_time_is_an_error(extend: Any, way: str) -> None:
    heart = Heart(held=True)
    context = ojs.JobContext(make.active(), heartbeat=heart)
    beat = context.heartbeat if way == "heartbeat" else async_to_sync(context.aheartbeat)
    with pytest.raises(InvalidRequest, match="extend"):
        beat(extend)
    assert heart.beats == []


def test_without_a_worker_a_heartbeat_succeeds() -> None:
    assert ojs.JobContext(make.active()).heartbeat() is True


def test_cancelling_is_seen_by_the_handler() -> None:
    context = ojs.JobContext(make.active())
    context.cancel()
    assert context.cancelled


@together("value", [{"a": 1}, 0, "", False, [], None], undo=True)
def test_a_result_that_was_set_goes_before_the_returned_one(value: Any) -> None:
    context = ojs.JobContext(make.active())
    assert context.result("returned") == "returned"
    context.set_result(value)
    assert context.result("returned") == value
    assert context.result(None) == value


def test_the_current_context_is_that_of_the_run_and_of_nothing_else() -> None:
    assert ojs.current_context() is None
    context = ojs.JobContext(make.active())
    contexts.enter(context)
    try:
        assert ojs.current_context() is context
    finally:
        contexts.enter(None)
    assert ojs.current_context() is None


class Listener:
    """Who writes progress, as far as the context sees it."""

    def __init__(self, *, held: bool = True, failure: Exception | None = None) -> None:
        self.held = held
        self.failure = failure
        self.reports: list[Report] = []

    def __call__(self, job: Claimed, report: Report) -> bool:
        self.reports.append(report)
        if self.failure is not None:
            raise self.failure
        return self.held


@pytest.mark.requirement("PRG-R005")
def test_the_first_report_is_written_at_once_and_the_latest_of_a_second_at_the_end() -> None:
    listener = Listener()
    context = ojs.JobContext(make.active(), report=listener)
    assert context.progress(0.1, checkpoint={"row": 1}) is True
    for share in (0.2, 0.3):
        context.progress(share)
    context.progress(data={"row": 3})
    assert listener.reports == [Report(progress=0.1, checkpoint={"row": 1})]
    assert context.has_unsent
    context.flush()
    assert listener.reports[1:] == [Report(progress=0.3, data={"row": 3})]
    context.flush()
    assert len(listener.reports) == 2


def test_reports_are_written_as_they_come_once_a_second_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contexts, "REPORT_EVERY", 0.0)
    listener = Listener()
    context = ojs.JobContext(make.active(), report=listener)
    context.progress(0.1)
    assert async_to_sync(context.aprogress)(0.2) is True
    assert [report.progress for report in listener.reports] == [0.1, 0.2]


def test_a_report_of_a_lost_run_says_so_and_no_other_follows() -> None:
    listener = Listener(held=False)
    context = ojs.JobContext(make.active(), report=listener)
    assert context.progress(0.1) is False
    assert context.cancelled
    assert context.progress(0.2) is False
    context.flush()
    assert len(listener.reports) == 1


@pytest.mark.parametrize(
    ("values", "failure", "said"),
    [
        ({"data": object()}, None, "data must be an object"),
        ({"progress": float("nan")}, None, "progress must be a number"),
        ({"progress": 0.5}, RuntimeError("secret"), "RuntimeError"),
    ],
)
def test_whatever_goes_wrong_with_progress_is_logged_and_harms_nothing(
    values: dict[str, Any],
    failure: Exception | None,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = ojs.JobContext(make.active(), report=Listener(failure=failure))
    assert context.progress(**values) is True
    assert said in caplog.text
    assert "secret" not in caplog.text


def test_a_message_is_a_member_of_the_data() -> None:
    listener = Listener()
    context = ojs.JobContext(make.active(), report=listener)
    context.progress(0.4, "page 4 of 10")
    async_to_sync(context.aprogress)(0.5, "page 5 of 10", data={"page": 5})
    context.flush()
    assert [report.data for report in listener.reports] == [
        {"message": "page 4 of 10"},
        {"page": 5, "message": "page 5 of 10"},
    ]


def test_a_coroutine_that_reports_in_a_loop_leaves_its_thread_once_a_second() -> None:
    context = ojs.JobContext(make.active(), report=Listener())

    async def report() -> None:
        await context.aprogress(0.1)
        with pytest.raises(StopIteration):
            # Nothing is awaited: the coroutine ends with its first step.
            context.aprogress(0.2).send(None)

    async_to_sync(report)()
    assert context.has_unsent


def test_outside_of_a_worker_progress_and_checkpoints_go_nowhere() -> None:
    context = ojs.JobContext(make.active())
    assert context.progress(0.5) is True
    context.checkpoint({"row": 5})
    assert context.last_checkpoint is None


def test_a_mock_of_the_context_has_what_a_handler_uses() -> None:
    context = Mock(spec=ojs.JobContext)
    context.metadata = {"user": 7}
    context.log.info("hello")
    assert context.job.id is not None
    for name in ("args", "attempt", "queue", "is_async", "cancelled", "progress", "set_result"):
        assert hasattr(context, name)
    with pytest.raises(AttributeError):
        context.no_such_thing  # noqa: B018  # the access is the point


def test_a_checkpoint_without_the_extension_says_the_line_to_add() -> None:
    context = ojs.JobContext(make.active(), extensions={})
    with pytest.raises(ImproperlyConfigured, match=r'Add "django_ojs\.extensions\.checkpoints" to'):
        context.checkpoint({"at": 1})
    assert not context.cancelled


def test_the_checkpoint_of_a_report_without_the_extension_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports: list[Report] = []

    def report(job: Claimed, reported: Report) -> bool:
        reports.append(reported)
        return True

    context = ojs.JobContext(make.active(), report=report, extensions={})
    context.progress(0.5, checkpoint={"at": 1})
    assert reports == [Report(progress=0.5)]
    assert 'Add "django_ojs.extensions.checkpoints" to' in caplog.text

"""What a handler knows of its run, and what it can ask for."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

import django_ojs as ojs
from django_ojs import context as contexts
from django_ojs.storage.claims import Claimed
from tests import factories as make

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
    assert (context.queue, context.attempt) == (job.queue, 1)
    assert (context.job.args, context.job.meta) == (["x"], {"a": 1})
    assert context.metadata == {}
    assert not context.cancelled


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


def test_without_a_worker_a_heartbeat_succeeds() -> None:
    assert ojs.JobContext(make.active()).heartbeat() is True


def test_cancelling_is_seen_by_the_handler() -> None:
    context = ojs.JobContext(make.active())
    context.cancel()
    assert context.cancelled


@pytest.mark.parametrize("value", [{"a": 1}, 0, "", False, [], None])
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

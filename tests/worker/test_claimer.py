"""How a worker process claims: after errors, in polls, and at notifications that come meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.db import OperationalError

from django_ojs.operations import beat
from django_ojs.storage import notify
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.worker import claimer
from django_ojs.worker.process import WorkerProcess
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.ledger import ALIASES, becomes, release, started, stored
from tests.worker.test_process import working
from tests.worker.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=ALIASES)

META = {"payload": "x" * 1000}

T = TypeVar("T")


def returned(name: str, monkeypatch: pytest.MonkeyPatch, read: Callable[[Any], T]) -> list[T]:
    """Return the list to which each call of a function of the claimer adds what it returned."""
    found: list[T] = []
    real = getattr(claimer, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        found.append(read(result))
        return result

    monkeypatch.setattr(claimer, name, function)
    return found


def test_a_claim_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [OperationalError("a secret"), OperationalError("a secret")]
    real = claimer.fetch

    def fetch(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(claimer, "fetch", fetch)
    job = stored(handlers.note.enqueue())
    with working():
        becomes(job, "completed")
    assert caplog.text.count("The database does not respond") == 1
    assert "a secret" not in caplog.text


def test_a_claim_whose_jobs_a_hook_has_set_aside_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, dropped = claimer.fetch, []

    def fetch(*args: Any, **kwargs: Any) -> Any:
        jobs = real(*args, **kwargs)
        if not dropped:
            dropped.extend(jobs)
            jobs = []
        return jobs

    monkeypatch.setattr(claimer, "fetch", fetch)
    monkeypatch.setattr(claimer.Claimer, "_wanted", lambda _: 1)
    jobs = [stored(handlers.note.enqueue()) for _ in range(3)]
    with working(poll_interval=timedelta(hours=1)):
        for job in jobs[1:]:
            becomes(job, "completed")
    assert [each.id for each in dropped] == [jobs[0].pk]


@pytest.mark.postgresql
def test_a_notification_does_not_end_the_pause_after_a_failed_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The listener has a connection, and the thread that claims finds none.
    failing = threading.Event()
    real_fetch, real_wait = claimer.fetch, WorkerProcess._wait
    attempts, waits = [], []

    def fetch(*args: Any, **kwargs: Any) -> Any:
        if failing.is_set():
            attempts.append(1)
            raise OperationalError("sorry, too many clients already")
        return real_fetch(*args, **kwargs)

    def wait(process: WorkerProcess) -> None:
        waits.append(1)
        real_wait(process)

    monkeypatch.setattr(claimer, "fetch", fetch)
    monkeypatch.setattr(WorkerProcess, "_wait", wait)
    monkeypatch.setattr(Backoff, "pause", lambda self: 3600.0)
    with working(poll_interval=timedelta(hours=1)) as process:
        eventually(lambda: hasattr(process, "_listener"), "it starts")
        eventually(lambda: process._listener.listening and waits, "it listens")
        failing.set()
        notify.throttle.reset()
        stored(handlers.note.enqueue())
        eventually(lambda: attempts, "a claim has failed")
        for _ in range(3):
            expected = len(waits) + 1

            def is_woken(expected: int = expected) -> bool:
                # Again and again: one that comes just before it waits does not wake it.
                process._on_notify()
                return len(waits) >= expected

            eventually(is_woken, "it is woken")
        assert len(attempts) == 1
        process._claimer.on_connected()
        process._on_notify()
        eventually(lambda: len(attempts) > 1, "the database is back")


def test_jobs_whose_claim_was_committed_and_not_confirmed_run_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The connection is lost between the commit and its response; the lease lasts half an hour.
    caplog.set_level(logging.INFO, "django_ojs")
    real, lost = claimer.fetch, []

    def fetch(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if found and not lost:
            lost.extend(found)
            raise OperationalError
        return found

    monkeypatch.setattr(claimer, "fetch", fetch)
    job = stored(handlers.note.enqueue())
    with working():
        assert becomes(job, "completed").spent == 1
    assert [claimed.id for claimed in lost] == [job.pk]
    assert "Available again: 1 job that this worker had claimed" in caplog.text


def test_a_notification_that_comes_while_a_claim_looks_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PostgreSQL, "listen", lambda *_: None)
    # No poll soon after a notification: what finds the job is that one came.
    monkeypatch.setattr(notify, "INTERVAL", 0.0)
    real, jobs, ready = claimer.fetch, [], threading.Event()

    def fetch(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if not found and not jobs and ready.is_set():
            jobs.append(stored(handlers.note.enqueue()))
            process._on_notify()
        return found

    monkeypatch.setattr(claimer, "fetch", fetch)
    with working(poll_interval=timedelta(hours=1)) as process:
        eventually(lambda: hasattr(process, "_listener"), "it starts")
        ready.set()
        process._on_notify()
        eventually(lambda: jobs, "a claim has found nothing")
        becomes(jobs[0], "completed")


class TestWithoutRoom:
    """A worker that may not claim waits for a signal: it does not try again and again."""

    def test_for_the_bytes_of_the_jobs_in_flight(self, settings: Any) -> None:
        settings.OJS = {**getattr(settings, "OJS", {}), "MAX_FETCH_BYTES": 1}
        with working(threads=1) as process:
            # Short jobs: it would claim more of them than it has threads.
            for number in range(3):
                becomes(stored(handlers.quick.enqueue(number)), "completed")
            jobs = [stored(handlers.wait.options(meta=META).enqueue()) for _ in range(3)]
            started(jobs[0])
            process._claim_sizer.record(0.0)
            assert process._claim_sizer.claim_size(process._in_flight.busy) > 0
            process._claimer.on_notify()
            assert not process._can_claim()
            for job in jobs:
                release(job)
                becomes(job, "completed")

    def test_while_no_heartbeat_is_stored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failing, real = threading.Event(), beat.beat

        def send(*args: Any, **kwargs: Any) -> Any:
            if failing.is_set():
                raise OperationalError("sorry, too many clients already")
            return real(*args, **kwargs)

        monkeypatch.setattr(beat, "beat", send)
        with working(heartbeat_interval=timedelta(hours=1)) as process:
            becomes(stored(handlers.note.enqueue()), "completed")
            heartbeat = process._heartbeat

            def has_failed() -> bool:
                # Again and again: a heartbeat that ends meanwhile sets when the next one is due.
                heartbeat._due = 0.0
                heartbeat._wake.set()
                return not heartbeat.registered

            failing.set()
            eventually(has_failed, "a heartbeat has failed")
            job = stored(handlers.note.enqueue())
            process._claimer.on_notify()
            assert not process._can_claim()
            failing.clear()
            becomes(job, "completed")


class TestAPoll:
    """A claim that nothing woke the worker for: there are no notifications."""

    @pytest.fixture(autouse=True)
    def without_notifications(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PostgreSQL, "listen", lambda *_: None)

    @pytest.fixture
    def claims(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many jobs each claim found, of a worker that polls."""
        return returned("fetch", monkeypatch, len)

    @pytest.fixture
    def polls(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Whether each poll saw that there may be a job."""
        return returned("may_find", monkeypatch, bool)

    def test_it_claims_only_if_there_may_be_a_job(
        self, claims: list[int], polls: list[bool]
    ) -> None:
        with working():
            eventually(lambda: len(polls) > 3, "it polls")
            empty = claims.count(0)
            job = stored(handlers.note.enqueue())
            becomes(job, "completed")
            eventually(lambda: len(polls) > 6, "it polls on")
        assert True in polls
        assert 1 in claims
        # None for a poll that saw no job; some as it starts, and when a job has ended.
        assert claims.count(0) - empty <= 2
        assert empty <= 2

    def test_it_claims_at_once_from_very_many_queues(
        self, claims: list[int], polls: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claimer, "MAX_ASKED_QUEUES", 1)
        with working(queues=("default", "other")):
            eventually(lambda: len(claims) > 8, "it claims")
        assert polls == []

    def test_after_slow_polls_it_claims_which_makes_floors(
        self, claims: list[int], polls: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claimer.claim_floors, "SLOW", -1.0)
        monkeypatch.setattr(claimer.claim_floors, "LONGEST", 3600.0)
        with working():
            eventually(lambda: len(claims) > 8, "it claims")
        assert len(polls) == claimer.SLOW_POLLS

"""What a worker says: names and times, and never what is in a job."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_ojs.models import Job
from django_ojs.operations.fail import Ended
from django_ojs.spec.failure import DeadLetter, Discard, Failure, Retry
from django_ojs.spec.states import State
from django_ojs.worker import job_log as job_logs
from django_ojs.worker.job_log import JobLog, duration, number_of_jobs
from tests.cases import together
from tests.worker.parts import run_of

SECRET = "4111-1111-1111-1111"
RUN = run_of(lambda number: None, SECRET)


@together(
    ("seconds", "said"),
    [
        (0.0, "0.0 ms"),
        (0.00042, "0.4 ms"),
        (0.0123, "12 ms"),
        (0.5, "500 ms"),
        (1.0, "1.0 s"),
        (59.96, "60.0 s"),
        (119, "119.0 s"),
        (120, "2 min"),
        (3600, "60 min"),
    ],
)
def test_a_duration_is_said_as_a_person_would(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [(1, "", "1 job"), (0, "", "0 jobs"), (2, "running", "2 running jobs")],
)
def test_a_number_of_jobs_has_its_plural(number: int, kind: str, said: str) -> None:
    assert number_of_jobs(number, kind) == said


def test_the_unit_never_shows_a_thousand_of_the_smaller_one() -> None:
    assert duration(0.9996) == "1.0 s"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "django_ojs")
    return caplog


def test_a_completed_job_is_one_line_with_type_id_and_duration(
    log: pytest.LogCaptureFixture,
) -> None:
    job_log = JobLog()
    job_log.completed([(RUN, 0.25)])
    (record,) = log.records
    assert record.getMessage() == f"test.job {RUN.job.id} completed in 250 ms"
    assert (record.levelno, job_log.completed_count, job_log.failed_count) == (logging.INFO, 1, 0)
    fields = ("job_id", "job_type", "queue", "attempt", "duration_ms", "status")
    assert [vars(record)[name] for name in fields] == [
        str(RUN.job.id),
        "test.job",
        "default",
        1,
        250.0,
        "completed",
    ]


@pytest.mark.parametrize(
    ("job", "level", "expected"),
    [
        (
            Job(
                state="retryable",
                attempt=4,
                returned=3,
                max_attempts=3,
                due_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            ),
            logging.WARNING,
            # Not today.
            "attempt 1 of 3, next attempt at 2026-01-02 04:04:05",
        ),
        (
            Job(state="discarded", attempt=1, dead_letter=True),
            logging.ERROR,
            "dead letter after attempt 1",
        ),
        (Job(state="discarded", attempt=1), logging.ERROR, "discarded after attempt 1"),
    ],
)
@override_settings(TIME_ZONE="Europe/Paris")
def test_a_failed_job_says_why_and_what_comes_next(
    log: pytest.LogCaptureFixture, job: Job, level: int, expected: str
) -> None:
    job_log = JobLog()
    job_log.failed(RUN, Failure(type="Boom", message="no\nmoney"), job, 2.0, None)
    (record,) = log.records
    assert record.getMessage() == (
        f"test.job {RUN.job.id} failed in 2.0 s: Boom: no money ({expected})"
    )
    assert (record.levelno, job_log.failed_count, vars(record)["status"]) == (level, 1, "failed")


def test_the_next_attempt_has_its_date_unless_it_is_today(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In Paris it is half past midnight of the third day.
    monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 1, 2, 23, 30, tzinfo=UTC))
    with override_settings(TIME_ZONE="Europe/Paris"):
        for hour, minute in ((22, 59), (23, 45)):
            due_at = datetime(2026, 1, 2, hour, minute, 5, 999_999, tzinfo=UTC)
            ended = Ended(State.RETRYABLE, 1, 3, due_at)
            JobLog().failed(RUN, Failure(type="Boom", message=""), ended, 1.0, None)
    assert [record.getMessage().partition(" at ")[2] for record in log.records] == [
        "2026-01-02 23:59:05)",
        "00:45:05)",
    ]


def test_a_job_that_may_have_no_limit_key_is_not_said_to_have_one(
    log: pytest.LogCaptureFixture,
) -> None:
    until = timezone.now() + timedelta(hours=1)
    failure = Failure(type="RateLimitExceeded", message="", rate_limit_until=until)
    JobLog().failed(RUN, failure, Ended(State.RETRYABLE, 1, 3, until), 1.0, None)
    (record,) = log.records
    assert " (no attempt is spent, next attempt at " in record.getMessage()
    assert "key" not in record.getMessage()


def test_a_long_message_is_cut_and_an_empty_one_left_out(log: pytest.LogCaptureFixture) -> None:
    for message in ("x" * 10_000, ""):
        JobLog().failed(
            RUN, Failure(type="Boom", message=message), Job(state="discarded"), 1.0, None
        )
    long, empty = (record.getMessage() for record in log.records)
    assert len(long) < 700
    assert "xx… (discarded" in long
    assert "Boom (discarded" in empty


@pytest.mark.parametrize("cause", [Retry("later"), Discard("no"), DeadLetter("no")])
def test_a_decision_of_the_handler_has_no_traceback(
    log: pytest.LogCaptureFixture, cause: Exception
) -> None:
    JobLog().failed(RUN, Failure.from_exception(cause), Job(state="discarded"), 1.0, cause)
    assert log.records[0].exc_info is None


def test_messages_and_tracebacks_can_be_kept_out_of_the_log(
    log: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.OJS = {"LOG_ERROR_MESSAGES": False, "LOG_TRACEBACKS": False}
    job_log = JobLog()
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        job_log.failed(
            RUN, Failure.from_exception(error), Job(state="discarded", dead_letter=True), 1.0, error
        )
    job_log.completed([(RUN, 1.0)])
    job_log.claim_lost(RUN)
    job_log.unknown_type("test.job")
    job_log.database_away(ValueError(SECRET))
    assert len(log.records) == 5
    for record in log.records:
        assert SECRET not in logging.Formatter().format(record)
        assert SECRET not in repr(vars(record))


def test_a_traceback_does_not_repeat_the_messages_that_are_kept_out(
    log: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.OJS = {"LOG_ERROR_MESSAGES": False}
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ExceptionGroup(SECRET, [ValueError(SECRET)]) from error
    except ExceptionGroup as error:
        error.add_note(SECRET)
        JobLog().failed(RUN, Failure.from_exception(error), Job(state="discarded"), 1.0, error)
    written = logging.Formatter().format(log.records[0])
    assert SECRET not in written
    for each in ("KeyError", "ExceptionGroup", "ValueError", "test_job_log.py"):
        assert each in written


def test_the_same_warning_is_logged_once_in_30_seconds(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_log = JobLog()
    for _ in range(3):
        job_log.unknown_type("a.b")
        job_log.unknown_type("c.d")
    assert [re.findall(r"'(\w\.\w)'", record.getMessage()) for record in log.records] == [
        ["a.b"],
        ["c.d"],
    ]
    now = job_logs.time.monotonic() + job_logs.REPEAT_AFTER
    monkeypatch.setattr(job_logs.time, "monotonic", lambda: now)
    job_log.unknown_type("a.b")
    assert len(log.records) == 3


def test_a_summary_is_logged_every_few_seconds_while_there_is_work(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = job_logs.time.monotonic()
    now = [start]
    monkeypatch.setattr(job_logs.time, "monotonic", lambda: now[0])
    job_log = JobLog()

    def passes(seconds: float, in_flight: int) -> list[str]:
        log.clear()
        now[0] += seconds
        job_log.summary(in_flight)
        return [record.getMessage() for record in log.records]

    assert passes(1, in_flight=3) == []
    job_log.completed_count += 20
    assert passes(4, in_flight=3) == ["20 completed, 0 failed, 3 in flight, 4 jobs/s"]
    assert passes(5, in_flight=0) == []
    assert passes(5, in_flight=1) == ["20 completed, 0 failed, 1 in flight, 0 jobs/s"]

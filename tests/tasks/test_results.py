"""What a TaskResult shows of a job: runs, errors, results, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import ack, expiry, fail, fetch, promotion, queues
from django_ojs.spec.failure import Failure
from tests.factories import age, claim, held
from tests.tasks.names import TaskResultStatus, task_backends
from tests.tasks.work import job_of, work

pytestmark = pytest.mark.django_db


def test_a_task_that_succeeds(tasks: ModuleType) -> None:
    result = tasks.add.enqueue(1)
    work("worker-b")
    result.refresh()
    job = job_of(result)
    assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", 11, [])
    assert (result.worker_ids, result.attempts) == (["worker-b"], 1)
    assert result.started_at == result.last_attempted_at == max(job.created_at, job.started_at)
    assert result.finished_at == max(job.finished_at, result.started_at)


def test_no_moment_is_before_an_earlier_one(tasks: ModuleType) -> None:
    """SQLite's clock has milliseconds; Django's own tests of backends compare the moments."""
    result = tasks.add.enqueue(1)
    work()
    second = datetime(2026, 3, 1, tzinfo=UTC)
    ended = {"started_at": second, "finished_at": second}
    later = second + timedelta(microseconds=9)
    Job.primary.filter(pk=result.id).update(created_at=later, **ended)
    result.refresh()
    assert result.enqueued_at == result.started_at == result.finished_at == later


def test_a_running_task_sees_itself(tasks: ModuleType) -> None:
    result = tasks.attempt.enqueue("hi")
    work("worker-b")
    result.refresh()
    assert result.return_value == ["hi", 1, "RUNNING", result.id, ["worker-b"]]


def test_an_async_task(tasks: ModuleType) -> None:
    result = tasks.shout.enqueue("hi")
    work()
    result.refresh()
    assert result.return_value == "HI 1"


@pytest.mark.parametrize(("name", "value"), [("bytes", "abc"), ("tuple", [1, 2])])
def test_a_return_value_is_normalized_as_django_does(
    tasks: ModuleType, name: str, value: Any
) -> None:
    result = tasks.give.enqueue(name)
    work()
    result.refresh()
    assert result.return_value == value


def test_a_failed_run_is_an_error_and_the_task_is_ready_again(tasks: ModuleType) -> None:
    result = tasks.fail.enqueue("no such order")
    work("worker-a")
    result.refresh()
    (error,) = result.errors
    assert (result.status, result.is_finished) == (TaskResultStatus.READY, False)
    assert error.exception_class is ValueError
    lines = error.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2].endswith("in fail")
    assert lines[-1] == "ValueError: no such order"

    for worker_id in ("worker-b", "worker-c"):
        age(job_of(result).pk, timedelta(hours=1))
        promotion.promote()
        work(worker_id)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)
    assert result.worker_ids == ["worker-a", "worker-b", "worker-c"]
    assert [each.exception_class for each in result.errors] == [ValueError] * 3
    assert result.started_at < result.last_attempted_at < result.finished_at
    with pytest.raises(ValueError, match="Task failed"):
        assert result.return_value


def test_a_later_attempt_knows_the_earlier_ones(tasks: ModuleType) -> None:
    result = tasks.attempt.enqueue("hi")
    fail.fail(job_of(result).pk, _error(), claim=held(claim(job_of(result), "worker-b")))
    age(job_of(result).pk, timedelta(hours=1))
    promotion.promote()
    work("worker-a")
    result.refresh()
    assert result.return_value == ["hi", 2, "RUNNING", result.id, ["worker-b", "worker-a"]]


def test_a_run_that_never_began_is_no_attempt(tasks: ModuleType) -> None:
    result = tasks.add.enqueue(1)
    claimed = claim(job_of(result), "worker-b")
    fail.postpone(claimed.id, _error(), delay=timedelta(seconds=30), claim=held(claimed))
    result.refresh()
    assert (result.attempts, result.errors, result.started_at) == (0, [], None)
    assert result.status == TaskResultStatus.READY


def test_a_worker_without_an_id_counts(tasks: ModuleType) -> None:
    result = tasks.add.enqueue(1)
    ack.ack(claim(job_of(result), None).id)
    result.refresh()
    assert (result.attempts, result.worker_ids) == (1, [""])


def _error(**values: Any) -> Failure:
    return Failure(**({"type": "Boom", "message": "it broke"} | values))


def _cancel(result: Any) -> None:
    ojs.cancel(result.id)


def _expire(result: Any) -> None:
    age(job_of(result).pk, timedelta(hours=2))
    expiry.expire()


def _drop(result: Any) -> None:
    queues.configure("default", {"backpressure": {"max_depth": 1, "strategy": "drop_oldest"}})
    ojs.enqueue("testapp.add", [1])


def _time_out(result: Any) -> None:
    claimed = claim(job_of(result))
    timeout = _error(type="timeout", message="It ran longer than 30 s.", retryable=False)
    fail.fail(claimed.id, timeout, claim=held(claimed), outcome=AttemptOutcome.TIMEOUT)


@pytest.mark.parametrize(
    ("end", "name", "says"),
    [
        (_cancel, "TaskCancelled", "The job was cancelled."),
        (_expire, "TaskDiscarded", "The job expired before it ran."),
        (_drop, "TaskDiscarded", "The queue was full, and the job was dropped for a newer one."),
        (_time_out, "TaskFailed", "timeout: It ran longer than 30 s."),
    ],
)
def test_a_task_that_ended_without_an_exception_says_why(
    tasks: ModuleType, end: Callable[[Any], None], name: str, says: str
) -> None:
    result = tasks.add.using(expires_at=timedelta(hours=1)).enqueue(1)
    end(result)
    result.refresh()
    (error,) = result.errors
    assert result.status == TaskResultStatus.FAILED
    assert error.exception_class.__name__ == name
    assert error.traceback == f"django_ojs.tasks.exceptions.{name}: {says}\n"


def test_a_worker_over_http_cannot_name_a_class_to_import(tasks: ModuleType) -> None:
    result = tasks.add.enqueue(1)
    claimed = claim(job_of(result))
    sent = {
        "type": "Boom",
        "message": "it broke",
        "backtrace": ["main.go:1"],
        "exception_class": "antigravity.Exception",
        "details": {"exception_class": "antigravity.Exception"},
    }
    fail.fail(claimed.id, Failure.parse(sent), claim=held(claimed))
    result.refresh()
    (error,) = result.errors
    assert error.exception_class_path == "django_ojs.tasks.exceptions.TaskFailed"
    assert error.traceback.splitlines()[1] == "  main.go:1"
    assert "exception_class" not in Attempt.objects.get(job_id=claimed.id).error


def test_the_class_of_an_exception_is_kept_for_tasks_alone(tasks: ModuleType) -> None:
    raised = ValueError("x")
    assert "exception_class" not in Failure.from_exception(raised).render()
    kept = Failure.from_exception(raised, keep_class=True).render()
    assert kept["exception_class"] == "builtins.ValueError"


def test_a_job_that_was_retried_by_hand_goes_on(tasks: ModuleType) -> None:
    result = tasks.fail.enqueue("no")
    claimed = claim(job_of(result))
    fail.fail(claimed.id, _error(retryable=False), claim=held(claimed))
    ojs.retry(result.id)
    result.refresh()
    assert (result.status, result.attempts, result.finished_at) == ("READY", 1, None)
    assert len(result.errors) == 1


def test_pending_and_scheduled_tasks_are_ready(tasks: ModuleType) -> None:
    result = tasks.add.using(pending=True).enqueue(1)
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert not fetch.fetch(["default"], worker_id="worker-a")
    ojs.activate(result.id)
    work()
    assert task_backends["default"].get_result(result.id).return_value == 11

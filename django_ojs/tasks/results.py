"""The `TaskResult` of a job, made from its row."""

from dataclasses import fields
from datetime import datetime
from typing import Any

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.spec import times
from django_ojs.spec.json import JSON
from django_ojs.spec.states import State
from django_ojs.storage.claimed_job import Claimed
from django_ojs.tasks.compat import (
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_backends,
)
from django_ojs.tasks.exceptions import TaskCancelled, TaskDiscarded, TaskFailed
from django_ojs.tasks.queue_names import task_queue

_STATUS = {
    State.ACTIVE: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.DISCARDED: TaskResultStatus.FAILED,
}
#: The outcomes of runs that ended with an error; other runs were stopped or returned.
_FAILED = (
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMEOUT,
    AttemptOutcome.LAPSED,
    AttemptOutcome.LOST,
)
#: The reasons of discards that no run caused.
_DISCARDED = {
    "expired": "The job expired before it ran.",
    "dropped": "The queue was full, and the job was dropped for a newer one.",
    "rate_limited": "The rate limit of the job did not let it start, and the job was dropped.",
    "operator": "An operator discarded the job.",
}


def result_of(
    job: Job | Claimed, task: AnyTask, args: list[Any], kwargs: dict[str, Any]
) -> AnyResult:
    """Return the result of a job whose task, arguments and backend are known."""
    state = State(job.state)
    # A first run has no Attempt while it runs, nor if it succeeded.
    has_history = job.run > 1 or (job.run and state not in (State.ACTIVE, State.COMPLETED))
    ended = _attempts(job) if has_history else []
    # A run that was returned did not begin.
    begun = [run for run in ended if run.outcome != AttemptOutcome.RETURNED]
    worker_ids = [run.worker_id or "" for run in begun]
    if state in (State.ACTIVE, State.COMPLETED):
        worker_ids.append(job.worker_id or "")
    first = begun[0].started_at if begun else None
    enqueued_at, started_at, last_at, ended_at = _in_order(
        job.created_at,
        first or (job.started_at if worker_ids else None),
        job.started_at if worker_ids else None,
        job.finished_at,
    )
    result: AnyResult = TaskResult(
        task=task,
        id=str(job.pk),
        status=_STATUS.get(state, TaskResultStatus.READY),
        enqueued_at=enqueued_at,
        started_at=started_at,
        last_attempted_at=last_at,
        finished_at=ended_at,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[_error(run.error or {}) for run in ended if run.outcome in _FAILED] + _end(job),
        worker_ids=worker_ids,
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def _in_order(*moments: datetime | None) -> list[datetime | None]:
    """Return moments, each moved to the one before it if it is earlier.

    Enqueue times have microseconds, for the order of jobs, but SQLite's clock only milliseconds.
    """
    found: list[datetime | None] = []
    latest = None
    for moment in moments:
        if moment is not None:
            moment = latest = moment if latest is None else max(moment, latest)
        found.append(moment)
    return found


def _attempts(job: Job | Claimed) -> list[Attempt]:
    if not job.run:
        return []
    return list(Attempt.primary.filter(job_id=job.pk).order_by("run"))


def stored_task(task: AnyTask, job: Job | Claimed, backend: str) -> AnyTask:
    """Return a task as a job was enqueued with it.

    It leaves out the validation of `using`, because the settings may have changed since the job was
    enqueued.
    """
    values = {
        **{field.name: getattr(task, field.name) for field in fields(task)},
        "priority": job.priority,
        "queue_name": task_queue(task_backends[backend], job.queue),
        "backend": backend,
        "run_after": _run_after(job.options.get("scheduled_at")),
    }
    found: AnyTask = object.__new__(type(task))
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def _run_after(text: JSON) -> datetime | None:
    return times.parse_timestamp(text, "scheduled_at") if isinstance(text, str) else None


def _end(job: Job | Claimed) -> list[TaskError]:
    """Return the error that says why a job ended, unless a failed run was the reason."""
    if job.state == State.CANCELLED:
        return [error_of(TaskCancelled, "The job was cancelled.")]
    if job.discard_reason in _DISCARDED:
        return [error_of(TaskDiscarded, _DISCARDED[job.discard_reason])]
    return []


def _error(error: dict[str, Any]) -> TaskError:
    """Return a stored failure as an error of Django.

    Only a worker of this project can have stored `exception_class`: see `spec.failure`.
    """
    path, kind = error.get("exception_class"), error.get("type", "")
    if path is None:
        return error_of(TaskFailed, f"{kind}: {error.get('message', '')}", error)
    return TaskError(
        exception_class_path=path, traceback=_traceback(path, error.get("message", ""), error)
    )


def error_of(
    exception: type[Exception], message: str, error: dict[str, Any] | None = None
) -> TaskError:
    """Return an error of a class of `exceptions`, with the frames of a stored failure."""
    path = f"{exception.__module__}.{exception.__qualname__}"
    return TaskError(exception_class_path=path, traceback=_traceback(path, message, error or {}))


def _traceback(path: str, message: str, error: dict[str, Any]) -> str:
    frames = "".join(f"  {frame}\n" for frame in error.get("backtrace", ()))
    header = "Traceback (most recent call last):\n" if frames else ""
    return f"{header}{frames}{path.removeprefix('builtins.')}: {message}\n"

"""Results: the job of a task, as Celery shows it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django_ojs.context import current_context
from django_ojs.contrib.celery import exceptions
from django_ojs.contrib.celery.exceptions import NoEquivalent, TaskError, TaskRevokedError
from django_ojs.contrib.celery.values import decode
from django_ojs.models import Job
from django_ojs.operations import cancel, info
from django_ojs.spec import ids, progress
from django_ojs.spec.errors import Conflict, JobNotFound, OJSError
from django_ojs.spec.states import State
from django_ojs.storage import database

_STATES: Final = {
    State.ACTIVE: "STARTED",
    State.RETRYABLE: "RETRY",
    State.COMPLETED: "SUCCESS",
    State.DISCARDED: "FAILURE",
    State.CANCELLED: "REVOKED",
}
_ENDED: Final = ("SUCCESS", "FAILURE", "REVOKED")


class AsyncResult:
    """The result of a task, by the id of its job. Each property queries the job."""

    def __init__(
        self,
        id: UUID | str,
        *args: Any,
        parent: AsyncResult | GroupResult | None = None,
        **kwargs: Any,
    ) -> None:
        self.id = str(id)
        #: The result of the task before it in its chain, or of the group before it in its chord.
        self.parent = parent

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __eq__(self, other: object) -> bool:
        return str(other) == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def task_id(self) -> str:
        return self.id

    def job(self) -> Job | None:
        """Query the job. Return None if it is not enqueued yet, or was deleted."""
        try:
            return info.info(ids.parse_id(self.id))
        except (JobNotFound, OJSError):
            return None

    def _decisive(self) -> Job | None:
        """Query the job, or the job of an earlier task in its chain if that has failed."""
        job = self.job()
        if job is None and self.parent is not None:
            before = self.parent._decisive()
            if before is not None and before.state in (State.DISCARDED, State.CANCELLED):
                return before
        return job

    @property
    def state(self) -> str:
        """Celery's name of the job's state; a job that does not exist is PENDING, as in Celery.

        If an earlier task of its chain failed or was cancelled, this is the state of that task,
        provided that `parent` is known.
        """
        return _state(self._decisive())

    status = state

    @property
    def result(self) -> Any:
        """What the task returned or reported with `update_state`, or the error of a failure."""
        return _result(self._decisive())

    info = result

    @property
    def traceback(self) -> str | None:
        """The frames of the last failed run."""
        job = self._decisive()
        frames = (job.error or {}).get("backtrace") if job is not None else None
        return "\n".join(frames) if frames else None

    @property
    def date_done(self) -> datetime | None:
        """When the task ended."""
        job = self.job()
        return None if job is None else job.finished_at

    @property
    def retries(self) -> int | None:
        """How often the task was retried."""
        job = self.job()
        return None if job is None else max(0, job.spent - 1)

    @property
    def queue(self) -> str | None:
        """The queue of the job."""
        job = self.job()
        return None if job is None else job.queue

    def maybe_throw(self, propagate: bool = True, **kwargs: Any) -> Any:
        """Return the present result, or raise the error of a failure."""
        job = self._decisive()
        result = _result(job)
        if propagate and _state(job) in ("FAILURE", "REVOKED"):
            raise result
        return result

    throw = maybe_throw

    def ready(self) -> bool:
        """Whether the task has ended."""
        return self.state in _ENDED

    def successful(self) -> bool:
        """Whether the task returned."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether the task failed, and will not be retried."""
        return self.state == "FAILURE"

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        **kwargs: Any,
    ) -> Any:
        """Wait for the end of the task, and return its result.

        Raises TaskError or TaskRevokedError unless `propagate` is False, TimeoutError after
        `timeout` seconds, and RuntimeError where it would wait for ever: inside a transaction, or
        inside a task.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self._decisive()
            state = _state(job)
            if state in _ENDED:
                break
            _check_may_wait()
            if until is not None and time.monotonic() >= until:
                raise exceptions.TimeoutError(
                    f"The task {self.id} has not ended after {timeout} seconds."
                )
            time.sleep(interval)
        result = _result(job)
        if propagate and state != "SUCCESS":
            raise result
        return result

    wait = get

    def revoke(self, *args: Any, **kwargs: Any) -> None:
        """Cancel the job; one that runs is interrupted. A job that has ended stays as it is.

        Raises NoEquivalent for a task of a chain that is not enqueued yet.
        """
        if self.parent is not None and self.job() is None and not self.ready():
            raise NoEquivalent(
                f"The task {self.id} is not enqueued yet: revoke `parent`, the task before it."
            )
        with suppress(JobNotFound, Conflict):
            cancel.cancel(ids.parse_id(self.id))

    def forget(self) -> None:
        """Do nothing: pruning deletes jobs."""


class GroupResult:
    """The results of a group."""

    def __init__(self, results: Iterable[Any]) -> None:
        # `AsyncResult` or `EagerResult`.
        self.results: list[Any] = [each for each in results if each is not None]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, index: int) -> Any:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def _decisive(self) -> Job | None:
        """Query the first job that failed or was cancelled."""
        jobs = (each._decisive() for each in self.results)
        ended = (State.DISCARDED, State.CANCELLED)
        return next((job for job in jobs if job is not None and job.state in ended), None)

    def ready(self) -> bool:
        """Whether all tasks have ended."""
        return all(each.ready() for each in self.results)

    def successful(self) -> bool:
        """Whether all tasks returned."""
        return all(each.successful() for each in self.results)

    def failed(self) -> bool:
        """Whether a task failed."""
        return any(each.failed() for each in self.results)

    def waiting(self) -> bool:
        """Whether a task has not ended."""
        return not self.ready()

    def completed_count(self) -> int:
        """Return how many tasks returned."""
        return sum(each.successful() for each in self.results)

    def get(self, timeout: float | None = None, propagate: bool = True, **kwargs: Any) -> list[Any]:
        """Wait for all tasks, and return their results; see `AsyncResult.get`."""
        until = None if timeout is None else time.monotonic() + timeout
        results = []
        for each in self.results:
            left = None if until is None else max(0.0, until - time.monotonic())
            results.append(each.get(left, propagate, **kwargs))
        return results

    join = get

    def revoke(self, *args: Any, **kwargs: Any) -> None:
        """Cancel the jobs."""
        for each in self.results:
            each.revoke()


@dataclass(frozen=True)
class EagerResult:
    """The result of a task that ran in this process."""

    id: str | None
    result: Any
    state: str
    traceback: str | None = None
    parent: EagerResult | None = None

    def __str__(self) -> str:
        return str(self.id)

    @property
    def task_id(self) -> str | None:
        return self.id

    @property
    def info(self) -> Any:
        return self.result

    @property
    def status(self) -> str:
        return self.state

    def ready(self) -> bool:
        """Return True."""
        return True

    def successful(self) -> bool:
        """Whether the task returned."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether the task failed."""
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, propagate: bool = True, **kwargs: Any) -> Any:
        """Return the result, or raise the error of the task."""
        if propagate and isinstance(self.result, BaseException) and self.failed():
            raise self.result
        return self.result

    wait = get

    def revoke(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the task has ended."""

    def forget(self) -> None:
        """Do nothing: no result is stored."""


def _check_may_wait() -> None:
    if current_context() is not None:
        raise RuntimeError("A task that waits for another one may wait for ever: use a chain.")
    if database.connection().in_atomic_block:
        raise RuntimeError(
            "get() cannot wait in a transaction: its jobs run only after it has committed."
        )


def _state(job: Job | None) -> str:
    if job is None:
        return "PENDING"
    reported = _reported(job)
    if reported.get("state"):
        return str(reported["state"])
    return _STATES.get(State(job.state), "PENDING")


def _reported(job: Job) -> dict[str, Any]:
    """Return what `update_state` has reported about the present run."""
    if job.state != State.ACTIVE:
        return {}
    shown = progress.shown(job.progress, run=job.run, attempt=job.attempt, state=job.state)
    return dict(shown.data or {})


def _result(job: Job | None) -> Any:
    if job is None:
        return None
    if job.state == State.COMPLETED:
        return decode(job.result)
    if job.state == State.CANCELLED:
        return TaskRevokedError(f"The job {job.pk} was cancelled.")
    if job.state in (State.DISCARDED, State.RETRYABLE):
        error = job.error or {}
        return TaskError(str(error.get("type", "discarded")), str(error.get("message", "")))
    return _reported(job).get("meta")

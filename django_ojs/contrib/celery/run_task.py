"""One run of a task, a `task.Task`: its hooks, its retries and its outcome."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_ojs.contrib.celery import signals
from django_ojs.contrib.celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from django_ojs.contrib.celery.request import TaskRequest, running
from django_ojs.contrib.celery.result import EagerResult
from django_ojs.spec import failure


@dataclass(frozen=True)
class ExceptionInfo:
    """An exception, as the hooks of a task get it."""

    exception: BaseException

    @property
    def type(self) -> type[BaseException]:
        return type(self.exception)

    @property
    def traceback(self) -> str:
        """The text of the traceback."""
        return "".join(traceback.format_exception(self.exception))

    def __str__(self) -> str:
        return self.traceback


def run_task(task: Any, request: TaskRequest, function: Callable[..., Any]) -> Any:
    """Call the function of a task. Return its result, or raise its error or Retry."""
    args, kwargs = request.args, request.kwargs
    with running(task, request):
        described: dict[str, Any] = {"task_id": request.id, "args": args, "kwargs": kwargs}
        signals.task_prerun.send(task, task=task, **described)
        # None if the run was interrupted, or ends in a way that no hook is told about.
        status: str | None = None
        state: str | None = None
        value, info = None, None
        try:
            task.before_start(request.id, args, kwargs)
            value = _call(task, request, function)
            status = state = "SUCCESS"
            task.on_success(value, request.id, args, kwargs)
            signals.task_success.send(task, result=value)
            return value
        except Retry as error:
            status = state = "RETRY"
            value, info = error, ExceptionInfo(error)
            task.on_retry(error.exc, request.id, args, kwargs, info)
            signals.task_retry.send(task, request=request, reason=error, einfo=info)
            raise
        except (Ignore, Reject, failure.HandlerResponse) as error:
            status, state, value = None, _name_of(error), error
            raise
        except Exception as error:
            status = state = "FAILURE"
            value, info = error, ExceptionInfo(error)
            task.on_failure(error, request.id, args, kwargs, info)
            signals.task_failure.send(
                task, exception=error, traceback=error.__traceback__, einfo=info, **described
            )
            raise
        finally:
            if status is not None:
                task.after_return(status, value, request.id, args, kwargs, info)
            signals.task_postrun.send(task, task=task, retval=value, state=state, **described)


def _name_of(error: Exception) -> str:
    """Return Celery's name for the end of a run that no hook is told about."""
    if isinstance(error, Ignore):
        return "IGNORED"
    return "RETRY" if isinstance(error, failure.Retry) else "REJECTED"


def _call(task: Any, request: TaskRequest, function: Callable[..., Any]) -> Any:
    try:
        return function(*request.args, **request.kwargs)
    except (Ignore, Reject, failure.HandlerResponse, MaxRetriesExceededError):
        raise
    except Exception as error:
        unwanted = isinstance(error, tuple(task.dont_autoretry_for))
        if unwanted or not isinstance(error, tuple(task.autoretry_for)):
            raise
        options = dict(task.retry_kwargs)
        if task.retry_backoff:
            options["countdown"] = _backoff(task, request.retries)
        task.retry(exc=error, **options)
        raise


def _backoff(task: Any, retries: int) -> int:
    # The exponent is bounded, for tasks that are retried for ever.
    seconds = int(max(1.0, float(task.retry_backoff))) * 2 ** min(retries, 62)
    seconds = min(task.retry_backoff_max, seconds)
    return random.randrange(seconds + 1) if task.retry_jitter else seconds


def apply(task: Any, request: TaskRequest, *, throw: bool) -> EagerResult:
    """Run a task in this process, and again at once for each retry."""
    while True:
        try:
            return EagerResult(request.id, run_task(task, request, task), "SUCCESS")
        except Retry:
            request.retries += 1
        except (Ignore, Reject) as error:
            return EagerResult(request.id, error, _name_of(error))
        except Exception as error:
            if throw:
                raise
            return EagerResult(request.id, error, "FAILURE", ExceptionInfo(error).traceback)

"""The exceptions of Celery that a task raises or catches."""

from __future__ import annotations

import builtins
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_ojs.spec import failure


class NoEquivalent(ImproperlyConfigured):
    """Something of Celery that has no equivalent here; the message says what to do instead."""


class Retry(failure.Retry):
    """Request another run; `Task.retry` raises it."""

    def __init__(
        self, message: str = "", exc: BaseException | None = None, delay: float | None = None
    ) -> None:
        super().__init__(message or str(exc or ""), delay)
        self.exc = exc
        # The failure is recorded under the error that caused it.
        if exc is not None:
            self.ojs_type = type(exc).__qualname__

    def __reduce__(self) -> tuple[Any, ...]:
        delay = None if self.delay is None else self.delay.total_seconds()
        return self.__class__, (self.message, self.exc, delay)


class Ignore(Exception):
    """End the task without a result; its job is completed, and nothing follows it."""


class Reject(Exception):
    """End the job without a dead letter, or with `requeue=True` run it again."""

    def __init__(self, reason: Any = None, requeue: bool = False) -> None:
        super().__init__(reason, requeue)
        self.reason = reason
        self.requeue = requeue


class MaxRetriesExceededError(Exception):
    """`Task.retry` was called without `exc`, and the task has no retries left."""


class NotRegistered(KeyError):
    """No module of this process declares a task of this name."""


class TimeLimitExceeded(Exception):
    """For `except` clauses: a task that runs too long is interrupted, and this is never raised."""


class SoftTimeLimitExceeded(Exception):
    """For `except` clauses; never raised: clean up in a `finally`, which does run."""


class TaskRevokedError(Exception):
    """The result of a job that was cancelled."""


class TaskError(Exception):
    """The result of a job that failed: the type and the message of its error."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(type, message)
        self.type = type
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class TimeoutError(builtins.TimeoutError):
    """`AsyncResult.get` waited for `timeout` seconds."""

"""Errors that a test injects in place of handlers."""

import copy
import threading
from typing import Any

from django_ojs.handlers import Handler

Error = BaseException | type[BaseException]


class Failures:
    """The errors of the next runs, by job type."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The errors of the runs to come, each with a number of times; None stands for all further
        #: runs.
        self._errors: dict[str, list[tuple[Error, int | None]]] = {}

    def add(self, type: str, error: Error, times: int | None) -> None:
        """Let `times` runs of a type fail, or all if None, after the errors added before."""
        if times is not None and times < 1:
            raise ValueError("times must be at least 1")
        with self._lock:
            self._errors.setdefault(type, []).append((error, times))

    def inject(self, handler: Handler[..., Any]) -> Handler[..., Any]:
        """Return the handler for one run: itself, or one that raises the next error."""
        with self._lock:
            errors = self._errors.get(handler.type)
            if not errors:
                return handler
            error, times = errors[0]
            if times == 1:
                errors.pop(0)
            elif times is not None:
                errors[0] = error, times - 1
        return _failing(handler, error)


def _failing(handler: Handler[..., Any], error: Error) -> Handler[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error if isinstance(error, type) else error.with_traceback(None)

    async def afail(*args: Any, **kwargs: Any) -> None:
        fail()

    failing = copy.copy(handler)
    failing.function = afail if handler.is_async else fail
    return failing

"""The request of a run: what `self.request` and `current_task.request` return."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class TaskRequest:
    """One run of a task, or a call of the task as a function (`called_directly`)."""

    id: str | None = None
    task: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    #: How often the task was retried; 0 in the first run.
    retries: int = 0
    called_directly: bool = True
    is_eager: bool = False
    headers: dict[str, Any] = field(default_factory=dict)
    delivery_info: dict[str, Any] = field(default_factory=dict)
    hostname: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")

    @property
    def correlation_id(self) -> str | None:
        return self.id

    # Members of Celery's request that have no equivalent.
    root_id = parent_id = group = group_index = chain = chord = callbacks = errbacks = None
    reply_to = origin = shadow = timelimit = logfile = loglevel = utc = properties = None
    eta = expires = None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member by name."""
        return getattr(self, name, default)


# The task, a `task.Task`, and its request.
_current: ContextVar[tuple[Any, TaskRequest] | None] = ContextVar("django_ojs_celery", default=None)


def current_request(task: object) -> TaskRequest:
    """Return the request of the current run of a task, or a new one outside of a run."""
    running = _current.get()
    return TaskRequest() if running is None or running[0] is not task else running[1]


@contextmanager
def running(task: object, request: TaskRequest) -> Iterator[None]:
    """Make a request the current one."""
    token = _current.set((task, request))
    try:
        yield
    finally:
        _current.reset(token)


class CurrentTask:
    """`current_task`: the task that runs here. It is false and has no attributes if none runs."""

    def __bool__(self) -> bool:
        return _current.get() is not None

    def __getattr__(self, name: str) -> Any:
        found = _current.get()
        if found is None:
            raise AttributeError(f"No task runs here, so current_task has no {name!r}.")
        return getattr(found[0], name)


current_task = CurrentTask()

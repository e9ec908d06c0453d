"""Observers of the work of the server itself, such as `contrib.opentelemetry`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

#: Called with the name of a task (ojs-distributed-tracing §4.2), when it began and ended, in
#: nanoseconds since 1970, and how many rows it changed.
observers: Final[list[Callable[[str, int, int, int], None]]] = []


@dataclass(slots=True)
class Task:
    """A task that is observed; one that has changed nothing is not told of."""

    changed: int = 0


@contextmanager
def observed(name: str) -> Iterator[Task]:
    """Tell the observers of a task, when it has ended."""
    task = Task()
    began = time.time_ns()
    yield task
    if task.changed:
        for observe in observers:
            observe(name, began, time.time_ns(), task.changed)

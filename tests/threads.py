"""What several threads do at once, each with connections of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from tests.factories import own_connections
from tests.worker.waiting import BOUND

T = TypeVar("T")


def at_once(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run each task in a thread of its own, all starting together; return their results.

    What a task raises is raised here.
    """
    start = threading.Barrier(len(tasks))

    def run(task: Callable[[], T]) -> T:
        with own_connections():
            start.wait(BOUND)
            return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result(BOUND) for future in [pool.submit(run, task) for task in tasks]]


def elsewhere(task: Callable[[], T]) -> T:
    """Run a task in another thread, and return its result."""
    return at_once([task])[0]


@contextmanager
def beside(*tasks: Callable[[], T]) -> Iterator[list[Future[T]]]:
    """Run each task in a thread of its own while the block runs, and wait for them at its end."""

    def run(task: Callable[[], T]) -> T:
        with own_connections():
            return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        yield futures
        for future in futures:
            future.result(BOUND)

"""Parts of a worker, one at a time: runs without a database, and a collector of their outcomes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_ojs.context import JobContext
from django_ojs.enqueue_options import NO_OPTIONS
from django_ojs.handlers import Handler
from django_ojs.spec import ids, json
from django_ojs.storage.claimed_job import Claimed
from django_ojs.worker.in_flight import Run
from tests.worker.waiting import BOUND, eventually


def claimed(
    *args: Any, type: str = "test.job", attempt: int = 1, timeout_ms: int | None = None
) -> Claimed:
    """Build a claimed job that no database knows."""
    now = datetime.now(UTC)
    names = {"queue": "default", "worker_id": "worker-a"}
    return Claimed(
        (
            ids.uuid7(),
            type,
            names["queue"],
            0,
            json.dumps(list(args)),
            "{}",
            "{}",
            attempt,
            3,
            0,
            attempt,
            timeout_ms,
            None,
            now,
            now,
            None,
            None,
            None,
            now,
            now + timedelta(minutes=30),
            names["worker_id"],
            None,
            None,
            0,
        ),
    )


def handler(function: Callable[..., Any], *, atomic: bool = False) -> Handler[..., Any]:
    """Make a function a handler that nobody else knows."""
    return Handler(function, "test.job", atomic=atomic, options=NO_OPTIONS)


def run_of(
    function: Callable[..., Any],
    *args: Any,
    atomic: bool = False,
    timeout: float = 60.0,
    job: Claimed | None = None,
) -> Run:
    """Build a run of a function that waits for a slot."""
    job = job or claimed(*args)
    made = handler(function, atomic=atomic)
    return Run(job, made, JobContext(job, is_async=made.is_async), timeout)


class Outcome(NamedTuple):
    """What an executor says of a run."""

    run: Run
    result: Any
    error: BaseException | None
    committed: bool


class Outcomes:
    """Keeps the outcomes of an executor until the test asks for them."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def __call__(self, run: Run, result: Any, error: BaseException | None, committed: bool) -> None:
        self._queue.put(Outcome(run, result, error, committed))

    def next(self) -> Outcome:
        """Wait for the next outcome."""
        return self._queue.get(timeout=BOUND)

    @property
    def empty(self) -> bool:
        """Whether all outcomes were taken."""
        return self._queue.empty()


class Gate:
    """A handler that signals its start, and continues when it is released."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self._open = threading.Event()
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.started.release()
        try:
            # Short waits, so that an exception raised in the thread arrives.
            eventually(self._open.is_set, "the gate is opened")
        finally:
            with self._lock:
                self.running -= 1

    def has_started(self) -> None:
        """Wait until one more run has started."""
        assert self.started.acquire(timeout=BOUND), "no run has started"

    def open(self) -> None:
        """Let all runs go on."""
        self._open.set()


def threads(prefix: str = "ojs-") -> list[threading.Thread]:
    """Return the worker's threads that live in this process."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]

"""The jobs in a process's hands.

Claimed, waiting for a thread, running, or done and not yet written.
"""

import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any
from uuid import UUID

from django_ojs.context import JobContext
from django_ojs.handlers import Handler
from django_ojs.storage.claims import Claimed
from django_ojs.storage.transitions import Claim


class Phase(Enum):
    """Where a run is. Whoever moves it on, under its lock, decides what becomes of the job."""

    WAITING = auto()
    RUNNING = auto()
    DONE = auto()
    #: Taken from its handler (timeout, cancellation, shutdown) or never given to it: what the
    #: handler answers is void.
    TAKEN = auto()


class Run:
    """One claimed job in this process."""

    __slots__ = (
        "_handler",
        "cancel_task",
        "claimed_at",
        "context",
        "interrupted",
        "job",
        "lock",
        "phase",
        "started",
        "taken_at",
        "thread",
        "thread_id",
        "timeout",
    )

    def __init__(
        self, job: Claimed, handler: Handler[..., Any] | None, context: JobContext, timeout: float
    ) -> None:
        self.job = job
        self._handler = handler
        self.context = context
        self.timeout = timeout
        self.lock = threading.Lock()
        self.phase = Phase.WAITING
        self.claimed_at = time.monotonic()
        self.started = 0.0
        self.taken_at = 0.0
        self.thread: threading.Thread | None = None
        self.thread_id: int | None = None
        self.interrupted = False
        self.cancel_task: Callable[[], object] | None = None

    @property
    def handler(self) -> Handler[..., Any]:
        """What runs the job. Raises LookupError when its type has no handler in this process."""
        if self._handler is None:
            raise LookupError(f"The job type {self.job.type!r} has no handler here.")
        return self._handler

    @property
    def claim(self) -> Claim:
        """The fence."""
        return Claim(worker_id=self.job.worker_id, run=self.job.run)

    @property
    def overdue(self) -> bool:
        """Whether its handler runs longer than the job's timeout."""
        return self.phase is Phase.RUNNING and time.monotonic() - self.started > self.timeout

    def begin(self) -> bool:
        """Take it to its handler. Return False when it was given back meanwhile."""
        with self.lock:
            if self.phase is not Phase.WAITING:
                return False
            self.phase = Phase.RUNNING
            self.thread = threading.current_thread()
            self.thread_id = self.thread.ident
            self.started = time.monotonic()
            return True

    def end(self) -> bool:
        """Its handler is done. Return False when nobody waits for the answer any more."""
        with self.lock:
            if self.phase is not Phase.RUNNING:
                return False
            self.phase = Phase.DONE
            return True

    def take(self, phase: Phase, interrupt: "Callable[[Run], None] | None" = None) -> bool:
        """Take it away while it is in `phase`.

        Return False when it has moved on. `interrupt` runs before anyone else sees it.
        """
        with self.lock:
            if self.phase is not phase:
                return False
            self.phase = Phase.TAKEN
            self.taken_at = time.monotonic()
            self.context.cancel()
            if interrupt is not None:
                interrupt(self)
            return True


class Hand:
    """All runs of a process, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[UUID, int], Run] = {}
        #: Runs that hold a slot or wait for one: those whose answer is written only wait for the
        #: commit.
        self.busy = 0

    def add(self, runs: list[Run]) -> None:
        """Take jobs in."""
        with self._lock:
            for run in runs:
                self._runs[run.job.id, run.job.run] = run
            self.busy += len(runs)

    def free(self, count: int = 1) -> None:
        """Note that slots are free again."""
        with self._lock:
            self.busy -= count

    def remove(self, runs: list[Run]) -> None:
        """Let jobs go: their state is written, or is not ours to write."""
        with self._lock:
            for run in runs:
                self._runs.pop((run.job.id, run.job.run), None)

    def __len__(self) -> int:
        return len(self._runs)

    def all(self) -> list[Run]:
        """Return the runs as they are now."""
        with self._lock:
            return list(self._runs.values())

    def in_phase(self, phase: Phase) -> list[Run]:
        """Return the runs that are in a phase now."""
        return [run for run in self.all() if run.phase is phase]

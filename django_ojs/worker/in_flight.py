"""The jobs that a process has claimed and whose outcome is not stored yet."""

import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any
from uuid import UUID

from django_ojs.context import JobContext
from django_ojs.handlers import Handler
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim
from django_ojs.worker.process_status import ProcessStatus


class Phase(Enum):
    """The phase of a run. The thread that changes it, under the run's lock, decides the outcome."""

    WAITING = auto()
    RUNNING = auto()
    DONE = auto()
    #: The run was taken from its handler (timeout, cancellation, shutdown) or never given to it. A
    #: result of the handler is discarded.
    REVOKED = auto()


class Run:
    __slots__ = (
        "_handler",
        "cancel_task",
        "claimed_at",
        "context",
        "extended_at",
        "finish",
        "has_ended",
        "interrupted",
        "is_committed",
        "is_told",
        "job",
        "lock",
        "on_begin",
        "phase",
        "revoked_at",
        "started",
        "thread",
        "thread_id",
        "timeout",
    )

    def __init__(
        self,
        job: Claimed,
        handler: Handler[..., Any] | None,
        context: JobContext,
        timeout: float,
        on_begin: Callable[[UUID, int], None] | None = None,
        asked_at: float | None = None,
    ) -> None:
        self.job = job
        self.on_begin = on_begin
        self._handler = handler
        self.context = context
        self.timeout = timeout
        self.lock = threading.Lock()
        self.phase = Phase.WAITING
        self.claimed_at = time.monotonic()
        #: The time before the statement that claimed the job or extended its lease, by this
        #: process's clock. The database's clock may differ.
        self.extended_at = self.claimed_at if asked_at is None else asked_at
        self.started = 0.0
        self.revoked_at = 0.0
        self.thread: threading.Thread | None = None
        self.thread_id: int | None = None
        self.interrupted = False
        #: Whether the handler has ended, and whether it was told to stop.
        self.has_ended = self.is_told = False
        #: Whether an atomic handler has committed its own ACK: what fails after that, such as a
        #: function of on_commit, does not fail the job.
        self.is_committed = False
        self.cancel_task: Callable[[], object] | None = None
        #: Called when the handler has returned, in the transaction of an atomic one: an error fails
        #: the run. A hook of `around_run` sets it.
        self.finish: Callable[[], object] | None = None

    @property
    def handler(self) -> Handler[..., Any]:
        """The handler. Raises LookupError when the job's type has none in this process."""
        if self._handler is None:
            raise LookupError(f"The job type {self.job.type!r} has no handler here.")
        return self._handler

    @property
    def claim(self) -> Claim:
        """The claim that fences every write about this run."""
        return Claim(worker_id=self.job.worker_id, run=self.job.run)

    @property
    def lease(self) -> float:
        """The seconds for which the job is reserved."""
        return self.job.lease.total_seconds()

    @property
    def extension_due(self) -> float:
        """When to extend the lease: after a third of it, so that a second try is in time too."""
        return self.extended_at + self.lease / 3

    @property
    def overdue(self) -> bool:
        """Whether the handler has run longer than the job's timeout."""
        return self.phase is Phase.RUNNING and time.monotonic() - self.started > self.timeout

    def begin(self) -> bool:
        """Start running, on the calling thread. Return False when the run was revoked before."""
        with self.lock:
            if self.phase is not Phase.WAITING:
                return False
            # This is set before the phase: `overdue` reads both without the lock, and a run without
            # a start would have exceeded any timeout.
            self.started = time.monotonic()
            self.thread = threading.current_thread()
            self.thread_id = self.thread.ident
            self.phase = Phase.RUNNING
            if self.on_begin is not None:
                self.on_begin(self.job.id, self.job.run)
            return True

    def note_commit(self) -> None:
        """Note that the transaction of an atomic handler has committed."""
        self.is_committed = True

    def end(self) -> bool:
        """Note that the handler has ended. Return False when its result is to be discarded."""
        with self.lock:
            self.has_ended = True
            if self.phase is not Phase.RUNNING:
                return False
            self.phase = Phase.DONE
            return True

    def revoke(self, phase: Phase, interrupt: "Callable[[Run], None] | None" = None) -> bool:
        """Take the run from its handler. Return False when it is no longer in `phase`.

        `interrupt` is called before other threads can see the new phase.
        """
        with self.lock:
            if self.phase is not phase:
                return False
            self.phase = Phase.REVOKED
            self.revoked_at = time.monotonic()
            self.context.cancel()
            if interrupt is not None:
                interrupt(self)
            return True


class JobsInFlight:
    def __init__(self, status: ProcessStatus | None = None) -> None:
        self.status = status
        self._lock = threading.Lock()
        # The jobs have the order in which they were claimed.
        self._runs: dict[Run, None] = {}
        #: Number of runs that hold a slot or wait for one. A run whose handler has ended only waits
        #: for its outcome to be stored and is not counted.
        self.busy = 0
        #: Bytes of payload of all runs.
        self.bytes = 0

    def add(self, runs: list[Run]) -> None:
        """Add claimed jobs; each needs a slot."""
        with self._lock:
            self._runs.update(dict.fromkeys(runs))
            self.busy += len(runs)
            self.bytes += sum(run.job.size for run in runs)

    def release_slot(self) -> None:
        """Note that one run no longer needs a slot."""
        with self._lock:
            self.busy -= 1

    def remove(self, runs: list[Run]) -> None:
        """Remove runs whose outcome is stored, or is no longer this worker's to store."""
        with self._lock:
            for run in runs:
                if run in self._runs:
                    del self._runs[run]
                    self.bytes -= run.job.size
        if self.status is not None:
            self.status.ended([(run.job.id, run.job.run) for run in runs])

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def unstored(self) -> int:
        """Number of runs that have ended and whose outcomes are not stored yet."""
        return len(self._runs) - self.busy

    def all(self) -> list[Run]:
        """Return a snapshot of the runs."""
        with self._lock:
            return list(self._runs)

    def in_phase(self, phase: Phase) -> list[Run]:
        return [run for run in self.all() if run.phase is phase]

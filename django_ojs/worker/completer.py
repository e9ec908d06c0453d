"""Write what became of the jobs: completions in groups, everything else one by one."""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import InterfaceError, OperationalError, connections

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.models.attempt import Outcome
from django_ojs.operations import ack, fail
from django_ojs.operations.events import publish
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.failure import Failure, from_exception
from django_ojs.storage.claims import Claimed
from django_ojs.storage.figures import rollups
from django_ojs.worker.in_flight import Hand, Run
from django_ojs.worker.job_log import Report

logger = logging.getLogger("django_ojs")

#: Completions wait this long for company. It bounds how much a crash can run twice, and costs a
#: short job less than its claim.
GATHER = 0.003

#: Completions in one statement at most.
LARGEST = 500

#: Between two tries while the database is away.
PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that succeeded, and what it returned."""

    run: Run
    result: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Chore:
    """Anything else to write about a run."""

    runs: list[Run]
    write: Callable[[], object]


class Finisher:
    """A thread that commits answers.

    It keeps what it could not write and tries again: an answer is never dropped.
    """

    def __init__(
        self, worker_id: str, hand: Hand, report: Report, slot_freed: Callable[[float], None]
    ) -> None:
        self._worker_id = worker_id
        self._hand = hand
        self._report = report
        self._slot_freed = slot_freed
        self._items: deque[Finished | Chore] = deque()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = True
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ojs-finisher", daemon=True)
        self._thread.start()

    def answer(self, run: Run, result: Any, error: BaseException | None, committed: bool) -> None:
        """Take the answer of a handler (called on its thread)."""
        seconds = time.monotonic() - run.started
        self._hand.free()
        if error is not None:
            self.failed(
                run,
                from_exception(error, backtrace=settings().backtraces),
                seconds=seconds,
                cause=error,
            )
        elif committed:
            self._completed(run, seconds)
            self._add(Chore([run], lambda: _send_completed(run)))
        else:
            self._add(Finished(run, result, seconds))
        self._slot_freed(seconds)

    def failed(
        self,
        run: Run,
        failure: Failure,
        *,
        outcome: Outcome = Outcome.FAILED,
        seconds: float = 0.0,
        cause: BaseException | None = None,
    ) -> None:
        """Fail a run by its retry policy."""

        def write() -> None:
            job = fail.fail(run.job.id, failure, claim=run.claim, outcome=outcome)
            self._report.failed(run, failure, job, seconds, cause)

        self._add(Chore([run], write))

    def held(self, run: Run, failure: Failure) -> None:
        """Put a job aside that this worker cannot run."""
        self._add(
            Chore(
                [run],
                lambda: fail.postpone(
                    run.job.id, failure, delay=settings().unknown_type_delay, claim=run.claim
                ),
            )
        )

    def requeued(self, run: Run, failure: Failure) -> None:
        """Give a job back whose handler was stopped, without spending an attempt."""
        self._add(
            Chore(
                [run],
                lambda: fail.requeue(
                    run.job.id, failure, claim=run.claim, outcome=Outcome.SHUTDOWN
                ),
            )
        )

    def unstarted(self, runs: list[Run]) -> None:
        """Give jobs back that never started."""
        if runs:
            claims = [(run.job.id, run.job.run) for run in runs]
            self._add(Chore(runs, lambda: rescue.give_back(claims, worker_id=self._worker_id)))

    def close(self, timeout: float) -> bool:
        """Write what is left and end. Return whether all of it was written in time."""
        self._closing.set()
        self._wake.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _add(self, item: Finished | Chore) -> None:
        self._items.append(item)
        if self._asleep:
            self._asleep = False
            self._wake.put(None)

    def _work(self) -> None:
        try:
            while True:
                self._asleep = True
                if not self._items:
                    if self._closing.is_set():
                        return
                    self._wake.get()
                self._asleep = False
                if len(self._items) < LARGEST and not self._closing.is_set():
                    time.sleep(GATHER)
                self._drain()
        finally:
            connections.close_all()

    def _drain(self) -> None:
        finished: list[Finished] = []
        chores: list[Chore] = []
        while self._items and len(finished) < LARGEST:
            item = self._items.popleft()
            if isinstance(item, Finished):
                finished.append(item)
            else:
                chores.append(item)
        if finished:
            if not self._until_written(lambda: self._complete(finished)):
                # One of them is refused; the others need not suffer for it.
                for item in finished:
                    self._until_written(partial(self._complete, [item]), [item.run])
            self._hand.remove([item.run for item in finished])
        for chore in chores:
            self._until_written(chore.write, chore.runs)
            self._hand.remove(chore.runs)

    def _complete(self, finished: list[Finished]) -> None:
        kept = ack.ack_batch(
            self._worker_id, [(item.run.job.id, item.run.job.run, item.result) for item in finished]
        )
        for item in finished:
            if item.run.job.id in kept:
                self._completed(item.run, item.seconds)
            else:
                self._report.lost(item.run)

    def _completed(self, run: Run, seconds: float) -> None:
        self._report.completed(run, seconds)
        job = run.job
        rollups.note(rollups.COMPLETED, job.queue, job.type, waited=_waited(job), ran=seconds)

    def _until_written(self, write: Callable[[], object], runs: Sequence[Run] = ()) -> bool:
        """Return whether the database took it, or had no need to."""
        while True:
            try:
                write()
                return True
            except (Conflict, JobNotFound):
                # Cancelled, lapsed and taken over, or pruned: the answer of this run counts no
                # more.
                for run in runs:
                    self._report.lost(run)
                return True
            except (OperationalError, InterfaceError) as error:
                self._report.database_away(error)
                connections.close_all()
                # The reservations outlive a short absence; after a long one the jobs are somebody
                # else's, and the fence holds.
                time.sleep(PAUSE)
            except Exception:
                # The database answers and refuses, or there is a fault: trying again would end the
                # same way, and the jobs behind this one wait.
                logger.exception(
                    "What became of %d jobs could not be written; a reservation that is not "
                    "answered lapses.",
                    max(1, len(runs)),
                )
                return False


def _send_completed(run: Run) -> None:
    # An `atomic` run has committed its own ACK, and its event with that. The receivers are called
    # here: they must not use up the handler's time.
    publish.send_all_after_commit(signals.job_completed, [run.job.id])


def _waited(job: Claimed) -> float | None:
    if job.started_at is None or job.enqueued_at is None:
        return None
    return (job.started_at - job.enqueued_at).total_seconds()


__all__ = ["Finisher"]

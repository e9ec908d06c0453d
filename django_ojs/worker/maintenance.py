"""Maintenance in the background: one worker at a time, the holder of the lease, does it for all."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error, connections

from django_ojs.operations import promotion
from django_ojs.operations.access import known_names
from django_ojs.operations.backpressure import pressure_monitor
from django_ojs.operations.enqueue import outbox
from django_ojs.operations.events import log
from django_ojs.operations.figures import stats
from django_ojs.operations.jobs import bulk_operations
from django_ojs.operations.maintenance import lease, pruning, timeouts
from django_ojs.operations.workers import rescue
from django_ojs.outbox import local
from django_ojs.payloads import sweep
from django_ojs.storage import database
from django_ojs.storage.figures import rollups
from django_ojs.worker.job_log import JobLog

logger = logging.getLogger("django_ojs")

#: Seconds until a due job becomes available, an expired one discarded, and an overdue one failed.
TICK = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """A bounded task and its interval in seconds. It returns how many rows it changed."""

    run: Callable[[], int]
    interval: float


class MaintenanceThread:
    """A thread that runs the steps while this worker holds the lease."""

    def __init__(self, worker_id: str, job_log: JobLog) -> None:
        self._worker_id = worker_id
        self._job_log = job_log
        keeper, passing = stats.CountKeeper(), promotion.DueCheck()
        self._dead_workers = rescue.DeadWorkers(worker_id)
        self._steps = [
            Step(passing.promote, TICK),
            Step(passing.expire, TICK),
            Step(self._dead_workers.take_back, TICK),
            Step(rescue.lapse, 1.0),
            Step(timeouts.enforce, TICK),
            Step(keeper.fold, 1.0),
            Step(keeper.vacuum_counts, 10.0),
            Step(stats.fold_rollups, 10.0),
            Step(stats.coarsen_rollups, 60.0),
            Step(pruning.prune, 10.0),
            Step(known_names.prune, 60.0),
            Step(pressure_monitor.check_all, 1.0),
            Step(pressure_monitor.restore_bounds, 60.0),
            Step(bulk_operations.work, 1.0),
            Step(bulk_operations.prune, 60.0),
            # Readers of the events settle them too.
            Step(log.settle, 2.0),
            Step(log.prune, 10.0),
            Step(local.deliver, 1.0),
            Step(outbox.prune, 10.0),
            Step(sweep.Sweeper().start, sweep.INTERVAL),
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ojs-maintenance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _work(self) -> None:
        due = dict.fromkeys(self._steps, 0.0)
        flush_at = time.monotonic() + rollups.FLUSH_EVERY
        # Renewed when half of its term is over.
        held_until = 0.0
        written_at, is_away = time.monotonic(), False
        try:
            while not self._stop.wait(TICK):
                try:
                    if time.monotonic() >= held_until:
                        is_held = lease.take(self._worker_id)
                        now = time.monotonic()
                        if is_away:
                            self._dead_workers.database_was_away(now - written_at)
                        written_at, is_away = now, False
                        if is_held:
                            held_until = now + lease.TERM.total_seconds() / 2
                    if time.monotonic() < held_until:
                        self._run_due(due)
                    if time.monotonic() >= flush_at:
                        # The rollups of this process only, so without the lease.
                        stats.flush_rollups()
                        flush_at = time.monotonic() + rollups.FLUSH_EVERY
                except Error as error:
                    is_away, held_until = True, 0.0
                    self._job_log.database_away(error)
                    connections.close_all()
            stats.flush_rollups()
            lease.give(self._worker_id)
        except Error:
            logger.debug("The maintenance lease was not released; it expires by itself.")
        finally:
            connections.close_all()

    def _run_due(self, due: dict[Step, float]) -> None:
        for step in self._steps:
            if self._stop.is_set():
                return
            if time.monotonic() >= due[step]:
                # A step that found a full batch has more to do: it runs again in the next round.
                try:
                    full = step.run() >= database.BATCH
                except Exception as error:
                    if database.is_unavailable(error):
                        raise
                    # One row that cannot be read must not keep the other steps from running.
                    logger.exception("A step of the maintenance failed; it will be tried again.")
                    full = False
                due[step] = 0.0 if full else time.monotonic() + step.interval - TICK / 2

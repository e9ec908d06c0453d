"""Maintenance in the background: one worker at a time, the holder of the lease, does it for all."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import Error, connections

from django_ojs import extension
from django_ojs.operations import expiry, limit_checks, promotion
from django_ojs.operations.access import known_names
from django_ojs.operations.cron import clock as cron_clock
from django_ojs.operations.cron import due_query as due_cron
from django_ojs.operations.cron.pruning import WALK, RunPruner
from django_ojs.operations.due_check import DueCheck
from django_ojs.operations.enqueue import outbox
from django_ojs.operations.figures import stats
from django_ojs.operations.jobs import bulk_execution, bulk_operations
from django_ojs.operations.maintenance import (
    checkpoints,
    lease,
    pruning,
    rate_limit_starts,
    stalled,
    timeouts,
)
from django_ojs.operations.queues import rows as queue_rows
from django_ojs.operations.webhooks import dispatch
from django_ojs.operations.workers import rescue
from django_ojs.operations.workflows import due as due_workflows
from django_ojs.operations.workflows import pruning as workflow_pruning
from django_ojs.operations.workflows.advance import WORKFLOWS_AT_ONCE
from django_ojs.outbox import local
from django_ojs.payloads import sweep
from django_ojs.storage import database, raw_queries
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.figures import counts
from django_ojs.worker import maintenance_observers
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.workflow_advancer import ADVANCE

logger = logging.getLogger("django_ojs")

#: The batch of a step that leaves nothing to do.
_ALL: Final = sys.maxsize

#: Seconds until a due job becomes available, an expired one discarded, and an overdue one failed.
TICK = 0.5

#: Seconds for which a step with more to do is repeated before the other steps run.
BURST = 0.1

#: Seconds for which the conditions of steps are kept, which contain settings of queues: to write
#: them takes longer than the rest of a pass that finds nothing.
KEPT = 10.0

#: Seconds between two batches for the other writers, where a database has one at a time.
GAP = 0.025

#: How long work must have been overdue until workers without the lease help its holder with it.
BEHIND = timedelta(seconds=2)
#: The same for rows that are to be deleted, for which no one waits.
PRUNING_BEHIND = timedelta(minutes=1)


# Without a comparison of its fields: a pass looks each of them up.
@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A bounded task and its interval in seconds. It returns how many rows it changed.

    When it changed `batch` rows or more, there may be more to do. `task` is its name for observers.
    It has nothing to do while the condition `when`, which is SQL, does not hold: then `otherwise`
    is called in its place.
    """

    run: Callable[[], int]
    interval: float
    batch: int = database.BATCH
    task: str = ""
    when: Callable[[], str] | None = None
    otherwise: Callable[[], None] | None = None

    def run_once(self) -> bool:
        """Run it, and return whether there may be more to do."""
        if not self.task or not maintenance_observers.observers:
            return self.run() >= self.batch
        with maintenance_observers.observed(self.task) as task:
            task.changed = self.run()
        return task.changed >= self.batch


class MaintenanceThread:
    """A thread that runs the steps while this worker holds the lease.

    Without `leads` it only writes the figures of its process.
    """

    def __init__(self, worker_id: str, job_log: JobLog, *, leads: bool = True) -> None:
        self._worker_id = worker_id
        self._leads = leads
        self._job_log = job_log
        keeper, passing = stats.CountKeeper(), DueCheck()
        run_pruner = RunPruner()
        behind = DueCheck(since=BEHIND)
        self._dead_workers = rescue.DeadWorkers(worker_id)
        self._steps = [
            Step(passing.promote, TICK, task="ojs.scheduler.poll", when=promotion.due_condition),
            Step(expiry.expire, TICK, when=expiry.expired_condition),
            Step(passing.fire_cron, TICK, task="ojs.cron.trigger", when=due_cron.due_condition),
            Step(cron_clock.put_right, cron_clock.INTERVAL, _ALL),
            Step(
                passing.advance_workflows,
                TICK,
                WORKFLOWS_AT_ONCE,
                ADVANCE,
                when=due_workflows.due_condition,
            ),
            Step(
                limit_checks.open_due, TICK, limit_checks.AT_ONCE, when=limit_checks.due_condition
            ),
            # It reads all jobs that wait with a limit by key, for what normally does not happen.
            Step(limit_checks.recheck, 600.0, _ALL),
            Step(limit_checks.prune, 60.0, _ALL),
            Step(
                self._dead_workers.take_back,
                TICK,
                task="ojs.reaper.check",
                when=self._dead_workers.condition,
                otherwise=self._dead_workers.none_found,
            ),
            Step(
                rescue.LapseCheck().lapse,
                1.0,
                task="ojs.visibility.check",
                when=rescue.lapsed_condition,
            ),
            Step(
                timeouts.enforce_for_a_moment,
                TICK,
                timeouts.BATCH,
                when=timeouts.active_condition,
            ),
            Step(stalled.tell_stalled, 5.0, stalled.BATCH),
            Step(keeper.fold, 1.0, _ALL, when=counts.changes_condition),
            Step(keeper.vacuum_counts, 10.0),
            Step(pruning.prune, 10.0, pruning.PRUNED, when=pruning.condition),
            Step(pruning.QueuePruner().prune, 10.0, pruning.WALK),
            Step(run_pruner.prune, 10.0, WALK, when=run_pruner.condition),
            Step(rate_limit_starts.StartsPruner().prune, 60.0, rate_limit_starts.WALK),
            Step(checkpoints.CheckpointPruner().prune, 60.0, checkpoints.WALK),
            Step(
                workflow_pruning.prune,
                10.0,
                workflow_pruning.AT_ONCE,
                when=workflow_pruning.condition,
            ),
            Step(known_names.prune, 60.0),
            Step(queue_rows.settle_deleted, 10.0),
            Step(bulk_execution.work, 1.0, when=bulk_execution.open_condition),
            Step(bulk_operations.prune, 60.0),
            Step(bulk_operations.prune_followed, 60.0),
            Step(
                dispatch.WebhookDispatcher().dispatch,
                1.0,
                dispatch.BATCH,
                when=dispatch.active_condition,
            ),
            Step(dispatch.prune, 60.0),
            Step(local.deliver, 1.0, when=local.condition),
            Step(outbox.prune, 10.0, when=outbox.old_condition),
            Step(sweep.Sweeper().start, sweep.INTERVAL),
            *(
                Step(step.run, step.interval, step.batch or database.BATCH, when=step.when)
                for step in extension.registry.due_steps
            ),
        ]
        # What workers do that have not the lease, if its holder is too slow.
        self._helping = [
            Step(
                behind.promote,
                5.0,
                task="ojs.scheduler.poll",
                when=partial(promotion.due_condition, BEHIND),
            ),
            Step(expiry.expire, 5.0, when=partial(expiry.expired_condition, BEHIND)),
            Step(
                behind.fire_cron,
                5.0,
                task="ojs.cron.trigger",
                when=partial(due_cron.due_condition, BEHIND),
            ),
            Step(
                behind.advance_workflows,
                5.0,
                WORKFLOWS_AT_ONCE,
                ADVANCE,
                when=due_workflows.due_condition,
            ),
            Step(
                rescue.LapseCheck(since=BEHIND).lapse,
                5.0,
                task="ojs.visibility.check",
                when=rescue.lapsed_condition,
            ),
            Step(
                partial(pruning.prune, since=PRUNING_BEHIND),
                10.0,
                pruning.PRUNED,
                when=partial(pruning.condition, PRUNING_BEHIND),
            ),
        ]
        # The conditions of steps that were due together, until they are written anew.
        self._conditions: dict[tuple[Step, ...], list[str]] = {}
        self._conditions_until = 0.0
        self._stop = threading.Event()
        # One job that another session has locked must hold up neither the other jobs nor the steps.
        work = database.passing_by()(self._work)
        self._thread = threading.Thread(target=work, name="ojs-maintenance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _work(self) -> None:
        due = dict.fromkeys([*self._steps, *self._helping], 0.0)
        # Renewed when half of its term is over.
        held_until = 0.0
        is_away = False
        pause, backoff = TICK, Backoff()
        try:
            while not self._stop.wait(pause):
                is_behind = False
                try:
                    if self._leads and time.monotonic() >= held_until:
                        # After an outage the sessions of all workers have ended.
                        take = lease.take if is_away else self._dead_workers.take_lease
                        # Before the statement, which may take long.
                        asked_at = time.monotonic()
                        is_held = take(self._worker_id)
                        if is_away:
                            self._dead_workers.database_was_away()
                            is_away = False
                        if is_held:
                            held_until = asked_at + lease.TERM.total_seconds() / 2
                    if time.monotonic() < held_until:
                        is_behind = self._run_due(self._steps, due)
                    elif not database.dialect().has_one_writer:
                        is_behind = self._run_due(self._helping, due)
                    # What concerns this process only, so without the lease.
                    extension.worker_passes()
                    pause = 0.0 if is_behind else TICK
                    backoff.reset()
                except Error as error:
                    is_away, held_until = True, 0.0
                    self._job_log.database_away(error)
                    connections.close_all()
                    pause = max(TICK, backoff.pause())
            lease.give(self._worker_id)
        except Error:
            logger.debug("The maintenance lease was not released; it expires by itself.")
        finally:
            connections.close_all()

    def _run_due(self, steps: Sequence[Step], due: dict[Step, float]) -> bool:
        """Run the steps that are due. Return whether one of them has more to do."""
        is_behind = False
        asked_at = time.monotonic()
        steps = [step for step in steps if asked_at >= due[step]]
        idle = self._without_work(steps)
        for step in steps:
            if self._stop.is_set():
                return False
            has_more = False
            # After a pass that takes long so far, what was found at its start is of the past.
            if step not in idle or time.monotonic() - asked_at >= TICK / 2:
                has_more = self._run_burst(step)
            elif step.otherwise is not None:
                step.otherwise()
            due[step] = 0.0 if has_more else time.monotonic() + step.interval - TICK / 2
            is_behind |= has_more
        return is_behind

    def _without_work(self, steps: Sequence[Step]) -> set[Step]:
        """Return the steps that have nothing to do now, found by one statement for all."""
        asked = tuple(step for step in steps if step.when is not None)
        if not asked:
            return set()
        try:
            found = raw_queries.which_hold(self._conditions_of(asked))
        except Exception as error:
            # One table that cannot be read, or is locked, must not keep the other steps from
            # running: each asks for itself.
            if database.is_stopped(error):
                self._job_log.database_away(error)
            elif database.is_unavailable(error):
                raise
            else:
                logger.exception("The conditions of the maintenance could not be checked.")
            return set()
        return {step for step, holds in zip(asked, found, strict=True) if not holds}

    def _conditions_of(self, steps: tuple[Step, ...]) -> list[str]:
        now = time.monotonic()
        # After an outage, that of dead workers is another one each time.
        if now >= self._conditions_until or self._dead_workers.had_outage:
            self._conditions.clear()
            self._conditions_until = now + KEPT
        if steps not in self._conditions:
            self._conditions[steps] = [step.when() for step in steps if step.when is not None]
        return self._conditions[steps]

    def _run_burst(self, step: Step) -> bool:
        """Run a step again while it finds full batches, for a moment. Return whether it has more.

        Each kind of work gets a share of the time, so that none waits until another has ended.
        """
        until = time.monotonic() + BURST
        try:
            while step.run_once():
                gap = GAP if database.dialect().has_one_writer else 0
                if self._stop.wait(gap) or time.monotonic() >= until:
                    return True
        except Exception as error:
            if database.is_unavailable(error):
                raise
            # One row that cannot be read must not keep the other steps from running.
            logger.exception("A step of the maintenance failed; it will be tried again.")
        return False

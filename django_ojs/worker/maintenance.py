"""Maintenance in the background: one worker at a time, the holder of the lease, does it for all."""

import logging
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import Error, connections

from django_ojs import hooks
from django_ojs.extension import TICK, DueStep
from django_ojs.operations import expiry, promotion, queue_rows
from django_ojs.operations.access import known_names
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.operations.maintenance import job_pruning, lease, stalled, timeouts
from django_ojs.operations.workers import rescue
from django_ojs.storage import database, raw_queries
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.figures import counts
from django_ojs.worker.job_log import JobLog

logger = logging.getLogger("django_ojs")

#: The batch of a step that does all of its work in one run.
_ALL: Final = sys.maxsize

#: Steps with a longer interval in seconds come last in a pass.
FREQUENT: Final = 1.0

#: Seconds for which a step with more to do is repeated before the other steps run.
BURST = 0.1

#: Seconds for which the conditions of steps are kept. They contain settings of queues, so
#: building them takes longer than the rest of a pass that finds nothing.
KEPT = 10.0

#: Seconds between two batches, during which others can write if the database has one writer at a
#: time.
GAP = 0.025

#: Seconds after which the holder renews the lease, when half of its term is over, and after which
#: another process asks for it again.
ASK_INTERVAL: Final = lease.TERM.total_seconds() / 2

#: Seconds after which the holder passes the lease on if it lacks an extension of the database:
#: only a process with the extension does its work. With N processes that lack it, the turn of one
#: that has it may come after N times as long.
SHARE = 30.0

#: How long work must have been overdue before workers without the lease help its holder with it.
BEHIND = timedelta(seconds=2)
#: The same for rows that are to be deleted, which can wait longer.
PRUNING_BEHIND = timedelta(minutes=1)


def _steps(dead_workers: rescue.DeadWorkers) -> Sequence[DueStep]:
    """Return the steps of the core, which the holder of the lease does for all."""
    keeper = counts.CountKeeper()
    return (
        DueStep(
            run=DueCheck().promote,
            interval=TICK,
            task="ojs.scheduler.poll",
            when=promotion.due_condition,
        ),
        DueStep(run=expiry.expire, interval=TICK, when=expiry.expired_condition),
        DueStep(
            run=dead_workers.take_back,
            interval=TICK,
            task="ojs.reaper.check",
            when=dead_workers.condition,
            otherwise=dead_workers.none_found,
        ),
        DueStep(
            run=rescue.LapseCheck().lapse,
            interval=1.0,
            task="ojs.visibility.check",
            when=rescue.lapsed_condition,
        ),
        DueStep(
            run=timeouts.enforce_for_a_moment,
            interval=TICK,
            batch=timeouts.BATCH,
            when=timeouts.active_condition,
        ),
        DueStep(run=stalled.tell_stalled, interval=5.0, batch=stalled.BATCH),
        DueStep(run=keeper.fold, interval=1.0, batch=_ALL, when=counts.changes_condition),
        DueStep(run=keeper.vacuum_counts, interval=10.0),
        DueStep(
            run=job_pruning.prune,
            interval=10.0,
            batch=job_pruning.PRUNED,
            when=job_pruning.condition,
        ),
        DueStep(run=job_pruning.QueuePruner().prune, interval=10.0, batch=job_pruning.WALK),
        DueStep(run=known_names.prune, interval=60.0),
        DueStep(run=queue_rows.settle_deleted, interval=10.0),
        DueStep(run=queue_rows.put_rules_right, interval=60.0),
    )


def _helping_steps() -> Sequence[DueStep]:
    """Return the steps of the core that workers without the lease help with."""
    return (
        DueStep(
            run=DueCheck(since=BEHIND).promote,
            interval=5.0,
            task="ojs.scheduler.poll",
            when=partial(promotion.due_condition, BEHIND),
        ),
        DueStep(run=expiry.expire, interval=5.0, when=partial(expiry.expired_condition, BEHIND)),
        DueStep(
            run=rescue.LapseCheck(since=BEHIND).lapse,
            interval=5.0,
            task="ojs.visibility.check",
            when=rescue.lapsed_condition,
        ),
        DueStep(
            run=partial(job_pruning.prune, since=PRUNING_BEHIND),
            interval=10.0,
            batch=job_pruning.PRUNED,
            when=partial(job_pruning.condition, PRUNING_BEHIND),
        ),
    )


def _in_order(own: Sequence[DueStep], others: Sequence[DueStep]) -> list[DueStep]:
    """Return the steps in the order of a pass: first the frequent ones, which users notice.

    The steps of the core keep their order, so that a job whose worker is dead is rescued and does
    not time out.
    """
    return sorted([*own, *others], key=lambda step: step.interval > FREQUENT)


def _run_once(step: DueStep) -> bool:
    """Run a step, and return whether there may be more to do."""
    changed = hooks.run_task(step.task, step.run) if step.task else step.run()
    return changed >= (step.batch or database.BATCH)


class MaintenanceThread:
    """A thread that runs the steps while this worker holds the lease.

    Without `leads` it never takes the lease: it helps the holder, and writes its own figures.
    """

    def __init__(self, worker_id: str, job_log: JobLog, *, leads: bool = True) -> None:
        self._worker_id = worker_id
        self._leads = leads
        self._job_log = job_log
        self._dead_workers = rescue.DeadWorkers(worker_id)
        self._steps = _in_order(_steps(self._dead_workers), hooks.steps("due_steps"))
        # What workers without the lease do if its holder is too slow.
        self._helping = _in_order(_helping_steps(), hooks.steps("helping_steps", BEHIND))
        # The SQL conditions of steps that were due together, which are rebuilt from time to time.
        self._conditions: dict[tuple[DueStep, ...], list[str]] = {}
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
        ask_at = pass_on_at = 0.0
        is_held = is_away = False
        pause, backoff = TICK, Backoff()
        try:
            while not self._stop.wait(pause):
                is_behind = False
                try:
                    # The time is taken before the statement, which may take long.
                    if self._leads and (asked_at := time.monotonic()) >= ask_at:
                        # After an outage the sessions of all workers have ended, so their end
                        # proves nothing.
                        take = lease.take if is_away else self._dead_workers.take_lease
                        had, is_held = is_held, (lease.renew if is_held else take)(self._worker_id)
                        if is_away:
                            self._dead_workers.database_was_away()
                            is_away = False
                        ask_at = asked_at + ASK_INTERVAL
                        if not had:
                            pass_on_at = asked_at + SHARE
                        elif is_held and asked_at >= pass_on_at:
                            pass_on_at = asked_at + SHARE
                            if lease.left_out() and lease.others_live(self._worker_id):
                                lease.give(self._worker_id)
                                is_held, ask_at = False, asked_at + 2 * ASK_INTERVAL
                        if not is_held:
                            # Two checks in a row find a dead worker: not one before another holder.
                            self._dead_workers.none_found()
                    if is_held and time.monotonic() < ask_at:
                        is_behind = self._run_due(self._steps, due)
                    elif not database.dialect().has_one_writer:
                        is_behind = self._run_due(self._helping, due)
                    # These steps concern this process only, so they need no lease.
                    hooks.call_after(hooks.registry.worker_passes)
                    pause = 0.0 if is_behind else TICK
                    backoff.reset()
                except Error as error:
                    is_away, is_held, ask_at = True, False, 0.0
                    self._job_log.database_away(error)
                    connections.close_all()
                    pause = max(TICK, backoff.pause())
            lease.give(self._worker_id)
        except Error:
            logger.debug("The maintenance lease was not released; it expires by itself.")
        finally:
            connections.close_all()

    def _run_due(self, steps: Sequence[DueStep], due: dict[DueStep, float]) -> bool:
        """Run the steps that are due. Return whether one of them has more to do."""
        is_behind = False
        asked_at = time.monotonic()
        steps = [step for step in steps if asked_at >= due[step]]
        idle = self._without_work(steps)
        for step in steps:
            if self._stop.is_set():
                return False
            has_more = False
            # If the pass takes long, what was found at its start is out of date.
            if step not in idle or time.monotonic() - asked_at >= TICK / 2:
                has_more = self._run_burst(step)
            elif step.otherwise is not None:
                step.otherwise()
            due[step] = 0.0 if has_more else time.monotonic() + step.interval - TICK / 2
            is_behind |= has_more
        return is_behind

    def _without_work(self, steps: Sequence[DueStep]) -> set[DueStep]:
        """Return the steps that have nothing to do now, found by one statement for all."""
        asked = tuple(step for step in steps if step.when is not None)
        if not asked:
            return set()
        try:
            found = raw_queries.which_hold(self._conditions_of(asked))
        except Exception as error:
            # One table that cannot be read, or is locked, must not keep the other steps from
            # running, so all of them run.
            if database.is_stopped(error):
                self._job_log.database_away(error)
            elif database.is_unavailable(error):
                raise
            else:
                logger.error(
                    "The conditions of the maintenance could not be checked.",
                    exc_info=database.without_values(error),
                )
            return set()
        return {step for step, holds in zip(asked, found, strict=True) if not holds}

    def _conditions_of(self, steps: tuple[DueStep, ...]) -> list[str]:
        now = time.monotonic()
        # After an outage, the condition for dead workers changes each time.
        if now >= self._conditions_until or self._dead_workers.had_outage:
            self._conditions.clear()
            self._conditions_until = now + KEPT
        if steps not in self._conditions:
            self._conditions[steps] = [step.when() for step in steps if step.when is not None]
        return self._conditions[steps]

    def _run_burst(self, step: DueStep) -> bool:
        """Run a step again while it finds full batches, for a moment. Return whether it has more.

        Each kind of work gets a share of the time, so that none waits until another has ended.
        """
        until = time.monotonic() + BURST
        try:
            while _run_once(step):
                gap = GAP if database.dialect().has_one_writer else 0
                if self._stop.wait(gap) or time.monotonic() >= until:
                    return True
        except Exception as error:
            if database.is_unavailable(error):
                raise
            # One row that cannot be read must not keep the other steps from running.
            logger.error(
                "A step of the maintenance failed; it will be tried again.",
                exc_info=database.without_values(error),
            )
        return False

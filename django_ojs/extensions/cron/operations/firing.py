"""Enqueue the jobs of occurrences: apply the overlap policy, push, record the runs, publish."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import InterfaceError, OperationalError

from django_ojs.conf import settings
from django_ojs.extensions.cron import cron_events
from django_ojs.extensions.cron.cron_events import SkipReason
from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase, OverlapPolicy
from django_ojs.extensions.cron.operations.queries import split
from django_ojs.extensions.cron.storage import NewRun
from django_ojs.hooks import publish_all, registry
from django_ojs.operations.cancel import cancel
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.enqueue.unique import UniqueKeyLocked
from django_ojs.operations.push import PushOptions, push_batch
from django_ojs.spec.envelope import Envelope, parse_many
from django_ojs.spec.errors import (
    Conflict,
    DuplicateJob,
    JobNotFound,
    OJSError,
    QueueFull,
    RowLocked,
)
from django_ojs.spec.full_policy import FullPolicy
from django_ojs.spec.published import NewEvent
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import database

#: From this many held jobs of one cron job on, a warning is logged (ojs-cron §6.1).
MANY_HELD: Final = 3

# A full queue does not lose an occurrence: the outbox delivers its job when there is room. Without
# the outbox, the occurrence stays due until then.
_WAIT: Final = PushOptions(batch=True, generated_ids=True, notes=(FullPolicy(outbox=True),))
_DO_NOT_WAIT: Final = replace(_WAIT, is_tried_again=True)

logger = logging.getLogger("django_ojs.cron")


@dataclass(frozen=True, kw_only=True, slots=True)
class DueRun:
    """A time at which a cron job is to enqueue a job. `by` is the operator who asked for it."""

    cron_job: CronJob
    scheduled_at: datetime
    by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedRun:
    """Why an occurrence enqueued no job; `job_id` is the job that is the reason."""

    reason: SkipReason
    job_id: UUID | None = None
    message: str = ""


@dataclass(slots=True)
class Firing:
    """An occurrence, and what is done with it.

    Without a result, nothing was stored, and the next tick tries again: another transaction has
    locked its unique key, its queue or the job that it replaces, or its queue is full.
    """

    occurrence: DueRun
    #: The job is pending until the earlier runs have ended.
    is_held: bool = False
    #: The jobs of earlier runs that end when this one is stored.
    replaces: list[UUID] = field(default_factory=list)
    result: EnqueuedJob | SkippedRun | None = None


class _NotPushedError(Exception):
    """Rolls back what was to happen together with the push of a job."""


def event_source(cron_job: CronJob) -> cron_events.Schedule:
    """Return what a cron job says about itself in its events."""
    return cron_events.Schedule(
        name=cron_job.name,
        expression=cron_job.expression,
        timezone=cron_job.timezone,
        queue=cron_job.queue,
        job_type=cron_job.type,
    )


def enqueue(occurrences: Sequence[DueRun], *, wait: bool) -> list[Firing]:
    """Enqueue a job for each occurrence, if its overlap policy allows it.

    The caller has locked the cron jobs in the current transaction, and passes what is returned to
    `record`. A cron job has only one occurrence here. With `wait`, this waits for transactions that
    hold the lock of a key or a queue.
    """
    open_runs = _settle([each.cron_job.name for each in occurrences])
    runs = [Firing(each) for each in occurrences]
    for run in runs:
        _apply_policy(run, open_runs.get(run.occurrence.cron_job.name, []))
    by_queue: dict[str, list[Firing]] = {}
    for run in runs:
        if run.result is None:
            by_queue.setdefault(run.occurrence.cron_job.queue, []).append(run)
    options = _WAIT if wait else _DO_NOT_WAIT
    # Queues are taken in order, so that two schedulers that lock bounded queues do not deadlock.
    for queue in sorted(by_queue):
        _push([run for run in by_queue[queue] if not run.replaces], options)
        for run in by_queue[queue]:
            if run.replaces:
                _replace(run, options)
    return runs


def _settle(names: Sequence[str]) -> dict[str, list[CronRun]]:
    """Note which runs have ended, and return the others, by name."""
    going_on, ended = split(names)
    # The latest run stays open: a discarded job may be retried by hand.
    latest: dict[str, int] = {}
    for run in [*ended, *(run for runs in going_on.values() for run in runs)]:
        latest[run.name] = max(run.pk, latest.get(run.name, 0))
    keys = [run.pk for run in ended if latest[run.name] != run.pk]
    if keys:
        CronRun.primary.filter(pk__in=keys).update(phase=CronRunPhase.ENDED)
    return going_on


def _apply_policy(run: Firing, open_runs: Sequence[CronRun]) -> None:
    if not open_runs:
        return
    cron_job = run.occurrence.cron_job
    match cron_job.overlap_policy:
        case OverlapPolicy.SKIP:
            run.result = SkippedRun(reason=SkipReason.OVERLAP, job_id=open_runs[0].job_id)
        case OverlapPolicy.CANCEL_PREVIOUS:
            run.replaces = [each.job_id for each in open_runs]
        case OverlapPolicy.ENQUEUE:
            run.is_held = True
            held = sum(each.phase == CronRunPhase.HELD for each in open_runs) + 1
            if held >= MANY_HELD:
                logger.warning(
                    "%d runs of the cron job %s wait for the run before them to end.",
                    held,
                    cron_job.name,
                )


def _replace(run: Firing, options: PushOptions) -> None:
    """Cancel the jobs of earlier runs and store the job of this one: both, or neither."""
    try:
        with suppress(_NotPushedError), database.atomic():
            for job_id in run.replaces:
                # The job may have ended since its run was read, or wait in the outbox.
                with suppress(Conflict, JobNotFound):
                    cancel(job_id)
            _push([run], options)
            if not isinstance(run.result, EnqueuedJob):
                raise _NotPushedError
    except RowLocked:
        # The next tick tries this run again, and no other cron job waits for it.
        if not options.is_tried_again:
            raise


def _push(runs: Sequence[Firing], options: PushOptions) -> None:
    """Store the jobs of runs in one queue. If one is rejected, the others are still stored."""
    if not runs:
        return
    try:
        with database.atomic():
            results = push_batch(_envelopes(runs), options)
    except (InterfaceError, OperationalError):
        raise
    except Exception as error:
        # A middleware may raise anything, and no cron job must keep another one from running.
        if len(runs) > 1:
            for run in runs:
                _push([run], options)
        elif not (options.is_tried_again and _is_locked(error)):
            runs[0].result = _rejected(runs[0], error)
        return
    for run, result in zip(runs, results, strict=True):
        run.result = _outcome(result)


def _is_locked(error: Exception) -> bool:
    """Whether a transaction that has not ended keeps a job from its key or its queue.

    It is also true if the queue is full and there is no outbox in which the job could wait.
    """
    if isinstance(error, QueueFull):
        return error.is_busy or not registry.has("outbox")
    return isinstance(error, UniqueKeyLocked)


def _envelopes(runs: Sequence[Firing]) -> list[Envelope]:
    values = settings()
    templates = [run.occurrence.cron_job.template for run in runs]
    envelopes = parse_many(templates, default_retry=values.default_retry, limits=values.limits)
    for run, envelope in zip(runs, envelopes, strict=True):
        occurrence = run.occurrence
        envelope.meta = {
            **envelope.meta,
            "cron_name": occurrence.cron_job.name,
            "cron_triggered_at": format_timestamp(occurrence.scheduled_at),
        }
        if run.is_held and _is_for_elsewhere(envelope):
            # Only the other server could activate it, and nothing here learns when an earlier run
            # ends.
            run.is_held = False
        envelope.pending = run.is_held
    return envelopes


def _is_for_elsewhere(envelope: Envelope) -> bool:
    """Whether the outbox, if the site has one, sends a job to another server."""
    if not registry.has("outbox"):
        return False
    from django_ojs.extensions.outbox.operations import route

    return route(envelope) is not None


def _outcome(result: EnqueuedJob) -> EnqueuedJob | SkippedRun:
    match result.outcome:
        case Outcome.DROPPED:
            return SkippedRun(reason=SkipReason.DROPPED, message="A middleware dropped the job.")
        case Outcome.DUPLICATE:
            return SkippedRun(reason=SkipReason.DUPLICATE, job_id=result.id)
    return result


def _rejected(run: Firing, error: Exception) -> SkippedRun:
    if isinstance(error, DuplicateJob):
        key = error.details.get("existing_job_id")
        return SkippedRun(reason=SkipReason.DUPLICATE, job_id=None if key is None else UUID(key))
    name = run.occurrence.cron_job.name
    if isinstance(error, OJSError):
        logger.error("The job of the cron job %s was rejected: %s", name, error.message)
        return SkippedRun(reason=SkipReason.REJECTED, message=error.message)
    logger.error(
        "The job of the cron job %s was not enqueued.",
        name,
        exc_info=database.without_values(error),
    )
    return SkippedRun(reason=SkipReason.REJECTED, message=type(error).__name__)


def record(runs: Sequence[Firing], now: datetime) -> list[NewRun]:
    """Publish what happened, and note on each cron job that it has enqueued a job.

    Return the runs; the caller stores them, and the cron jobs.
    """
    rows: list[NewRun] = []
    for run in runs:
        occurrence, cron_job = run.occurrence, run.occurrence.cron_job
        if isinstance(run.result, EnqueuedJob):
            phase = CronRunPhase.HELD if run.is_held else CronRunPhase.OPEN
            at, by = occurrence.scheduled_at, occurrence.by
            rows.append(NewRun(cron_job.name, run.result.id, at, by, phase))
            cron_job.run_count += 1
            cron_job.skipped_count, cron_job.skipped_since = 0, None
            cron_job.skipped_why, cron_job.skipped_for = "", None
            cron_job.last_run_at, cron_job.last_job_id = now, run.result.id
        elif run.result is not None:
            if not cron_job.skipped_count:
                cron_job.skipped_since = occurrence.scheduled_at
            cron_job.skipped_count += 1
            cron_job.skipped_why, cron_job.skipped_for = run.result.reason, run.result.job_id
    # Without an extension that wants them, no event is made.
    events = (_event(run, run.result, now) for run in runs if run.result is not None)
    publish_all(events)
    return rows


def _event(run: Firing, result: EnqueuedJob | SkippedRun, now: datetime) -> NewEvent:
    occurrence, cron_job = run.occurrence, run.occurrence.cron_job
    if isinstance(result, EnqueuedJob):
        return event_source(cron_job).triggered(
            job_id=result.id,
            job_type=result.type,
            run_count=cron_job.run_count,
            scheduled_at=occurrence.scheduled_at,
            at=now,
            by=occurrence.by,
        )
    return event_source(cron_job).skipped(
        result.reason,
        scheduled_at=occurrence.scheduled_at,
        job_id=result.job_id,
        message=result.message,
    )

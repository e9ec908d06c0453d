"""Publish what happened: record the event, and send the signal after the commit.

An operation publishes inside its transaction, so that the event commits with the change or not at
all. A type that is not recorded and a signal without receivers cost one set lookup.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

from django.dispatch import Signal
from django.utils import timezone

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.spec import job_events
from django_ojs.spec.envelope import StoredJob
from django_ojs.spec.events import EventType, NewEvent
from django_ojs.spec.failure import Failure, clean
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import database
from django_ojs.storage import events as stored
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.figures import rollups
from django_ojs.storage.key_limits import Dropped, Effects
from django_ojs.storage.limit_journal import Crossing

#: Becoming available is one event, whatever it was before.
AVAILABLE = (EventType.JOB_ENQUEUED,)
ENQUEUED = (EventType.JOB_ENQUEUED, EventType.JOB_SCHEDULED)
STARTED = (EventType.JOB_STARTED,)
COMPLETED = (EventType.JOB_COMPLETED,)

#: The columns of a job that are most of a large one, and that no event has.
_PAYLOAD = ("args", "options", "progress", "result")

#: The states that jobs have left: one for all, or of each job by its id.
Before: TypeAlias = State | Mapping[UUID, State]


def is_recorded(*types: EventType) -> bool:
    """Say whether events of one of these types are recorded (setting `KEEP_EVENTS`)."""
    return not settings().keep_events.isdisjoint(types)


def atomic_if_published(
    *types: EventType, signal: Signal | None = None
) -> AbstractContextManager[object]:
    """Open a transaction if one of these types is recorded or `signal` has a receiver.

    For operations that are a single statement and need no transaction otherwise.
    """
    wanted = is_recorded(*types) or (signal is not None and signal.has_listeners(Job))
    if wanted and not database.connection().in_atomic_block:
        return database.atomic()
    return nullcontext()


def record(events: Iterable[NewEvent]) -> None:
    """Store the events whose types are recorded, in the current transaction."""
    recorded = settings().keep_events
    stored.add([event for event in events if event.type in recorded])


def send_after_commit(signal: Signal, job: Any, **details: Any) -> None:
    """Send a signal once the current transaction has committed."""
    if signal.has_listeners(Job):
        database.after_commit(lambda: signal.send_robust(sender=Job, job=job, **details))


def send_all_after_commit(signal: Signal, keys: Collection[UUID]) -> None:
    """Send a signal for each of these jobs once the current transaction has committed."""
    if keys and signal.has_listeners(Job):
        for job in Job.primary.filter(OneOf("pk", keys)):
            send_after_commit(signal, job)


def enqueued(new: Sequence[Job]) -> None:
    """Jobs were stored. A pending job has no event until it is activated."""
    if is_recorded(*ENQUEUED):
        record(event for job in new for event in _of_enqueued(job))
    if signals.job_enqueued.has_listeners(Job):
        for job in new:
            send_after_commit(signals.job_enqueued, job)


def _of_enqueued(job: Job) -> list[NewEvent]:
    match job.state:
        case State.AVAILABLE:
            return [job_events.enqueued(job)]
        case State.SCHEDULED:
            return [job_events.scheduled(job)]
    return []


def job_available(job: Job, signal: Signal, *, before: State) -> None:
    """A job became available: it was activated, or its worker returned it."""
    if is_recorded(*AVAILABLE):
        record([job_events.enqueued(job, before)])
    send_after_commit(signal, job)


def jobs_available(keys: Collection[UUID], signal: Signal | None = None, *, before: Before) -> None:
    """Jobs became available: promoted, retried by hand, or returned before they ran."""
    _read_and_publish(
        keys, lambda job: job_events.enqueued(job, _state(job, before)), AVAILABLE, signal
    )


def _state(job: Job, before: Before) -> State:
    if isinstance(before, State):
        return before
    return before[job.pk]


def started(claimed: Sequence[StoredJob]) -> None:
    """Jobs were claimed."""
    if is_recorded(*STARTED):
        record(map(job_events.started, claimed))
    if signals.job_started.has_listeners(Job):
        for job in claimed:
            send_after_commit(signals.job_started, job)


def completed(keys: Collection[UUID]) -> None:
    """Jobs were completed."""
    _read_and_publish(keys, job_events.completed, COMPLETED, signals.job_completed)


def read_failed(keys: Collection[UUID]) -> dict[UUID, Job]:
    """Return jobs as `failed` needs them, by id: all columns only where a receiver gets the job."""
    rows = Job.primary.filter(OneOf("pk", keys))
    of_failures = (signals.job_failed, signals.job_retrying, signals.job_discarded)
    if not any(signal.has_listeners(Job) for signal in of_failures):
        rows = rows.defer(*_PAYLOAD)
    return {job.pk: job for job in rows}


def failed(failed: Sequence[tuple[Job, Failure]], *, worker_id: str | None) -> None:
    """Runs of a worker failed; each job waits for its next attempt or was discarded."""
    record(event for job, failure in failed for event in _of_failed(job, failure, worker_id))
    for job, failure in failed:
        ended = job.state == State.DISCARDED
        send_after_commit(signals.job_failed, job, failure=failure)
        send_after_commit(
            signals.job_discarded if ended else signals.job_retrying, job, failure=failure
        )


def _of_failed(job: Job, failure: Failure, worker_id: str | None) -> list[NewEvent]:
    ended = job.state == State.DISCARDED
    follow_up = EventType.JOB_DISCARDED if ended else EventType.JOB_RETRYING
    if not is_recorded(EventType.JOB_FAILED, follow_up):
        return []
    error = failure.render()
    return [
        job_events.failed(job, error, State(job.state), worker_id=worker_id),
        job_events.discarded(job, error, worker_id=worker_id, dead_letter=job.dead_letter)
        if ended
        else job_events.retrying(job, error, worker_id=worker_id),
    ]


def postponed(job: Job, failure: Failure, *, worker_id: str | None) -> None:
    """A worker that cannot run a job postponed it."""
    if is_recorded(EventType.JOB_RETRYING):
        record([job_events.retrying(job, failure.render(), worker_id=worker_id)])
    send_after_commit(signals.job_returned, job)


def runs_lost(
    again: Collection[UUID],
    spent: Collection[UUID],
    failure: Failure,
    *,
    workers: Mapping[UUID, str | None],
) -> None:
    """Runs ended without their worker's response: `again` are available, `spent` are discarded.

    `workers` are the workers that held them.
    """
    keys: list[UUID] = []
    if is_recorded(EventType.JOB_FAILED, EventType.JOB_ENQUEUED):
        keys = [*again, *spent]
    elif is_recorded(EventType.JOB_DISCARDED):
        keys = [*spent]
    if keys:
        record(_of_lost(keys, failure.render(), workers))
    send_all_after_commit(signals.job_returned, again)
    send_all_after_commit(signals.job_discarded, spent)


def _of_lost(
    keys: Collection[UUID], error: dict[str, object], workers: Mapping[UUID, str | None]
) -> Iterator[NewEvent]:
    for job in Job.primary.filter(OneOf("pk", keys)):
        state, worker_id = State(job.state), workers[job.pk]
        yield job_events.failed(job, error, state, worker_id=worker_id)
        if state is State.DISCARDED:
            dead = job.dead_letter
            yield job_events.discarded(job, error, worker_id=worker_id, dead_letter=dead)
        else:
            yield job_events.enqueued(job, State.ACTIVE)


def expired(keys: Collection[UUID], *, before: Before) -> None:
    """Jobs were discarded because their deadline passed."""
    _read_and_publish(
        keys,
        lambda job: job_events.expired(job, _state(job, before)),
        (EventType.JOB_EXPIRED,),
        signals.job_discarded,
    )


def discarded(keys: Collection[UUID], *, before: Before) -> None:
    """Jobs were discarded without a run that failed; their error, if they have one, says why."""

    def event(job: Job) -> NewEvent:
        return job_events.discarded(
            job,
            job.error or {},
            worker_id=None,
            dead_letter=job.dead_letter,
            before=_state(job, before),
        )

    _read_and_publish(keys, event, (EventType.JOB_DISCARDED,), signals.job_discarded)


def cancelled(keys: Collection[UUID], *, before: Before) -> None:
    """Jobs were cancelled."""
    _read_and_publish(
        keys,
        lambda job: job_events.cancelled(job, _state(job, before)),
        (EventType.JOB_CANCELLED,),
        signals.job_cancelled,
    )


def extended(keys: Collection[UUID]) -> None:
    """The leases of these jobs were extended. There is no signal."""
    _read_and_publish(keys, job_events.heartbeat, (EventType.JOB_HEARTBEAT,), None)


def queue_event(type: EventType, name: str, **data: Any) -> None:
    """Record an event of a queue. There is no signal; a value of None in `data` is left out."""
    if is_recorded(type):
        given = {
            key: clean(value, 255) if isinstance(value, str) else value
            for key, value in data.items()
            if value is not None
        }
        record([NewEvent(type=type, subject=name, queue=name, data={"queue": name, **given})])


def limits(effects: Effects) -> None:
    """Keys reached a limit, or left it; jobs were rescheduled, or dropped."""
    _crossed(effects.crossings)
    _read_and_publish(
        effects.rescheduled,
        lambda job: job_events.scheduled(job, State.AVAILABLE),
        (EventType.JOB_SCHEDULED,),
        None,
    )
    if effects.dropped:
        _dropped(effects.dropped)


def _dropped(dropped: Collection[Dropped]) -> None:
    ids = [each.id for each in dropped]
    rows = Job.primary.filter(OneOf("pk", ids)).values_list("pk", "queue", "type")
    of_job = {key: (queue, type) for key, queue, type in rows}
    rollups.note_after_commit(rollups.DISCARDED, of_job.values())
    if is_recorded(EventType.RATE_LIMIT_DROPPED):
        record(
            _of_key(
                EventType.RATE_LIMIT_DROPPED,
                each.key,
                job_id=str(each.id),
                job_type=of_job[each.id][1],
            )
            for each in dropped
        )
    discarded(ids, before=State.AVAILABLE)


def _crossed(crossings: Iterable[Crossing]) -> None:
    # There is no signal.
    record(
        _of_key(EventType.RATE_LIMIT_RELEASED, each.key, strategy=each.strategy)
        if each.is_over
        else _of_key(
            EventType.RATE_LIMIT_EXCEEDED,
            each.key,
            strategy=each.strategy,
            limit=each.limit,
            current=each.current,
        )
        for each in crossings
    )


def key_paused(key: str, duration: timedelta, *, reason: str) -> None:
    """A handler paused a limit key. There is no signal."""
    until = format_timestamp(timezone.now() + duration)
    record([_of_key(EventType.RATE_LIMIT_DYNAMIC_ADJUSTED, key, until=until, reason=reason)])


def _of_key(type: EventType, key: str, **data: Any) -> NewEvent:
    # Its jobs may be in any queue, so it belongs to none.
    given = {name: value for name, value in data.items() if value is not None}
    return NewEvent(type=type, subject=key, data={"key": key, **given})


def worker_event(type: EventType, worker_id: str, **data: Any) -> None:
    """Record an event of a worker. There is no signal; a value of None in `data` is left out."""
    if is_recorded(type):
        given = {key: value for key, value in data.items() if value is not None}
        record([NewEvent(type=type, subject=worker_id, data={"worker_id": worker_id, **given})])


def _read_and_publish(
    keys: Collection[UUID],
    event: Callable[[Job], NewEvent],
    types: Sequence[EventType],
    signal: Signal | None,
) -> None:
    receivers = signal is not None and signal.has_listeners(Job)
    recorded = is_recorded(*types)
    if not keys or not (recorded or receivers):
        return
    rows = Job.primary.filter(OneOf("pk", keys))
    if not receivers:
        rows = rows.defer(*_PAYLOAD)
    jobs = list(rows)
    if recorded:
        record(map(event, jobs))
    if signal is not None and receivers:
        for job in jobs:
            send_after_commit(signal, job)

"""Tell of what happened: keep the event, and send the signal once it is committed.

An operation calls this once, inside its transaction, so that the event commits with the change or
not at all. What is neither kept nor listened to costs a look into a set.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from uuid import UUID

from django.dispatch import Signal

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.spec import job_events
from django_ojs.spec.events import Event, EventType
from django_ojs.spec.failure import Failure, clean
from django_ojs.spec.job_events import EventJob
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage import events as stored

#: Becoming available is one event, whatever it was before.
AVAILABLE = (EventType.JOB_ENQUEUED,)
PUSHED = (EventType.JOB_ENQUEUED, EventType.JOB_SCHEDULED)
STARTED = (EventType.JOB_STARTED,)
COMPLETED = (EventType.JOB_COMPLETED,)


def keeps(*types: EventType) -> bool:
    """Say whether the site keeps one of these."""
    return not settings().keep_events.isdisjoint(types)


def together(*types: EventType, signal: Signal | None = None) -> AbstractContextManager[object]:
    """Make what follows one transaction if its event is kept, or read for a listener of `signal`.

    For operations that are a single statement, which needs none otherwise.
    """
    wanted = keeps(*types) or (signal is not None and signal.has_listeners(Job))
    if wanted and not database.connection().in_atomic_block:
        return database.atomic()
    return nullcontext()


def keep(events: Iterable[Event]) -> None:
    """Store those of these events whose types the site keeps, in the current transaction."""
    kept = settings().keep_events
    stored.add([event for event in events if event.type in kept])


def announce(signal: Signal, job: Any, **details: Any) -> None:
    """Send a signal once the current transaction has committed."""
    if signal.has_listeners(Job):
        database.after_commit(partial(signal.send_robust, sender=Job, job=job, **details))


def announce_all(signal: Signal, keys: Collection[UUID]) -> None:
    """Send a signal for each of these jobs once the current transaction has committed."""
    if keys and signal.has_listeners(Job):
        for job in Job.primary.filter(pk__in=keys):
            announce(signal, job)


def pushed(new: Sequence[Job | None]) -> None:
    """Jobs were stored; a pending one is no event before it is activated."""
    if keeps(*PUSHED):
        keep(event for job in new if job is not None for event in _of_pushed(job))
    if signals.job_enqueued.has_listeners(Job):
        for job in new:
            if job is not None:
                announce(signals.job_enqueued, job)


def _of_pushed(job: Job) -> list[Event]:
    match job.state:
        case State.AVAILABLE:
            return [job_events.enqueued(job)]
        case State.SCHEDULED:
            return [job_events.scheduled(job)]
    return []


def available(job: Job, signal: Signal) -> None:
    """A job became available: activated, retried by hand, or given back."""
    if keeps(*AVAILABLE):
        keep([job_events.enqueued(job)])
    announce(signal, job)


def available_again(keys: Collection[UUID], signal: Signal | None = None) -> None:
    """Jobs became available: promoted, or taken back from their worker."""
    _read_and_tell(keys, job_events.enqueued, AVAILABLE, signal)


def started(claimed: Sequence[EventJob]) -> None:
    """Jobs were claimed."""
    if keeps(*STARTED):
        keep(map(job_events.started, claimed))
    if signals.job_started.has_listeners(Job):
        for job in claimed:
            announce(signals.job_started, job)


def completed(keys: Collection[UUID]) -> None:
    """Jobs were completed."""
    _read_and_tell(keys, job_events.completed, COMPLETED, signals.job_completed)


def failed(job: Job, failure: Failure, *, worker_id: str | None) -> None:
    """A run failed, and the job waits for its next attempt or was discarded."""
    ended = job.state == State.DISCARDED
    follow_up = EventType.JOB_DISCARDED if ended else EventType.JOB_RETRYING
    if keeps(EventType.JOB_FAILED, follow_up):
        error = failure.render()
        keep(
            [
                job_events.failed(job, error, State(job.state), worker_id=worker_id),
                job_events.discarded(job, error, worker_id=worker_id, dead_letter=job.dead_letter)
                if ended
                else job_events.retrying(job, error, worker_id=worker_id),
            ]
        )
    announce(signals.job_failed, job, failure=failure)
    announce(signals.job_discarded if ended else signals.job_retrying, job, failure=failure)


def held(job: Job, failure: Failure, *, worker_id: str | None) -> None:
    """A job was put aside by a worker that cannot run it."""
    if keeps(EventType.JOB_RETRYING):
        keep([job_events.retrying(job, failure.render(), worker_id=worker_id)])
    announce(signals.job_returned, job)


def taken_back(again: Sequence[Job], spent: Sequence[Job], failure: Failure) -> None:
    """Runs were lost: these jobs are available again, those are discarded.

    The jobs are as they were while they ran.
    """
    if keeps(EventType.JOB_FAILED, EventType.JOB_ENQUEUED, EventType.JOB_DISCARDED):
        error = failure.render()
        told = []
        for job in again:
            who = job.worker_id
            told.append(job_events.failed(job, error, State.AVAILABLE, worker_id=who))
            told.append(job_events.enqueued(job))
        for job in spent:
            who, dead = job.worker_id, job.retry_policy.on_exhaustion == "dead_letter"
            told.append(job_events.failed(job, error, State.DISCARDED, worker_id=who))
            told.append(job_events.discarded(job, error, worker_id=who, dead_letter=dead))
        keep(told)
    announce_all(signals.job_returned, [job.pk for job in again])
    announce_all(signals.job_discarded, [job.pk for job in spent])


def expired(keys: Collection[UUID]) -> None:
    """Jobs were discarded because their deadline passed."""
    _read_and_tell(keys, job_events.expired, (EventType.JOB_EXPIRED,), signals.job_discarded)


def discarded(keys: Collection[UUID]) -> None:
    """Jobs were discarded by somebody's decision; why is their error."""
    types = (EventType.JOB_DISCARDED,)
    _read_and_tell(keys, _by_decision, types, signals.job_discarded)


def _by_decision(job: Job) -> Event:
    return job_events.discarded(job, job.error or {}, worker_id=None, dead_letter=job.dead_letter)


def cancelled(keys: Collection[UUID]) -> None:
    """Jobs were cancelled."""
    _read_and_tell(keys, job_events.cancelled, (EventType.JOB_CANCELLED,), signals.job_cancelled)


def extended(keys: Collection[UUID]) -> None:
    """The reservations of these jobs were extended. It has no signal."""
    _read_and_tell(keys, job_events.heartbeat, (EventType.JOB_HEARTBEAT,), None)


def queue(type: EventType, name: str, **data: Any) -> None:
    """Something happened to a queue: an operator's action, or backpressure. It has no signal.

    None in `data` is left out.
    """
    if keeps(type):
        told = {
            key: clean(value, 255) if isinstance(value, str) else value
            for key, value in data.items()
            if value is not None
        }
        keep([Event(type=type, subject=name, queue=name, data={"queue": name, **told})])


def worker(type: EventType, worker_id: str, **data: Any) -> None:
    """Something happened to a worker. It has no signal; None in `data` is left out."""
    if keeps(type):
        told = {key: value for key, value in data.items() if value is not None}
        keep([Event(type=type, subject=worker_id, data={"worker_id": worker_id, **told})])


def _read_and_tell(
    keys: Collection[UUID],
    event: Callable[[Job], Event],
    types: Sequence[EventType],
    signal: Signal | None,
) -> None:
    listened = signal is not None and signal.has_listeners(Job)
    kept = keeps(*types)
    if not keys or not (kept or listened):
        return
    found = list(Job.primary.filter(pk__in=keys))
    if kept:
        keep(map(event, found))
    if signal is not None and listened:
        for job in found:
            announce(signal, job)

"""The recorded events (ojs-events): each is stored in the transaction of the change it reports.

Events of the types in `KEEP_EVENTS` are recorded. The readers are in `operations.log`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from django.db.models import Model

from django_ojs.conf import of
from django_ojs.extension import Change, Declared, DueStep, Extension, Hooks, WantedEvents
from django_ojs.extensions.events import job_events, storage
from django_ojs.extensions.events.settings import EventSettings
from django_ojs.spec.published import EventType, NewEvent, PastEvent
from django_ojs.spec.states import State, Trigger

_ENQUEUED: Final = frozenset({EventType.JOB_ENQUEUED, EventType.JOB_SCHEDULED})


class EventsExtension(Extension):
    """Records events."""

    name = "events"
    number = 1
    settings = EventSettings
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks for the types that `KEEP_EVENTS` names."""
        kept = of(EventSettings).keep_events
        return Hooks(
            stored=None if kept.isdisjoint(_ENQUEUED) else _stored,
            changed={trigger: hook for trigger, (hook, types) in _CHANGED.items() if types & kept},
            published=_published,
            published_types=kept,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Assign positions to new events, and delete old ones."""
        from django_ojs.extensions.events import storage
        from django_ojs.extensions.events.operations import log

        return (
            # Readers of the events assign positions too.
            DueStep(run=storage.assign_positions, interval=2.0, when=storage.unsettled_condition),
            DueStep(run=log.prune, interval=10.0, when=log.old_condition),
        )

    def routes(self) -> Sequence[Any]:
        """Return the routes of recorded events."""
        from django_ojs.extensions.events import views as events
        from django_ojs.http.routing import route

        job = "v1/jobs/<str:key>"
        return (
            route(f"{job}/progress/stream", events.JobProgressStream, "ojs-job-progress-stream"),
            route("v1/events", events.Events, "ojs-events"),
            route("v1/events/stream", events.EventStream, "ojs-event-stream"),
            route(f"{job}/events", events.JobEvents, "ojs-job-events"),
            route("v1/queues/<str:name>/events", events.QueueEvents, "ojs-queue-events"),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare events."""
        return (Declared(experimental="realtime"),)

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.events.models import Event

        return {Event: "django_ojs.extensions.events.admin.EventAdmin"}

    def past_events(self, wanted: WantedEvents) -> Sequence[PastEvent]:
        """Return events of the types in KEEP_EVENTS, until they are pruned."""
        return storage.latest(wanted)

    def panels(self) -> Sequence[Any]:
        """Return the events of a job, and of a queue."""
        from django_ojs.extensions.events.admin import PANELS

        return PANELS


def _record(events: Iterator[NewEvent]) -> None:
    kept = of(EventSettings).keep_events
    storage.add([event for event in events if event.type in kept])


def _published(events: Sequence[NewEvent]) -> None:
    storage.add(events)


def _stored(jobs: Sequence[Any]) -> None:
    _record(event for job in jobs for event in _of_stored(job))


def _of_stored(job: Any) -> list[NewEvent]:
    """Return the event of a new job. A pending job has none until it is activated."""
    match job.state:
        case State.AVAILABLE:
            return [job_events.enqueued(job)]
        case State.SCHEDULED:
            return [job_events.scheduled(job)]
    return []


def _available(change: Change) -> None:
    """Record that jobs became available, whatever their state was before."""
    _record(job_events.enqueued(job, change.before[job.pk]) for job in change.rows())


def _rescheduled(change: Change) -> None:
    _record(job_events.scheduled(job, change.before[job.pk]) for job in change.rows())


def _started(change: Change) -> None:
    _record(map(job_events.started, change.jobs().values()))


def _completed(change: Change) -> None:
    seconds, jobs = change.known.seconds, change.known.jobs
    if change.before.keys() <= seconds.keys() & jobs.keys():
        # The worker knows all that the events need, which saves a query.
        _record(
            job_events.completed(job, seconds[key])
            for key, job in jobs.items()
            if key in change.before
        )
    else:
        _record(map(job_events.completed, change.rows()))


def _cancelled(change: Change) -> None:
    _record(job_events.cancelled(job, change.before[job.pk]) for job in change.rows())


def _expired(change: Change) -> None:
    _record(job_events.expired(job, change.before[job.pk]) for job in change.rows())


def _discarded(change: Change) -> None:
    """Record that jobs ended without a failed run; their error, if any, gives the reason."""
    _record(
        job_events.discarded(
            job,
            job.error or {},
            worker_id=None,
            dead_letter=job.dead_letter,
            before=change.before[job.pk],
        )
        for job in change.rows()
    )


def _failed(change: Change) -> None:
    """Record that runs failed; each job waits for its next attempt, or was discarded."""
    follow_ups = {
        EventType.JOB_DISCARDED if state is State.DISCARDED else EventType.JOB_RETRYING
        for state in change.after.values()
    }
    wanted = follow_ups if not change.known.spends else {EventType.JOB_FAILED, *follow_ups}
    if of(EventSettings).keep_events.isdisjoint(wanted):
        return
    rows = {job.pk: job for job in change.rows()}
    # The events are recorded in the order in which the operation lists the jobs.
    _record(event for key in change.before for event in _of_failed(rows[key], change))


def _of_failed(job: Any, change: Change) -> Iterator[NewEvent]:
    known = change.known
    worker_id, error = known.workers.get(job.pk), known.failures[job.pk].render()
    state = change.after[job.pk]
    # A job that the worker cannot run is postponed: no run has failed.
    if known.spends:
        yield job_events.failed(job, error, state, worker_id=worker_id)
    if state is State.DISCARDED:
        yield _of_end(job, error, worker_id)
    else:
        yield job_events.retrying(job, error, worker_id=worker_id)


def _of_end(job: Any, error: Mapping[str, Any], worker_id: str | None) -> NewEvent:
    return job_events.discarded(job, error, worker_id=worker_id, dead_letter=job.dead_letter)


def _lapsed(change: Change) -> None:
    """Record that runs ended without their worker's response; jobs are available or discarded."""
    if not change.known.spends:
        if EventType.JOB_ENQUEUED in of(EventSettings).keep_events:
            _available(change)
        return
    wanted = {EventType.JOB_FAILED}
    for state in set(change.after.values()):
        ended = state is State.DISCARDED
        wanted.add(EventType.JOB_DISCARDED if ended else EventType.JOB_ENQUEUED)
    if not of(EventSettings).keep_events.isdisjoint(wanted):
        _record(event for job in change.rows() for event in _of_lapsed(job, change))


def _of_lapsed(job: Any, change: Change) -> Iterator[NewEvent]:
    known = change.known
    worker_id, error = known.workers[job.pk], known.failures[job.pk].render()
    state = change.after[job.pk]
    yield job_events.failed(job, error, state, worker_id=worker_id)
    if state is State.DISCARDED:
        yield _of_end(job, error, worker_id)
    else:
        yield job_events.enqueued(job, State.ACTIVE)


_AVAILABLE: Final = (_available, frozenset({EventType.JOB_ENQUEUED}))
_ENDED: Final = (_discarded, frozenset({EventType.JOB_DISCARDED}))

#: For each trigger, the function that records its events, and the types of the events.
_CHANGED: Final[Mapping[Trigger, tuple[Callable[[Change], None], frozenset[EventType]]]] = {
    Trigger.TIMER: _AVAILABLE,
    Trigger.ACTIVATE: _AVAILABLE,
    Trigger.RETURN: _AVAILABLE,
    Trigger.RETRY: _AVAILABLE,
    Trigger.FETCH: (_started, frozenset({EventType.JOB_STARTED})),
    Trigger.ACK: (_completed, frozenset({EventType.JOB_COMPLETED})),
    Trigger.FAIL: (
        _failed,
        frozenset({EventType.JOB_FAILED, EventType.JOB_RETRYING, EventType.JOB_DISCARDED}),
    ),
    Trigger.CANCEL: (_cancelled, frozenset({EventType.JOB_CANCELLED})),
    Trigger.LAPSE: (
        _lapsed,
        frozenset({EventType.JOB_FAILED, EventType.JOB_ENQUEUED, EventType.JOB_DISCARDED}),
    ),
    Trigger.EXPIRE: (_expired, frozenset({EventType.JOB_EXPIRED})),
    Trigger.DROP: _ENDED,
    Trigger.DELETE_QUEUE: _ENDED,
    Trigger.RESCHEDULE: (_rescheduled, frozenset({EventType.JOB_SCHEDULED})),
}

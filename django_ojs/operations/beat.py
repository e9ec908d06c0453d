"""BEAT (ojs-core §7.5, worker-protocol §4): a worker's heartbeat, its jobs, and its directive."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import Error
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now

from django_ojs.hooks import is_published, publish, publish_all
from django_ojs.models import Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import worker_activity
from django_ojs.operations.fetch import check_worker_id
from django_ojs.operations.worker_activity import Principal
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.published import EventType, NewEvent, of_run, of_worker
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import database, transitions
from django_ojs.storage.dialects.server import Session

logger = logging.getLogger("django_ojs.worker")

#: The longest pause between two statements of the transaction that extends leases, in milliseconds.
#: Only a process that is frozen, or has lost its database, pauses longer.
LONGEST_IDLE_MS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What a worker registers with (worker-protocol §3.1).

    A `pool` of None keeps the pool that the worker named before, and an empty string means no pool.
    A worker that enforces the timeouts of its jobs gets some seconds to do so before maintenance
    does.
    """

    hostname: str = ""
    pid: int | None = None
    queues: tuple[str, ...] = ()
    pool: str | None = None
    labels: tuple[str, ...] = ()
    job_types: tuple[str, ...] = ()
    concurrency: int | None = None
    #: An operator may change `concurrency` within these limits.
    least_slots: int | None = None
    most_slots: int | None = None
    version: str = ""
    release: str = ""
    started_at: datetime | None = None
    enforces_timeouts: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BeatResponse:
    """The response to a BEAT: the directive, and the jobs that the worker no longer holds.

    `slots` is the number that an operator has chosen, or None if the worker's own number applies.
    `lost` are the jobs it named that were cancelled or whose leases lapsed. `locked` are those
    whose leases were not extended, because another session has locked their rows.
    """

    state: Directive
    jobs_extended: int
    slots: int | None = None
    lost: frozenset[UUID] = field(default_factory=frozenset)
    locked: frozenset[UUID] = field(default_factory=frozenset)


def beat(
    worker_id: str,
    *,
    state: Directive = Directive.RUNNING,
    holding: Collection[UUID] = (),
    extend: Collection[UUID] | None = None,
    active_jobs: int | None = None,
    visibility_timeout: timedelta | None = None,
    interval: timedelta | None = None,
    registration: Registration | None = None,
    session: Session | None = None,
    principal: Principal = worker_activity.PROJECT,
    renews: bool = False,
    is_behind: bool = False,
) -> BeatResponse:
    """Record the heartbeat, then extend the leases, and return the directive.

    The heartbeat is stored first, by itself: if the leases cannot be extended, the worker must not
    count as dead.

    `holding` are its jobs in flight. The leases of those that this worker holds are extended by
    `visibility_timeout` from now, or by the length they were claimed with; they are never
    shortened. `extend` names the jobs to extend when not all need it. `interval` is the time to its
    next beat, if it sends one. `session` is a database session that lasts as long as the worker, so
    that its end shows that the worker died; without it, only silence does.

    With `renews`, a worker of the project sends the registration and the session of its last BEAT:
    while it has no jobs, they are stored only if its row has lost them. With `is_behind`, the
    worker could not extend all leases at its last BEAT, so leases that end are left to it until it
    can extend them again.

    A job in `holding` that was claimed without the id of a worker becomes this worker's. Raises
    PermissionDenied if the principal may not write this worker.
    """
    check_worker_id(worker_id)
    if worker_id is None:
        raise InvalidRequest("worker_id is required.", details={"field": "worker_id"})
    wanted = holding if extend is None else extend
    if renews and not holding and state is Directive.RUNNING and interval is not None:
        directive = _renew(worker_id, interval, session)
        if directive is not None:
            return BeatResponse(state=directive, jobs_extended=0)

    # A session that the worker no longer sends is removed: its end would prove nothing.
    session_pid, session_started_at = session or (None, None)
    reported = {
        "state": state,
        "active_jobs": len(holding) if active_jobs is None else active_jobs,
        "session_pid": session_pid,
        "session_started_at": session_started_at,
    }
    directive, slots = _record(
        worker_id,
        reported,
        interval=interval,
        registration=registration,
        principal=principal,
        is_behind=is_behind,
    )
    if not holding and not wanted:
        return BeatResponse(state=directive, jobs_extended=0, slots=slots)
    try:
        # A lock on the whole table must not keep this thread from its next heartbeat.
        with database.hardly_waiting():
            lost, extended, locked = _extend_held(
                worker_id, holding, wanted, visibility_timeout, interval or timedelta(0)
            )
    except Error as error:
        if not database.is_stopped(error):
            raise
        logger.warning(
            "The leases of the jobs of %s could not be extended (%s).",
            worker_id,
            database.unavailable_reason(error),
        )
        passed = frozenset(wanted)
        return BeatResponse(state=directive, jobs_extended=0, slots=slots, locked=passed)
    return BeatResponse(
        state=directive, jobs_extended=extended, slots=slots, lost=lost, locked=locked
    )


@database.write_transaction
def _extend_held(
    worker_id: str,
    holding: Collection[UUID],
    jobs: Collection[UUID],
    by: timedelta | None,
    interval: timedelta,
) -> tuple[frozenset[UUID], int, frozenset[UUID]]:
    """Return the lost jobs, how many leases were extended, and which jobs were locked.

    The leases of jobs in `holding` that would end before the next heartbeat are extended too. A
    worker decides by its own clock which leases to extend, and the clock of the database may have
    been moved forward.
    """
    held = _held(worker_id, holding, interval)
    lost = frozenset(holding) - held.keys()
    if lost and _adopt(worker_id, lost):
        held = _held(worker_id, holding, interval)
        lost = frozenset(holding) - held.keys()
    jobs = frozenset(jobs).union(key for key, ends_soon in held.items() if ends_soon)
    if not jobs:
        return lost, 0, frozenset()
    # From here on, this transaction keeps rows locked. If this process freezes, the database ends
    # the transaction, so that others can take the jobs.
    database.dialect().end_if_idle(database.connection(), LONGEST_IDLE_MS)
    mine = _mine(worker_id, jobs)
    free = transitions.lock_free(mine)
    extended = 0
    if free:
        # A lease that is not extended because a hook failed counts as locked.
        done = transitions.change_together(
            EventType.JOB_HEARTBEAT,
            free,
            lambda keys: (keys, _extend_and_publish(worker_id, keys, by)),
        )
        free = [key for keys, _ in done for key in keys]
        extended = sum(number for _, number in done)
    passed = len(free) < len(jobs) and set(mine.values_list("pk", flat=True)).difference(free)
    return lost, extended, frozenset(passed or ())


@database.retry_contention
def extend(worker_id: str, job_id: UUID, by: timedelta | None = None) -> bool:
    """Extend one lease (worker-protocol §5.4) by the length it was claimed with, or by `by`.

    Return whether the worker still holds the job.
    """
    with database.atomic_if(is_published(EventType.JOB_HEARTBEAT)):
        return bool(_extend_and_publish(worker_id, [job_id], by))


def attach_session(worker_id: str) -> Session | None:
    """Record this thread's database session as the worker's, and return it.

    Return None when it may not be the worker's alone.
    """
    session = database.dialect().session(database.connection())
    if session is not None:
        workers = Worker.primary.filter(pk=worker_id)
        workers.update(session_pid=session[0], session_started_at=session[1])
    return session


@database.write_transaction
def direct(worker_id: str, directive: Directive) -> bool:
    """Set the directive that a worker gets with its next BEAT. Return whether the worker exists."""
    workers = Worker.primary.filter(pk=worker_id)
    running = workers.filter(directive=Directive.RUNNING, state=Directive.RUNNING)
    active = running.select_for_update().values_list("active_jobs", flat=True).first()
    known = bool(workers.update(directive=directive))
    if directive is not Directive.RUNNING and active is not None:
        # From now on, FETCH returns no jobs to this worker.
        publish(EventType.WORKER_QUIET, of_worker, worker_id, active_jobs=active)
    return known


def _renew(worker_id: str, interval: timedelta, session: Session | None) -> Directive | None:
    """Record a heartbeat by one statement. Return None if there is more to store."""
    if is_published(EventType.WORKER_HEARTBEAT):
        return None
    connection = database.connection()
    directive = database.retried(
        lambda: database.dialect_of(connection).renew_beat(
            connection,
            worker_id,
            interval=interval // timedelta(milliseconds=1),
            pid=None if session is None else session[0],
        )
    )
    return None if directive is None else Directive(directive)


@database.write_transaction
def _record(
    worker_id: str,
    reported: Mapping[str, Any],
    *,
    interval: timedelta | None,
    registration: Registration | None,
    principal: Principal,
    is_behind: bool,
) -> tuple[Directive, int | None]:
    values: dict[str, Any] = {
        "owner": principal.id,
        **reported,
        **worker_activity.after_beat(worker_id, interval),
    }
    if is_behind:
        values["steady_since"] = None
    if registration is not None:
        # Values that the registration leaves out stay as an earlier BEAT reported them.
        values |= {name: value for name, value in asdict(registration).items() if value}
        if registration.pool is not None:
            values["pool"] = registration.pool
    workers = Worker.primary
    if principal.limited:
        known = workers.filter(pk=worker_id).select_for_update()
        for owner in known.values_list("owner", flat=True):
            principal.check(owner)
    if reported["state"] is not Directive.RUNNING:
        # A worker with a directive other than running has counted as quiet since that was set,
        # and the event was published then.
        newly = workers.filter(pk=worker_id, state=Directive.RUNNING, directive=Directive.RUNNING)
        if newly.update(state=reported["state"]):
            active = reported["active_jobs"]
            publish(EventType.WORKER_QUIET, of_worker, worker_id, active_jobs=active)
    if not workers.filter(pk=worker_id).update(**values):
        # The first BEAT registers a worker. So does a BEAT of a live worker whose row was removed
        # because it seemed dead.
        values = {"queues": [], "concurrency": None, **values}
        values["steady_since"] = None if interval is None or is_behind else Now()
        principal.check(worker_activity.register(worker_id, principal=principal, **values).owner)
    if is_published(EventType.WORKER_HEARTBEAT):
        queues = workers.filter(pk=worker_id).values_list("queues", flat=True).first()
        publish(
            EventType.WORKER_HEARTBEAT,
            of_worker,
            worker_id,
            active_jobs=reported["active_jobs"],
            queues=queues or [],
        )
    row = workers.filter(pk=worker_id).values_list("directive", "wanted_slots", "concurrency")
    directive, slots, reported_slots = row.first() or (Directive.RUNNING, None, None)
    if slots is not None and slots == reported_slots:
        workers.filter(pk=worker_id, wanted_slots=slots).update(wanted_slots=None)
        slots = None
    return Directive(directive), slots


def _mine(worker_id: str, jobs: Collection[UUID]) -> Any:
    return Job.primary.filter(pk__in=jobs, state=State.ACTIVE, worker_id=worker_id)


def _extend_and_publish(
    worker_id: str, wanted: Collection[UUID], visibility_timeout: timedelta | None
) -> int:
    extended = _extend(worker_id, wanted, visibility_timeout)
    if extended and is_published(EventType.JOB_HEARTBEAT):
        jobs = _mine(worker_id, wanted).defer("args", "options", "progress", "result")
        publish_all(map(_heartbeat, jobs))
    return extended


def _heartbeat(job: Job) -> NewEvent:
    until = None if job.lease_until is None else format_timestamp(job.lease_until)
    return of_run(EventType.JOB_HEARTBEAT, job, visible_until=until)


def _extend(worker_id: str, jobs: Collection[UUID], visibility_timeout: timedelta | None) -> int:
    held = _mine(worker_id, jobs)
    return int(held.update(lease_until=worker_activity.extended(visibility_timeout)))


@database.write_transaction
def _adopt(worker_id: str, jobs: Collection[UUID]) -> int:
    # A FETCH without `worker_id` claimed these jobs (http-binding §10.1), so only BEAT names their
    # worker.
    claimed = Job.primary.filter(pk__in=jobs, state=State.ACTIVE, worker_id=None)
    free = transitions.lock_free(claimed)
    return int(Job.primary.filter(pk__in=free).update(worker_id=worker_id))


def _held(worker_id: str, jobs: Collection[UUID], interval: timedelta) -> dict[UUID, bool]:
    """Return which of these jobs a worker holds, and whether their leases end in an interval."""
    if not jobs:
        return {}
    ends_soon = ExpressionWrapper(Q(lease_until__lte=Now() + interval), BooleanField())
    return dict(_mine(worker_id, jobs).values_list("pk", ends_soon))

"""List registered workers, and direct them (ojs-admin-api §9, worker-protocol §2)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from django.db.models import Case, Count, F, QuerySet, Value, When
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import beat
from django_ojs.operations.access import operator
from django_ojs.operations.jobs.listing import LISTED_FIELDS
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, NotFound
from django_ojs.spec.scheduling import ALL
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import Milliseconds

#: A directive's value, or `STALE`.
Condition = str
STALE = "stale"

#: The most jobs of one worker that are listed; it may have more in flight.
MAX_JOBS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatus:
    """A worker and its condition: the state it reported last, or `stale` without heartbeats.

    `queues` and `active_jobs` are what it reported. A caller that is limited to some queues gets
    the part that concerns these.
    """

    worker: Worker
    condition: Condition
    queues: list[str]
    active_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """A page of the workers in the order of their ids, and the number in each condition.

    A worker that is terminating counts as quiet: it fetches no more jobs.
    """

    workers: list[WorkerStatus]
    total: int
    running: int
    quiet: int
    stale: int


def listing(*, offset: int = 0, limit: int = 100, within: Collection[str] | None = None) -> Workers:
    """Return the registered workers.

    `within` are the queues that the caller may use: then only workers of these are returned.
    """
    found = [_status(row, within) for row in _rows().order_by("pk")]
    if within is not None:
        found = [status for status in found if status.queues]
    conditions = [status.condition for status in found]
    stale, running = conditions.count(STALE), conditions.count("running")
    return Workers(
        workers=_within(found[offset : offset + limit], within),
        total=len(found),
        running=running,
        quiet=len(found) - running - stale,
        stale=stale,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Listening:
    """The workers that fetch from a queue and are not stale, and the slots of all of them.

    If a worker did not report its slots, its busy ones count.
    """

    workers: list[WorkerStatus]
    total: int
    busy: int
    slots: int


def listening(queue: str, *, limit: int) -> Listening:
    """Return the workers of a queue, the busiest first."""
    rows = [_status(row, None) for row in _rows().order_by("pk")]
    found = [each for each in rows if each.condition != STALE and takes(each.worker, queue)]
    found.sort(key=lambda each: -each.active_jobs)
    return Listening(
        workers=found[:limit],
        total=len(found),
        busy=sum(each.active_jobs for each in found),
        slots=sum(each.worker.concurrency or each.active_jobs for each in found),
    )


def get(worker_id: str, *, within: Collection[str] | None = None) -> WorkerStatus:
    """Return a worker. Raises NotFound; `within` as in `listing`."""
    row = _rows().filter(pk=worker_id).first() if is_possible(worker_id) else None
    status = None if row is None else _status(row, within)
    if status is None or (within is not None and not status.queues):
        raise _unknown(worker_id)
    return _within([status], within)[0]


def jobs_of(worker_id: str, *, within: Collection[str] | None = None) -> list[Job]:
    """Return the jobs that a worker has in flight, longest running first, with `LISTED_FIELDS`."""
    held = Job.primary.filter(state=State.ACTIVE, worker_id=worker_id)
    if within is not None:
        held = held.filter(queue__in=sorted(within))
    return list(held.order_by("started_at", "pk").only(*LISTED_FIELDS)[:MAX_JOBS])


def queues_of(worker: Worker) -> list[str]:
    """Return the queues that a worker reported."""
    return [name for name in worker.queues if isinstance(name, str)]


def takes(worker: Worker, queue: str) -> bool:
    """Whether a worker gets jobs of a queue: one that it named, or any if it named `*`.

    Jobs of an exclusive queue go only to workers of its pool that named it.
    """
    pool = settings().pool_of_queue.get(queue)
    queues = queues_of(worker)
    if pool is not None:
        return worker.pool == pool and queue in queues
    return queue in queues or ALL in queues


def held(worker_ids: Collection[str], *, within: Collection[str] | None = None) -> dict[str, int]:
    """Return how many jobs each of these workers has in flight; those with none are left out."""
    active = Job.primary.filter(state=State.ACTIVE, worker_id__in=worker_ids)
    if within is not None:
        active = active.filter(queue__in=sorted(within))
    counted = active.values_list("worker_id").annotate(number=Count("pk")).order_by()
    return {str(worker_id): number for worker_id, number in counted}


def first_labels(worker_ids: Collection[str]) -> dict[str, str]:
    """Return the first label of each of these workers, by id, if it is registered and has one."""
    if not worker_ids:
        return {}
    found = Worker.primary.filter(pk__in=worker_ids).values_list("pk", "labels")
    return {
        key: labels[0]
        for key, labels in found
        if isinstance(labels, list) and labels and isinstance(labels[0], str)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersOfType:
    """Running workers, by whether they have a handler for a type.

    `unknown` are workers that did not report their types.
    """

    having: list[str]
    lacking: list[str]
    unknown: list[str]


def workers_of_type(type: str, queues: Collection[str]) -> WorkersOfType:
    """Return the running workers with a handler for a type, and those of `queues` without one."""
    found = WorkersOfType(having=[], lacking=[], unknown=[])
    for row in _rows().defer(None).order_by("pk"):
        if _condition(row) != "running":
            continue
        if type in row.job_types:
            found.having.append(row.pk)
        elif any(takes(row, queue) for queue in queues):
            (found.lacking if row.job_types else found.unknown).append(row.pk)
    return found


def direct(worker_id: str, directive: Directive) -> WorkerStatus:
    """Set the directive that a worker gets with its next BEAT: quiet, terminate or running.

    Raises NotFound, and Conflict for a worker that has the directive terminate, which is final.
    """
    if not is_possible(worker_id):
        raise _unknown(worker_id)
    return _direct(worker_id, directive)


@database.write_transaction
def _direct(worker_id: str, directive: Directive) -> WorkerStatus:
    rows = Worker.primary.filter(pk=worker_id)
    current = rows.select_for_update().values_list("directive", flat=True).first()
    if current is None:
        raise _unknown(worker_id)
    if current == Directive.TERMINATE and directive is not Directive.TERMINATE:
        raise Conflict(
            "The worker has the directive terminate, which is final.",
            details={"worker_id": worker_id, "current_state": current},
        )
    beat.direct(worker_id, directive)
    if current != directive:
        operator.acted("worker.directed", worker_id, changes={"directive": (current, directive)})
    return get(worker_id)


@database.write_transaction
def resize(worker_id: str, slots: int) -> None:
    """Let a worker run `slots` jobs at a time, from its next BEAT on.

    Raises NotFound, and Conflict for a number outside the limits that the worker reported.
    """
    rows = Worker.primary.filter(pk=worker_id).select_for_update()
    row = rows.values("concurrency", "least_slots", "most_slots", "wanted_slots").first()
    if row is None:
        raise _unknown(worker_id)
    least, most = row["least_slots"], row["most_slots"]
    if least is None or most is None or not least <= slots <= most:
        raise Conflict(
            f"The worker takes {least} to {most} slots."
            if most is not None and least != most
            else "The worker does not change its slots: start it with --threads 8:32, for example.",
            details={"worker_id": worker_id, "least_slots": least, "most_slots": most},
        )
    before = row["wanted_slots"] or row["concurrency"]
    Worker.primary.filter(pk=worker_id).update(wanted_slots=slots)
    if before != slots:
        operator.acted("worker.directed", worker_id, changes={"slots": (before, slots)})


def deregister(worker_id: str) -> int:
    """Remove a worker whose heartbeats have stopped, and rescue its jobs. Return how many.

    This is the rescue from a dead worker (worker-protocol §10.2): a job that was its only one
    spends an attempt, and is discarded if none is left. If the worker is alive after all, its ACK
    and FAIL are rejected. Raises NotFound, and Conflict while its heartbeats arrive.
    """
    status = get(worker_id)
    if status.condition != STALE:
        raise Conflict(
            "The worker still sends its beats; quiet or terminate it instead.",
            details={
                "worker_id": worker_id,
                "current_state": status.condition,
                "expected_state": STALE,
            },
        )
    # A job that another transaction has locked is left to maintenance, and so is the worker.
    entry = operator.acted("worker.deregistered", worker_id)
    rescued = rescue.rescue([worker_id])
    entry.complete(jobs=rescued)
    return rescued


def is_possible(worker_id: str) -> bool:
    """Return whether a text can be a worker's id."""
    return 1 <= len(worker_id) <= 255 and worker_id.isprintable()


def _rows() -> QuerySet[Worker]:
    # The clock of the database decides, as it does in maintenance.
    silent = Case(
        When(seen_at__lte=Now() - Milliseconds(F("dead_after_ms")), then=Value(True)),
        default=Value(False),
    )
    return Worker.primary.annotate(silent=silent).defer("job_types")


def _status(row: Worker, within: Collection[str] | None) -> WorkerStatus:
    queues = queues_of(row)
    if within is not None:
        queues = [name for name in queues if name in within]
    return WorkerStatus(
        worker=row, condition=_condition(row), queues=queues, active_jobs=row.active_jobs
    )


def _condition(row: Worker) -> Condition:
    silent: bool = row.silent  # type: ignore[attr-defined]  # annotated by _rows()
    if silent:
        return STALE
    # A directive counts from the moment it is set, before the worker reports that state.
    directive = Directive(row.directive)
    state = Directive(row.state) if directive is Directive.RUNNING else directive
    return state.value


def _within(found: Sequence[WorkerStatus], within: Collection[str] | None) -> list[WorkerStatus]:
    if within is None or not found:
        return list(found)
    numbers = held([status.worker.pk for status in found], within=within)
    return [replace(status, active_jobs=numbers.get(status.worker.pk, 0)) for status in found]


def _unknown(worker_id: str) -> NotFound:
    # A text that cannot be a worker's id may have characters that a response cannot contain.
    known = {"resource_id": worker_id} if is_possible(worker_id) else {}
    return NotFound(
        "There is no worker with this id.", details={"resource_type": "worker", **known}
    )

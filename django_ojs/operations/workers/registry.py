"""Look at workers, and direct them (ojs-admin-api §9, worker-protocol §2)."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Case, Count, F, QuerySet, Value, When
from django.db.models.functions import Now

from django_ojs.models import Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import beat
from django_ojs.operations.jobs.listing import LISTED_FIELDS
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, NotFound
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import Milliseconds

#: A directive's value, or `STALE`.
Condition = str
STALE = "stale"

#: Jobs that are shown of one worker; it may hold more.
MAX_JOBS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatus:
    """A worker, and how it is: what it last said, or `stale` when its beats have stopped."""

    worker: Worker
    condition: Condition

    @property
    def queues(self) -> list[str]:
        """The queues it said it listens to."""
        return [name for name in self.worker.queues if isinstance(name, str)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """A part of the workers in the order of their ids, and how many there are in which condition.

    A worker that is terminating counts as quiet: it fetches nothing any more.
    """

    workers: list[WorkerStatus]
    total: int
    running: int
    quiet: int
    stale: int


def listing(*, offset: int = 0, limit: int = 100, within: Collection[str] | None = None) -> Workers:
    """Return the workers that are known.

    `within` are the queues that whoever asks is kept to: then only the workers of these.
    """
    found = [_status(row) for row in _rows().order_by("pk")]
    if within is not None:
        found = [status for status in found if not set(within).isdisjoint(status.queues)]
    conditions = [status.condition for status in found]
    stale, running = conditions.count(STALE), conditions.count("running")
    return Workers(
        workers=found[offset : offset + limit],
        total=len(found),
        running=running,
        quiet=len(found) - running - stale,
        stale=stale,
    )


def get(worker_id: str, *, within: Collection[str] | None = None) -> WorkerStatus:
    """Return a worker. Raises NotFound; `within` as in `listing`."""
    row = _rows().filter(pk=worker_id).first() if _possible(worker_id) else None
    status = None if row is None else _status(row)
    if status is None or (within is not None and set(within).isdisjoint(status.queues)):
        raise _unknown(worker_id)
    return status


def jobs_of(worker_id: str, *, within: Collection[str] | None = None) -> list[Job]:
    """Return the jobs in a worker's hands, longest running first, with the fields of a list."""
    held = Job.primary.filter(state=State.ACTIVE, worker_id=worker_id)
    if within is not None:
        held = held.filter(queue__in=sorted(within))
    return list(held.order_by("started_at", "pk").only(*LISTED_FIELDS)[:MAX_JOBS])


def held(worker_ids: Collection[str]) -> dict[str, int]:
    """Return how many jobs each of these workers has in hand; those with none are left out."""
    active = Job.primary.filter(state=State.ACTIVE, worker_id__in=worker_ids)
    counted = active.values("worker_id").annotate(number=Count("pk")).order_by()
    return {str(row["worker_id"]): row["number"] for row in counted}


def direct(worker_id: str, directive: Directive) -> WorkerStatus:
    """Tell a worker with its next BEAT to be quiet, to terminate, or to run again.

    Raises NotFound, and Conflict for one that was told to terminate: nothing leads back.
    """
    if not _possible(worker_id):
        raise _unknown(worker_id)
    return _direct(worker_id, directive)


@database.write_transaction
def _direct(worker_id: str, directive: Directive) -> WorkerStatus:
    rows = Worker.primary.filter(pk=worker_id)
    told = rows.select_for_update().values_list("directive", flat=True).first()
    if told is None:
        raise _unknown(worker_id)
    if told == Directive.TERMINATE and directive is not Directive.TERMINATE:
        raise Conflict(
            "The worker was told to terminate; nothing leads back.",
            details={"worker_id": worker_id, "current_state": told},
        )
    beat.direct(worker_id, directive)
    return get(worker_id)


def deregister(worker_id: str) -> int:
    """Forget a worker whose beats have stopped, and give its jobs back. Return how many.

    They are taken back as from any dead worker (worker-protocol §10.2): an attempt is spent, and a
    job whose attempts are spent is discarded. Should it be alive after all, its answers are
    refused. Raises NotFound, and Conflict while it still beats.
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
    # A job that somebody has locked at this moment is left to maintenance, and so is the worker.
    return rescue.rescue([worker_id])


def _possible(worker_id: str) -> bool:
    """Say whether a text can be a worker's id at all."""
    return 1 <= len(worker_id) <= 255 and worker_id.isprintable()


def _rows() -> QuerySet[Worker]:
    # As maintenance judges it, by the database's clock.
    silent = Case(
        When(beat_at__lte=Now() - Milliseconds(F("dead_after_ms")), then=Value(True)),
        default=Value(False),
    )
    return Worker.primary.annotate(silent=silent)


def _status(row: Worker) -> WorkerStatus:
    silent: bool = row.silent  # type: ignore[attr-defined]  # annotated by _rows()
    if silent:
        return WorkerStatus(worker=row, condition=STALE)
    # What it was told and has not answered yet is where it is going.
    asked = Directive(row.directive)
    state = Directive(row.state) if asked is Directive.RUNNING else asked
    return WorkerStatus(worker=row, condition=state.value)


def _unknown(worker_id: str) -> NotFound:
    # What can be no worker's id may be what no answer can carry.
    known = {"resource_id": worker_id} if _possible(worker_id) else {}
    return NotFound(
        "There is no worker with this id.", details={"resource_type": "worker", **known}
    )


__all__ = [
    "STALE",
    "WorkerStatus",
    "Workers",
    "deregister",
    "direct",
    "get",
    "held",
    "jobs_of",
    "listing",
]

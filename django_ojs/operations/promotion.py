"""TIMER (ojs-core §6.3): jobs that are due become available, and expired ones are discarded.

Each function changes a bounded number of jobs in one transaction; any worker may run it.
"""

from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations.events import publish
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, notify, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.figures import rollups


class DueCheck:
    """Promotion and expiry as two steps that share one query, which mostly finds nothing."""

    def __init__(self) -> None:
        self._expired = False

    def promote(self) -> int:
        """Query for both, and promote what is due. Return how many."""
        due, self._expired = database.dialect().due_work(database.connection())
        return promote() if due else 0

    def expire(self) -> int:
        """Discard what the query found expired. Return how many."""
        return expire() if self._expired else 0


def promote(limit: int = BATCH) -> int:
    """Make scheduled and retryable jobs that are due available (ojs-core §6.3, Timer).

    Return how many.
    """
    due = _promote(limit)
    if due:
        notify.workers_of(queue for _, queue in due)
    return len(due)


@database.retry_contention
def _promote(limit: int) -> list[tuple[UUID, str]]:
    with publish.atomic_if_published(*publish.AVAILABLE):
        due = transitions.promote(limit)
        publish.jobs_available([key for key, _ in due])
    return due


def expire(limit: int = BATCH) -> int:
    """Discard jobs whose `expires_at` passed before they ran (ojs-core §5.2). Return how many."""
    late = Job.primary.filter(
        state__in=sources(Trigger.EXPIRE, State.DISCARDED),
        expires_at__isnull=False,
        expires_at__lte=Now(),
    )
    # Mostly there is none, and this query takes no lock.
    return _expire(late, limit) if late.exists() else 0


@database.write_transaction
def _expire(late: QuerySet[Job], limit: int) -> int:
    locked = late.order_by("expires_at").select_for_update(skip_locked=True)
    keys = list(locked.values_list("pk", flat=True)[:limit])
    expired = Job.primary.filter(pk__in=keys)
    count = transitions.apply(
        Trigger.EXPIRE, State.DISCARDED, expired, finished_at=Now(), discard_reason="expired"
    )
    publish.expired(keys)
    rollups.note_after_commit(rollups.DISCARDED, expired.values_list("queue", "type"))
    return count

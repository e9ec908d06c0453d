"""What time does to waiting and to finished jobs: due, expired, old.

Bounded, re-entrant steps any worker may run.
"""

from datetime import timedelta
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.delete import erase
from django_ojs.operations.events import publish
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, notify, transitions
from django_ojs.storage.figures import rollups

#: Rows a step takes in one transaction: some milliseconds of work, so that nobody waits long for
#: its locks.
BATCH = 500


class Passing:
    """Promotion and expiry as two steps that share one look, which mostly finds nothing."""

    def __init__(self) -> None:
        self._expired = False

    def promote(self) -> int:
        """Look, and promote what is due. Return how many."""
        due, self._expired = database.dialect().due_work(database.connection())
        return promote() if due else 0

    def expire(self) -> int:
        """Discard what the look found expired. Return how many."""
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
    keys = _take(late.order_by("expires_at"), limit)
    expired = Job.primary.filter(pk__in=keys)
    count = transitions.apply(
        Trigger.EXPIRE, State.DISCARDED, expired, finished_at=Now(), discard_reason="expired"
    )
    publish.expired(keys)
    rollups.note_after_commit(rollups.DISCARDED, expired.values_list("queue", "type"))
    return count


def prune(limit: int = BATCH) -> int:
    """Delete finished jobs that are older than the settings keep them. Return how many."""
    keep = settings()
    rules = [
        (Q(state=State.COMPLETED, dead_letter=False), keep.keep_completed),
        (Q(state=State.CANCELLED, dead_letter=False), keep.keep_cancelled),
        (Q(state=State.DISCARDED, dead_letter=False), keep.keep_discarded),
        (Q(state=State.DISCARDED, dead_letter=True), keep.keep_dead_letters),
    ]
    return sum(_prune(which, age, limit) for which, age in rules)


def _prune(which: Q, age: timedelta, limit: int) -> int:
    old = Job.primary.filter(which, finished_at__lte=Now() - age).order_by("finished_at", "pk")
    # Not `exists()`: it drops the order, and with it the planner's reason to take the index.
    return 0 if old.values_list("pk", flat=True).first() is None else _erase(old, limit)


@database.write_transaction
def _erase(old: QuerySet[Job], limit: int) -> int:
    # There is none left when another worker was faster.
    keys = _take(old, limit)
    return erase(keys) if keys else 0


def _take(which: QuerySet[Job], limit: int) -> list[UUID]:
    return list(which.select_for_update(skip_locked=True).values_list("pk", flat=True)[:limit])

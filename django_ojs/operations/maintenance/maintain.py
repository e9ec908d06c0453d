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
        due, self._expired = database.dialect().waiting(database.connection())
        return promote() if due else 0

    def expire(self) -> int:
        """Discard what the look found expired. Return how many."""
        return expire() if self._expired else 0


def promote(limit: int = BATCH) -> int:
    """Make scheduled and retryable jobs that are due available (ojs-core §6.3, Timer).

    Return how many.
    """

    def operation() -> list[tuple[UUID, str]]:
        with publish.together(*publish.AVAILABLE):
            due = transitions.promote(limit)
            publish.available_again([key for key, _ in due])
        return due

    due = database.retried(operation)
    if due:
        notify.announce(queue for _, queue in due)
    return len(due)


def expire(limit: int = BATCH) -> int:
    """Discard jobs whose `expires_at` passed before they ran (ojs-core §5.2). Return how many."""
    waiting = sources(Trigger.EXPIRE, State.DISCARDED)

    def operation() -> int:
        late = Job.primary.filter(
            state__in=waiting, expires_at__isnull=False, expires_at__lte=Now()
        )
        keys = _take(late.order_by("expires_at"), limit)
        gone = transitions.apply(
            Trigger.EXPIRE,
            State.DISCARDED,
            Job.primary.filter(pk__in=keys),
            finished_at=Now(),
            discard_reason="expired",
        )
        publish.expired(keys)
        expired = Job.primary.filter(pk__in=keys).values_list("queue", "type")
        rollups.note_after_commit(rollups.DISCARDED, expired)
        return gone

    # Most of the time there is nothing, and looking takes no lock.
    if not Job.primary.filter(
        state__in=waiting, expires_at__isnull=False, expires_at__lte=Now()
    ).exists():
        return 0
    return database.in_write_transaction(operation)


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
    if old.values_list("pk", flat=True).first() is None:
        return 0

    def operation() -> int:
        keys = _take(old, limit)
        if not keys:  # Another was faster.
            return 0
        return erase(keys)

    return database.in_write_transaction(operation)


def _take(which: QuerySet[Job], limit: int) -> list[UUID]:
    return list(which.select_for_update(skip_locked=True).values_list("pk", flat=True)[:limit])

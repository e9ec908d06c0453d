"""TIMER (ojs-core §6.3): make due jobs available, discard expired ones; cron jobs and workflows.

Each function changes a bounded number of jobs in one transaction; any worker may run it.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations.cron.due import fire_if_due
from django_ojs.operations.events import publish
from django_ojs.operations.workflows.due import advance_if_due
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, notify, raw_queries, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects import sql_files
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.figures import rollups

#: Queues that one step of a backlog considers; the next step goes on after them.
QUEUES_AT_ONCE: Final = 1_000


class DueCheck:
    """Promotion and expiry as steps that share one query, which usually finds nothing.

    And cron jobs and workflows, with a query each.

    With `since`, they do nothing until something is due, or expired, for that long.
    """

    def __init__(self, *, since: timedelta = timedelta(0)) -> None:
        self._since = since
        self._expired = False
        self._after = ""

    def promote(self, queues: Sequence[str] | None = None) -> int:
        """Query for due and for expired jobs, and promote the due ones. Return how many.

        If more are due than one batch, each of these queues, or of all, gets a share of a second
        batch: a burst in one queue does not delay the others.
        """
        due, self._expired = raw_queries.which_hold(
            [due_condition(self._since), expired_condition(self._since)]
        )
        if not due:
            return 0
        count = promote()
        if count >= BATCH:
            count += promote_by_queue(self._next_queues() if queues is None else queues)
        return count

    def expire(self) -> int:
        """Discard the jobs that the query found expired. Return how many."""
        return expire() if self._expired else 0

    def fire_cron(self) -> int:
        """Enqueue the jobs of cron jobs that are due. Return how many."""
        return fire_if_due(self._since)

    def advance_workflows(self) -> int:
        """Start the steps of workflows that wait for jobs which have ended. Return how many."""
        return advance_if_due()

    def _next_queues(self) -> list[str]:
        found = database.dialect().due_queues(database.connection(), self._after, QUEUES_AT_ONCE)
        self._after = found[-1][0] if len(found) == QUEUES_AT_ONCE else ""
        return [queue for queue, is_due in found if is_due]


def due_condition(since: timedelta = timedelta(0)) -> str:
    """Whether a scheduled or retryable job is due, for so long, in SQL."""
    due = f"state {sql_files.before(Trigger.TIMER, State.AVAILABLE)}"
    return raw_queries.is_older(Job, "due_at", due, since)


def expired_condition(since: timedelta = timedelta(0)) -> str:
    """Whether a waiting job has expired, so long ago, in SQL."""
    # The condition of the partial index, too.
    expires = (
        f"expires_at IS NOT NULL AND state {sql_files.before(Trigger.EXPIRE, State.DISCARDED)}"
    )
    return raw_queries.is_older(Job, "expires_at", expires, since)


def promote(limit: int = BATCH) -> int:
    """Make scheduled and retryable jobs that are due available (ojs-core §6.3, Timer).

    The earliest first. Return how many.
    """
    return _promote(lambda: transitions.promote(limit))


def promote_by_queue(queues: Sequence[str], limit: int = BATCH) -> int:
    """Do the same for these queues, each of which gets an equal share. Return how many.

    A queue gets at least one, also if there are more queues than `limit`.
    """
    if not queues:
        return 0
    each = max(1, limit // len(queues))
    return _promote(lambda: transitions.promote_by_queue(queues, each))


@database.retry_contention
def _promote(operation: Callable[[], list[tuple[UUID, str, str]]]) -> int:
    with publish.atomic_if_published(*publish.AVAILABLE):
        due = operation()
        before = {key: State(state) for key, _, state in due}
        publish.jobs_available([*before], before=before)
    if due:
        notify.workers_of(queue for _, queue, _ in due)
    return len(due)


def expire(limit: int = BATCH) -> int:
    """Discard jobs whose `expires_at` passed before they ran (ojs-core §5.2). Return how many."""
    late = Job.primary.filter(
        state__in=sources(Trigger.EXPIRE, State.DISCARDED),
        expires_at__isnull=False,
        expires_at__lte=Now(),
    )
    # Usually there are none, and this query takes no lock.
    return _expire(late, limit) if late.exists() else 0


@database.write_transaction
def _expire(late: QuerySet[Job], limit: int) -> int:
    locked = late.order_by("expires_at").select_for_update(skip_locked=True)
    before = {key: State(state) for key, state in locked.values_list("pk", "state")[:limit]}
    keys = list(before)
    expired = Job.primary.filter(OneOf("pk", keys))
    count = transitions.apply(
        Trigger.EXPIRE, State.DISCARDED, expired, finished_at=Now(), discard_reason="expired"
    )
    publish.expired(keys, before=before)
    rollups.note_after_commit(rollups.DISCARDED, expired.values_list("queue", "type"))
    return count

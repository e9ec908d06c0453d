"""Promotion (ojs-core §6.3, Timer): make scheduled and retryable jobs that are due available.

Each function changes a bounded number of jobs in one transaction; any worker may run it.
"""

from collections.abc import Sequence
from datetime import timedelta

from django_ojs.models import Job
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, raw_queries, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects import sql_files


def due_condition(since: timedelta = timedelta(0)) -> str:
    """Return the SQL condition that a scheduled or retryable job has been due for `since`."""
    due = f"state {sql_files.before(Trigger.TIMER, State.AVAILABLE)}"
    return raw_queries.is_older(Job, "due_at", due, since)


def promote(limit: int = BATCH) -> int:
    """Make scheduled and retryable jobs that are due available (ojs-core §6.3, Timer).

    The earliest come first. Return how many.
    """
    return _promote(limit)


def promote_by_queue(queues: Sequence[str], limit: int = BATCH) -> int:
    """Promote due jobs of these queues, each of which gets an equal share. Return how many.

    A queue gets at least one job, even if there are more queues than `limit`.
    """
    if not queues:
        return 0
    each = max(1, limit // len(queues))
    return _promote(each, queues)


@database.retry_contention
def _promote(limit: int, queues: Sequence[str] | None = None) -> int:
    due = transitions.promote(limit, queues)
    if due:
        notify.workers_of(queue for _, queue, _ in due)
    return len(due)

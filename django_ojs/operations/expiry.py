"""Expiry: discard jobs that have waited longer than allowed.

The limit is `expires_at` (ojs-core §5.2), which also holds the end of `enqueue_ttl` and of
`total_timeout` (ojs-timeouts §5).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.spec import json, timeouts
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, raw_queries, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects import sql_files

_READ: Final = ("state", "options", "timeout_ms", "created_at", "started_at", "expires_at")


def expired_condition(since: timedelta = timedelta(0)) -> str:
    """Return the SQL condition that a waiting job expired at least `since` ago."""
    # The partial index has the same condition.
    expires = (
        f"expires_at IS NOT NULL AND state {sql_files.before(Trigger.EXPIRE, State.DISCARDED)}"
    )
    return raw_queries.is_older(Job, "expires_at", expires, since)


def expire(limit: int = BATCH) -> int:
    """Discard jobs whose deadline passed while they waited. Return how many."""
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
    found = list(locked.only(*_READ).annotate(now=Now())[:limit])
    # Jobs that expired together have few different errors.
    by_error: defaultdict[str | None, dict[UUID, State]] = defaultdict(dict)
    for job in found:
        failure = timeouts.expiry_of(job, job.now)
        error = None if failure is None else json.dumps(failure.render())
        by_error[error][job.pk] = State(job.state)
    return sum(_discard(before, error) for error, before in by_error.items())


def _discard(before: Mapping[UUID, State], error: str | None) -> int:
    values: dict[str, Any] = {} if error is None else {"error": json.loads(error)}
    values |= {"finished_at": Now(), "discard_reason": "expired"}

    def discard(keys: Sequence[UUID]) -> int:
        held = {key: before[key] for key in keys}
        return transitions.apply(Trigger.EXPIRE, State.DISCARDED, held, **values)

    return sum(transitions.change_together(Trigger.EXPIRE, list(before), discard))

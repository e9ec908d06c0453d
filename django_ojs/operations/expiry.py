"""Expiry: discard jobs that wait beyond their `expires_at` (ojs-core §5.2), or beyond the end of
their `enqueue_ttl` or `total_timeout`, which the same column has (ojs-timeouts §5).
"""

from collections import defaultdict
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations.events import publish
from django_ojs.spec import json, timeouts
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, raw_queries, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects import sql_files
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.figures import rollups

_READ: Final = ("state", "options", "timeout_ms", "created_at", "started_at", "expires_at")


def expired_condition(since: timedelta = timedelta(0)) -> str:
    """Whether a waiting job has expired, so long ago, in SQL."""
    # The condition of the partial index, too.
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
    before = {job.pk: State(job.state) for job in found}
    keys = list(before)
    # Jobs that expired at once have few errors.
    by_error: defaultdict[str | None, list[UUID]] = defaultdict(list)
    for job in found:
        failure = timeouts.expiry_of(job, job.now)
        by_error[None if failure is None else json.dumps(failure.render())].append(job.pk)
    count = 0
    for error, of_error in by_error.items():
        values: dict[str, Any] = {} if error is None else {"error": json.loads(error)}
        count += transitions.apply(
            Trigger.EXPIRE,
            State.DISCARDED,
            Job.primary.filter(OneOf("pk", of_error)),
            finished_at=Now(),
            discard_reason="expired",
            **values,
        )
    expired = Job.primary.filter(OneOf("pk", keys))
    publish.expired(keys, before=before)
    rollups.note_after_commit(rollups.DISCARDED, expired.values_list("queue", "type"))
    return count

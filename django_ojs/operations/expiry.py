"""Expiry (ojs-core §5.2): discard jobs that did not start before their `expires_at`."""

from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, raw_queries, transitions
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects import sql_files


def expired_condition(since: timedelta = timedelta(0)) -> str:
    """Whether a waiting job has expired, so long ago, in SQL."""
    # The condition of the partial index, too.
    expires = (
        f"expires_at IS NOT NULL AND state {sql_files.before(Trigger.EXPIRE, State.DISCARDED)}"
    )
    return raw_queries.is_older(Job, "expires_at", expires, since)


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
    return transitions.apply(
        Trigger.EXPIRE, State.DISCARDED, before, finished_at=Now(), discard_reason="expired"
    )

"""Delete finished jobs after their retention time."""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

from django.db.models import BooleanField, Case, Q, QuerySet, When
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Now

from django_ojs import hooks
from django_ojs.models import Job
from django_ojs.operations.delete import erase
from django_ojs.operations.maintenance import job_retention
from django_ojs.operations.maintenance.job_retention import Kind, Retention
from django_ojs.spec.times import elapsed
from django_ojs.storage import database, raw_queries
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects.expressions import OneOf

#: How many jobs of a kind are deleted in one transaction. Nothing waits for their locks.
PRUNED: Final = 2 * BATCH

#: How many jobs one step of a walk reads. It deletes at most this many.
WALK: Final = BATCH

#: Jobs past their retention are counted up to this number.
COUNTED: Final = 100_000

#: Seconds between two walks over the same jobs. A job of a queue without the shortest retention
#: is deleted at most this much later than its retention says.
WALK_AGAIN: Final = 3600.0


def prune(limit: int = PRUNED, *, since: timedelta = timedelta(0)) -> int:
    """Delete finished jobs that no queue keeps and whose retention ended at least `since` ago.

    At most `limit` jobs of each kind are deleted. Return how many.
    """
    return sum(
        _prune(kind, kept.longest + since, limit) for kind, kept in job_retention.current().items()
    )


def condition(since: timedelta = timedelta(0)) -> str:
    """Return the SQL condition that `prune` may find any jobs."""
    kinds = (
        raw_queries.is_older(
            Job,
            "finished_at",
            f"state = '{state.value}' AND {'' if dead_letter else 'NOT '}dead_letter",
            kept.longest + since,
        )
        for (state, dead_letter), kept in job_retention.current().items()
    )
    return f"({' OR '.join(kinds)})"


def overdue(since: timedelta = timedelta(0)) -> dict[Kind, int]:
    """Return how many finished jobs of each kind are past their retention for `since` or longer.

    Jobs are counted up to `COUNTED`, and kinds without any are left out. Pruning by queue takes up
    to an hour (`WALK_AGAIN`), which is added to `since` for the queues with a retention of their
    own.
    """
    found = {}
    for kind, kept in job_retention.current().items():
        number = _overdue(kind, kept, since)[:COUNTED].count()
        if number:
            found[kind] = number
    return found


def _overdue(kind: Kind, kept: Retention, since: timedelta) -> QuerySet[Job]:
    state, dead_letter = kind
    jobs = Job.primary.filter(
        _unneeded(),
        state=state,
        dead_letter=dead_letter,
        finished_at__lte=Now() - kept.shortest - since,
    ).order_by()
    if not kept.by_queue:
        return jobs
    walk = timedelta(seconds=WALK_AGAIN) if since else since
    # This decides in the same way as `Retention.of`.
    jobs = jobs.alias(
        decides=Case(
            When(queue__in=[*kept.own], then="queue"), default=Coalesce("original_queue", "queue")
        )
    )
    due = Q(finished_at__lte=Now() - kept.default - since - walk)
    due &= ~Q(decides__in=[*kept.by_queue])
    for queue, own in kept.by_queue.items():
        due |= Q(decides=queue, finished_at__lte=Now() - own - since - walk)
    return jobs.filter(due)


def _unneeded() -> RawSQL:
    """Return the condition that no extension needs a job."""
    return RawSQL(hooks.is_unneeded(), (), output_field=BooleanField())


def _prune(kind: Kind, age: timedelta, limit: int) -> int:
    # Usually there are none, and then no transaction is opened.
    return _erase_old(kind, age, limit) if _old_jobs(kind, age, 1) else 0


@database.write_transaction
def _erase_old(kind: Kind, age: timedelta, limit: int) -> int:
    keys = _old_jobs(kind, age, limit)
    return erase(keys) if keys else 0


def _old_jobs(kind: Kind, age: timedelta, limit: int) -> list[UUID]:
    state, dead_letter = kind
    return database.dialect().old_jobs(
        database.connection(),
        state=state.value,
        dead_letter=dead_letter,
        age=age,
        unneeded=hooks.is_unneeded(),
        limit=limit,
    )


@database.write_transaction
def _erase(old: QuerySet[Job]) -> None:
    locked = old.select_for_update(skip_locked=True, of=("self",))
    # There are none when another process has deleted them.
    if keys := list(locked.values_list("pk", flat=True)):
        erase(keys)


#: Key, queue, original queue, when it finished, and the time now.
_Finished = tuple[UUID, str, str | None, datetime, datetime]


@dataclass(slots=True)
class _Walk:
    """The cursor of a walk over one kind of finished jobs, in the order in which they finished."""

    began: float
    finished_at: datetime | None = None
    pk: UUID | None = None


class QueuePruner:
    """Deletes finished jobs that their queue keeps for less time than another queue does.

    The index of finished jobs has no queue. Therefore it walks over the jobs that some queues keep
    and others do not, a bounded number at a step, and remembers where it was.
    """

    def __init__(self) -> None:
        self._walks: dict[Kind, _Walk] = {}

    def prune(self) -> int:
        """Take one step of each walk. Return how many jobs were read."""
        return sum(
            self._step(kind, kept)
            for kind, kept in job_retention.current().items()
            if kept.by_queue
        )

    def _step(self, kind: Kind, kept: Retention) -> int:
        walk = self._walks.get(kind)
        if walk is None or time.monotonic() - walk.began >= WALK_AGAIN:
            walk = self._walks[kind] = _Walk(time.monotonic())
        rows = _finished(kind, walk, kept)
        keys = [
            pk
            for pk, queue, original, finished_at, now in rows
            if elapsed(finished_at, now) >= kept.of(queue, original)
        ]
        if keys:
            old = Job.primary.filter(OneOf("pk", keys), _unneeded())
            _erase(old.order_by("pk"))
        if rows:
            walk.pk, _, _, walk.finished_at, _ = rows[-1]
        return len(rows)


def _finished(kind: Kind, walk: _Walk, kept: Retention) -> list[_Finished]:
    """Return the next jobs of a walk."""
    state, dead_letter = kind
    jobs = Job.primary.filter(
        state=state, dead_letter=dead_letter, finished_at__lte=Now() - kept.shortest
    )
    if walk.finished_at is not None:
        # Together, the two mean "after the cursor". The first one limits the range of the index.
        jobs = jobs.filter(finished_at__gte=walk.finished_at).filter(
            Q(finished_at__gt=walk.finished_at) | Q(pk__gt=walk.pk)
        )
    ordered = jobs.order_by("finished_at", "pk").annotate(now=Now())
    rows = ordered.values_list("pk", "queue", "original_queue", "finished_at", "now")[:WALK]
    return cast("list[_Finished]", list(rows))

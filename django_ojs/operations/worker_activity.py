"""Signs of life of workers, and how long a claim and a worker last without one.

ojs-core §7.5, worker-protocol §5 and §10.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, F, Func, QuerySet, When
from django.db.models.functions import Coalesce, Greatest, Now

from django_ojs.conf import settings
from django_ojs.hooks import publish
from django_ojs.models import Job, Worker
from django_ojs.spec.errors import PermissionDenied
from django_ojs.spec.published import EventType, of_worker
from django_ojs.spec.times import elapsed
from django_ojs.storage import database, raw_queries
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.expressions import Milliseconds

#: A worker is dead after this many missed heartbeats.
MISSED_BEATS = 3

#: The shortest silence after which a worker that does not send its interval is dead: three of the
#: intervals that ojs-core §7.5 recommends.
SHORTEST_SILENCE = timedelta(seconds=45)

_MILLISECOND = timedelta(milliseconds=1)

#: A statement that took more than this many seconds had to wait for a lock, or this process was
#: stopped.
LONG_WAIT: Final = 0.5

_NO_JOB: Final = UUID(int=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """The sender of the requests of a worker. An empty `id` means a worker of this project.

    A principal that is `limited` to some queues may write only the workers that it made known. Any
    other may write every worker, and then becomes its owner.
    """

    id: str = ""
    limited: bool = False

    def may_write(self, owner: str) -> bool:
        """Whether it may write a worker of this owner."""
        return not self.limited or owner == self.id

    def check(self, owner: str) -> None:
        """Raise PermissionDenied unless it may write a worker of this owner."""
        if not self.may_write(owner):
            raise PermissionDenied.of(
                "worker_id",
                "is not available to these credentials.",
                hint="A worker belongs to the API key that made it known: use another worker_id.",
            )


PROJECT: Final = Principal()


def register(
    worker_id: str,
    *,
    principal: Principal = PROJECT,
    queues: Collection[str],
    concurrency: int | None,
    **values: Any,
) -> Worker:
    """Store the row of a new worker, and publish that it started.

    Return the row, which another transaction may have stored.
    """
    worker, made = Worker.primary.get_or_create(
        id=worker_id,
        defaults={
            "started_at": Now(),
            "queues": list(queues),
            "concurrency": concurrency,
            **values,
            "owner": principal.id,
        },
    )
    if made:
        publish(
            EventType.WORKER_STARTED,
            of_worker,
            worker_id,
            queues=list(queues),
            # The event requires a number; a worker that reports none has at least one slot.
            concurrency=concurrency or 1,
            # The charts mark a deployment where these change.
            version=values.get("version") or None,
            release=values.get("release") or None,
        )
    return worker


def after_beat(worker_id: str, interval: timedelta | None) -> dict[str, Any]:
    """Return the columns of the worker that a BEAT changes, besides what the worker reports.

    `interval` is the time to its next beat, if it sends this. If not, the one that it sent earlier
    counts, or else the time since its last beat.
    """
    seen = {"seen_at": Now(), "beat_at": Now()}
    if interval is not None:
        milliseconds = interval // _MILLISECOND
        # It is later than now if the clock was set back.
        in_time = When(
            beat_at__gt=Now() - 2 * interval, steady_since__lte=Now(), then=F("steady_since")
        )
        # `steady_since` comes before `beat_at`, because MariaDB sets one column after the other.
        return (
            {"steady_since": Coalesce(Case(in_time), Now())}
            | seen
            | {
                "beat_interval_ms": milliseconds,
                "dead_after_ms": MISSED_BEATS * milliseconds,
            }
        )
    return seen | {"dead_after_ms": _silence(worker_id) // _MILLISECOND}


def jobs_are_writable() -> bool:
    """Whether jobs can be written now without waiting for a lock on their table.

    If this statement had to wait, other writers waited too, and their reports are stored next.
    """
    began = time.monotonic()
    Job.primary.filter(pk=_NO_JOB).update(run=F("run"))
    return time.monotonic() - began < LONG_WAIT


def may_judge() -> bool:
    """Whether silent workers can be judged, because they could have stored a report until now."""
    return jobs_are_writable() and raw_queries.holds(database.dialect().steady())


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownWorker:
    """What a FETCH reads of a worker's row. `now` is the time of the database at the reading."""

    owner: str
    pool: str
    directive: str
    beat_at: datetime | None
    seen_at: datetime
    dead_after_ms: int
    now: datetime
    #: Which of the conditions given to `find` hold.
    which_hold: Sequence[bool]

    @property
    def dead_after(self) -> timedelta:
        """How long it may be silent."""
        return self.dead_after_ms * _MILLISECOND


_READ: Final = ("owner", "pool", "directive", "beat_at", "seen_at", "dead_after_ms")


def find(worker_id: str, conditions: Sequence[str] = ()) -> KnownWorker | None:
    """Return a worker, or None if it is unknown.

    The same statement asks which of the conditions hold; see `raw_queries.which_hold`.
    """
    dialect = database.dialect()
    more = (dialect.now, *conditions)
    wanted = {"worker_id": worker_id}
    for row in raw_queries.values(Worker, _READ, "id = %(worker_id)s", wanted, more=more):
        now, *which_hold = row[len(_READ) :]
        values: dict[str, Any] = dict(zip(_READ, row, strict=False))
        values["now"] = dialect.time(now)
        return KnownWorker(which_hold=[bool(holds) for holds in which_hold], **values)
    return None


def join_pool(
    worker_id: str, pool: str, queues: Sequence[str], principal: Principal, *, is_known: bool
) -> None:
    """Store the pool that a worker names with a FETCH, so that later ones need not name it."""
    if is_known:
        _update(Worker.primary.filter(pk=worker_id), pool=pool)
    else:
        silence = settings().http_visibility_timeout // _MILLISECOND
        _register_fetching(worker_id, queues, silence, principal, pool)


def after_fetch(
    worker_id: str,
    queues: Sequence[str],
    jobs: Sequence[Claimed],
    principal: Principal,
    known: KnownWorker | None,
) -> None:
    """Record a FETCH over HTTP as a sign of life; the first one makes the worker known.

    Until its first BEAT a worker may be silent as long as the longest of its leases, because it may
    never send one. `jobs` are those that it has just claimed, and `known` is its row before the
    claim.

    A sign of life is not written with every FETCH, because a worker may poll many times a second.
    So from the second FETCH on, the silence that is allowed is a tenth longer than that lease.
    """
    longest = max([settings().http_visibility_timeout, *(job.lease for job in jobs)])
    if known is None:
        _register_fetching(worker_id, queues, longest // _MILLISECOND, principal)
        # Another request may have made it known since the claim was checked.
        known = find(worker_id)
    if known is None or not principal.may_write(known.owner):
        return
    which: dict[str, Any] = {"pk": worker_id, "owner": known.owner}
    ends = [elapsed(known.seen_at, job.lease_until) for job in jobs if job.lease_until is not None]
    values: dict[str, Any] = {"seen_at": Now(), "owner": principal.id}
    if known.beat_at is None and any(end > known.dead_after for end in ends):
        # A BEAT that arrives meanwhile knows better how long the worker may be silent.
        which["beat_at"] = None
        values["dead_after_ms"] = max(known.dead_after_ms, longest * 11 // 10 // _MILLISECOND)
    elif known.owner == principal.id and elapsed(known.seen_at, known.now) <= known.dead_after / 10:
        return
    if not _update(Worker.primary.filter(**which), **values):
        # If it was declared dead since the claim was checked, its row is gone.
        _register_fetching(worker_id, queues, longest // _MILLISECOND, principal)


@database.write_transaction
def _register_fetching(
    worker_id: str, queues: Sequence[str], silence: int, principal: Principal, pool: str = ""
) -> None:
    register(
        worker_id,
        principal=principal,
        queues=queues,
        pool=pool,
        concurrency=None,
        seen_at=Now(),
        dead_after_ms=silence,
    )


@database.write_transaction
def _update(worker: QuerySet[Worker], **values: Any) -> int:
    return worker.update(**values)


def after_progress(worker_id: str | None, principal: Principal) -> None:
    """Record a progress report as a sign of life of a worker that has sent no beat interval."""
    worker = Worker.primary.filter(pk=worker_id, beat_interval_ms=None)
    if principal.limited:
        worker = worker.filter(owner=principal.id)
    worker.update(seen_at=Now())


def extended(by: timedelta | None = None) -> Func:
    """Return the new end of a lease that a sign of life extends, never an earlier one.

    Without `by`, it is extended by the length that it was claimed with.
    """
    return Greatest(F("lease_until"), Now() + (by or Milliseconds(F("lease_ms"))))


def _silence(worker_id: str) -> timedelta:
    known = Worker.primary.filter(pk=worker_id).annotate(now=Now()).first()
    if known is None or known.beat_at is None:
        return SHORTEST_SILENCE
    if known.beat_interval_ms is not None:
        return MISSED_BEATS * known.beat_interval_ms * _MILLISECOND
    return max(
        SHORTEST_SILENCE,
        MISSED_BEATS * elapsed(known.beat_at, known.now),
        # An extra beat, for example by a handler, does not mean a shorter interval, so the limit
        # falls slowly.
        known.dead_after_ms * _MILLISECOND / 2,
    )

"""Findings about the health of the system, worst first, without counting jobs.

Each comes from what is stored about the last moments, such as the heartbeats of the workers, and
not from a mean over minutes: the overview of the admin and `manage.py ojs doctor` read the same.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.extension import Problem
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.extensions.statistics import rollup_queries
from django_ojs.operations.access import key_expiry
from django_ojs.operations.access.key_expiry import KeyProblem
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.reports import health_queries
from django_ojs.reports.health_queries import Observations, RestrictedKeys
from django_ojs.reports.queue_overview import Level, OverviewRow
from django_ojs.storage.dialects.server import LockHolder

#: A transaction that is open this long keeps dead rows, which claims must skip, from vacuum.
OLD: Final = timedelta(minutes=15)
VERY_OLD: Final = timedelta(hours=1)

#: Failure rates are of types with at least so many runs.
FEWEST_RUNS: Final = 10

#: A queue is found full at most so long after the first job that it rejected or dropped.
_FOUND_FULL_WITHIN: Final = timedelta(seconds=10)

Kind = Literal[
    "maintenance",
    "full",
    "near",
    "rejected",
    "unworked",
    "late",
    "stale",
    "lost",
    "unknown_type",
    "failing",
    "dead_letters",
    "limit_drops",
    "problem",
    "transaction",
    "locked",
    "paused",
    "draining",
    "limit_key_paused",
    "limit_keys_paused",
    "key_expires",
    "key_rejected",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem; `number` and the other fields are the values of its sentence."""

    kind: Kind
    level: Level
    queue: str | None = None
    type: str | None = None
    job: UUID | None = None
    limit_key: str | None = None
    number: int = 0
    of: int = 0
    #: Jobs that the queue rejected and dropped, since the beginning or in the last hour.
    rejected: int = 0
    dropped: int = 0
    #: Whether a queue that was full a moment ago has room again.
    has_room: bool = False
    share: float = 0.0
    capped: bool = False
    since: datetime | None = None
    until: datetime | None = None
    lasts: timedelta | None = None
    text: str = ""
    key: KeyProblem | None = None
    #: What an extension has found.
    problem: Problem | None = None


def of_system(
    rows: Sequence[OverviewRow],
    observed: Observations,
    *,
    maintenance: MaintenanceStatus | None,
    stale: int,
    transaction: timedelta | None,
    keys: Sequence[KeyProblem] = (),
    lock_holders: Sequence[LockHolder] = (),
) -> list[Finding]:
    """Return the problems, worst first."""
    found = []
    is_stopped = maintenance is not None and maintenance.enabled
    if maintenance is not None and is_stopped:
        found.append(
            Finding(
                kind="maintenance",
                level=Level.BAD,
                since=maintenance.enabled_at,
                text=maintenance.reason or "",
            )
        )
    for row in rows:
        found += _of_row(row, is_stopped=is_stopped)
    if stale:
        found.append(Finding(kind="stale", level=Level.BAD, number=stale))
    found += _of_workers_and_types(observed)
    if observed.fresh_dead:
        found.append(
            Finding(
                kind="dead_letters",
                level=Level.FAIR,
                number=min(observed.fresh_dead, health_queries.MOST),
                capped=observed.fresh_dead > health_queries.MOST,
            )
        )
    found += _of_limit_keys(observed.limit_keys)
    found += [
        Finding(kind="problem", level=Level.FAIR, since=each.since, problem=each)
        for each in observed.problems
    ]
    if transaction is not None and transaction >= OLD:
        level = Level.BAD if transaction >= VERY_OLD else Level.FAIR
        found.append(Finding(kind="transaction", level=level, lasts=transaction))
    found += [
        Finding(
            kind="locked",
            level=Level.BAD,
            number=holder.jobs,
            job=holder.job,
            since=holder.since,
            text=holder.name,
        )
        for holder in lock_holders
    ]
    found += [_of_key(problem) for problem in keys]
    return worst_first(found)


def of_type(type: str) -> list[Finding]:
    """Return the problems that are about a type."""
    observed = Observations(
        lost=health_queries.lost_workers(),
        held_back=health_queries.held_back(),
        failing=rollup_queries.failing(minutes=health_queries.FAILURE_MINUTES, type=type),
    )
    return [found for found in _of_workers_and_types(observed) if found.type == type]


def of_queue(row: OverviewRow, *, is_stopped: bool) -> list[Finding]:
    """Return the problems of a queue, worst first. `is_stopped`: by maintenance mode."""
    observed = Observations(
        held_back=health_queries.held_back(),
        failing=rollup_queries.failing(
            minutes=health_queries.FAILURE_MINUTES, limit=health_queries.MOST_TYPES
        ),
    )
    of_types = [found for found in _of_workers_and_types(observed) if found.queue == row.name]
    return worst_first([*_of_row(row, is_stopped=is_stopped), *of_types])


def worst_first(found: Sequence[Finding]) -> list[Finding]:
    """Return findings in the order of a page."""
    return sorted(found, key=lambda finding: finding.level is not Level.BAD)


def some_of_each_kind(found: Sequence[Finding], most: int) -> list[Finding]:
    """Return about `most` of the findings in their order, with the first ones of each kind.

    So that five hundred problems of one kind do not hide the only one of another.
    """
    numbers = Counter(finding.kind for finding in found)
    of_one_kind = max(1, most)
    while of_one_kind > 1 and sum(min(n, of_one_kind) for n in numbers.values()) > most:
        of_one_kind -= 1
    shown: list[Finding] = []
    seen: Counter[Kind] = Counter()
    for finding in found:
        seen[finding.kind] += 1
        if seen[finding.kind] <= of_one_kind:
            shown.append(finding)
    return shown


def _of_row(row: OverviewRow, *, is_stopped: bool) -> list[Finding]:
    found = []
    bound = row.bound
    rejected = _lately(row.flow.rejected, row.level_since)
    dropped = _lately(row.flow.dropped, row.level_since)
    if row.level is not Level.GOOD:
        full = row.level is Level.BAD
        depth, most = Load(jobs=row.depth, size=row.size or 0).nearest(bound)
        found.append(
            Finding(
                kind="full" if full else "near",
                level=row.level,
                queue=row.name,
                number=depth,
                of=most,
                rejected=rejected,
                dropped=dropped,
                since=row.level_since,
                has_room=full and row.has_room,
                text=bound.strategy,
            )
        )
    elif (rejected or dropped) and row.bounded:
        # What rejected them in a queue without a bound, an extension says.
        found.append(
            Finding(
                kind="rejected",
                level=Level.FAIR,
                queue=row.name,
                rejected=rejected,
                dropped=dropped,
            )
        )
    if row.unworked:
        found.append(
            Finding(
                kind="unworked",
                level=Level.BAD,
                queue=row.name,
                number=row.available,
                since=row.oldest,
                text=_worker_arguments(row.name),
            )
        )
    elif row.oldest is not None and not row.status.paused and not is_stopped:
        waits = timezone.now() - row.oldest
        if row.available and waits >= settings().warn_oldest_available:
            found.append(
                Finding(
                    kind="late",
                    level=Level.FAIR,
                    queue=row.name,
                    number=row.available,
                    since=row.oldest,
                )
            )
    if row.status.paused and row.depth:
        found.append(
            Finding(
                kind="paused",
                level=Level.FAIR,
                queue=row.name,
                number=row.depth,
                since=row.status.paused_at,
            )
        )
    if row.status.draining_at is not None:
        found.append(
            Finding(
                kind="draining",
                level=Level.FAIR,
                queue=row.name,
                number=row.depth,
                since=row.status.draining_at,
            )
        )
    return found


def _lately(minutes: Sequence[int], since: datetime | None) -> int:
    """Return the sum of the minutes since the begin of an episode, or of all of them if it is
    None or earlier."""
    if since is None:
        return sum(minutes)
    first = since - _FOUND_FULL_WITHIN
    number = timezone.now().timestamp() // 60 - first.timestamp() // 60 + 1
    return sum(minutes[-int(min(len(minutes), max(1, number))) :])


def _worker_arguments(queue: str) -> str:
    """Return the arguments of a worker that gets jobs of a queue."""
    pool = settings().pool_of_queue.get(queue)
    return f"--queues {queue}" if pool is None else f"--pool {pool}"


def _of_workers_and_types(observed: Observations) -> list[Finding]:
    found = []
    if observed.lost is not None:
        found.append(
            Finding(
                kind="lost",
                level=Level.BAD,
                number=len(observed.lost.jobs_of),
                of=observed.lost.jobs_of.total(),
                job=observed.lost.job,
                type=observed.lost.type,
            )
        )
    for each in observed.held_back:
        found.append(
            Finding(
                kind="unknown_type",
                level=Level.BAD,
                type=each.type,
                queue=each.queue,
                number=each.jobs,
            )
        )
    limit = settings().warn_failure_rate
    for figures in observed.failing:
        runs = figures.failed + figures.completed
        if runs >= FEWEST_RUNS and figures.share >= limit:
            found.append(
                Finding(
                    kind="failing",
                    level=Level.FAIR,
                    type=figures.type,
                    queue=figures.queue,
                    number=figures.failed,
                    of=runs,
                    share=figures.share,
                )
            )
    return found


def _of_limit_keys(keys: RestrictedKeys) -> list[Finding]:
    found = []
    if keys.dropping_keys:
        found.append(
            Finding(
                kind="limit_drops",
                level=Level.FAIR,
                number=keys.dropped_jobs,
                of=keys.dropping_keys,
            )
        )
    for status in keys.paused:
        if status.row is not None:
            found.append(
                Finding(
                    kind="limit_key_paused",
                    level=Level.FAIR,
                    limit_key=status.key,
                    number=min(status.waiting, health_queries.MOST_WAITING),
                    capped=status.waiting > health_queries.MOST_WAITING,
                    since=status.row.paused_at,
                    until=status.row.paused_until,
                )
            )
    if keys.more_paused > 0:
        found.append(Finding(kind="limit_keys_paused", level=Level.FAIR, number=keys.more_paused))
    return found


def _of_key(problem: KeyProblem) -> Finding:
    text = key_expiry.sentence(problem)
    if problem.rejected_at is not None:  # The requests of a program fail now.
        return Finding(kind="key_rejected", level=Level.BAD, key=problem, text=text)
    return Finding(kind="key_expires", level=Level.FAIR, key=problem, text=text)

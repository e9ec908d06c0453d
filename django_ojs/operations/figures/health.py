"""Findings about the health of the system, worst first, without counting jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations.figures.queue_overview import Level, OverviewRow
from django_ojs.operations.maintenance.mode import Maintenance
from django_ojs.storage import database

#: Dead letters are counted up to this.
MOST: Final = 10_000

#: A transaction that is open this long keeps dead rows, which claims must skip, from vacuum.
OLD: Final = timedelta(minutes=15)
VERY_OLD: Final = timedelta(hours=1)

Kind = Literal[
    "maintenance", "full", "near", "unworked", "stale", "dead_letters", "transaction", "paused"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem; `number` and the other fields are the values of its sentence."""

    kind: Kind
    level: Level
    queue: str | None = None
    number: int = 0
    of: int = 0
    capped: bool = False
    since: datetime | None = None
    lasts: timedelta | None = None
    text: str = ""


def new_dead_letters(within: timedelta = timedelta(hours=1)) -> int:
    """Return how many jobs became dead letters in this time, up to one more than `MOST`."""
    fresh = Job.primary.filter(dead_letter=True, finished_at__gt=Now() - within)
    return fresh.order_by()[: MOST + 1].count()


def oldest_transaction() -> timedelta | None:
    """Return how long the oldest other transaction of this database has been open."""
    return database.dialect().oldest_transaction(database.connection())


def findings(
    rows: Sequence[OverviewRow],
    *,
    maintenance: Maintenance | None,
    stale: int,
    fresh_dead: int,
    transaction: timedelta | None,
) -> list[Finding]:
    """Return the problems, worst first."""
    found = []
    if maintenance is not None and maintenance.enabled:
        found.append(
            Finding(
                kind="maintenance",
                level=Level.BAD,
                since=maintenance.enabled_at,
                text=maintenance.reason or "",
            )
        )
    for row in rows:
        found += _of(row)
    if stale:
        found.append(Finding(kind="stale", level=Level.BAD, number=stale))
    if fresh_dead:
        found.append(
            Finding(
                kind="dead_letters",
                level=Level.FAIR,
                number=min(fresh_dead, MOST),
                capped=fresh_dead > MOST,
            )
        )
    if transaction is not None and transaction >= OLD:
        level = Level.BAD if transaction >= VERY_OLD else Level.FAIR
        found.append(Finding(kind="transaction", level=level, lasts=transaction))
    return sorted(found, key=lambda finding: finding.level is not Level.BAD)


def _of(row: OverviewRow) -> list[Finding]:
    found = []
    bound = row.bound
    by_size = bound.max_depth is None or (
        bound.max_size_bytes is not None
        and (row.size or 0) / bound.max_size_bytes > row.depth / bound.max_depth
    )
    depth, most = (row.size or 0, bound.max_size_bytes) if by_size else (row.depth, bound.max_depth)
    if row.level is not Level.GOOD:
        full = row.level is Level.BAD
        found.append(
            Finding(
                kind="full" if full else "near",
                level=row.level,
                queue=row.name,
                number=depth,
                of=most or 0,
                since=row.full_at if full else row.warned_at,
                text=bound.strategy,
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
    return found


__all__ = ["Finding", "findings", "new_dead_letters", "oldest_transaction"]

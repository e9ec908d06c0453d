"""Compaction of rollups: into one row a minute, then one an hour, then one for all time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Count as Number
from django.db.models import Q, QuerySet
from django.db.models.functions import Now, TruncHour
from django.utils import timezone

from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollups import COLUMNS
from django_ojs.storage import database, raw_queries

#: The rows of a minute are folded when it is this old, because writers may be late.
LATE: Final = timedelta(minutes=2)
#: Rows that are written later than this are not folded before they become part of an hour.
LATEST: Final = timedelta(hours=2)

#: Older rows are kept by the hour: a month of minutes of a busy site is millions of rows.
MINUTES: Final = timedelta(hours=50)
#: Minutes that maintenance did not merge within this time are never merged into hours.
_MISSED: Final = timedelta(days=3)

#: About how many rows one transaction sums up, so that it ends before the lease expires.
_ROWS: Final = 2 * database.BATCH

#: The minute of the all-time rows.
EVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Younger rows are never pruned.
YOUNG: Final = timedelta(hours=1)

_HOUR: Final = timedelta(hours=1)


def fold(limit: int = database.BATCH) -> int:
    """Fold the rows of past minutes into one per minute, queue and type.

    Fold up to `limit` of them, in the order of their minutes. Return how many fewer rows there are.
    """
    lately = Q(minute__gte=Now() - LATEST, minute__lt=Now() - LATE)
    split = (
        _rows()
        .filter(lately | Q(minute=EVER))
        .values("minute", "queue", "type")
        .annotate(rows=Number("pk"))
        .filter(rows__gt=1)
        .order_by("minute", "queue", "type")[:limit]
    )
    left, keys = _ROWS, list[tuple[datetime, str, str]]()
    for minute, queue, type, rows in split.values_list("minute", "queue", "type", "rows"):
        keys.append((minute, queue, type))
        left -= rows
        if left <= 0:
            break
    return _fold(keys) if keys else 0


def condition(keep: timedelta) -> str:
    """The condition in SQL for rows that `fold` or `prune` may find."""
    ago = database.dialect().ago
    # Only the all-time rows are that old.
    ever = f"minute < '{EVER.year + 1}-01-01'"
    lately = f"minute >= {ago(LATEST.total_seconds())} AND minute < {ago(LATE.total_seconds())}"
    split = raw_queries.condition(
        Rollup, f"({lately}) OR {ever} GROUP BY minute, queue, type HAVING count(*) > 1"
    )
    old = raw_queries.is_older(Rollup, "minute", f"NOT {ever}", max(keep, YOUNG))
    return f"({split} OR {old})"


@database.write_transaction
def _fold(keys: Sequence[tuple[datetime, str, str]]) -> int:
    # This matches some more keys, but a condition for each key would make the statement too long.
    minutes, queues, types = (set(values) for values in zip(*keys, strict=True))
    return _sum_up(_rows().filter(minute__in=minutes, queue__in=queues, type__in=types))


def coarsen(limit: int = 100) -> int:
    """Merge the minutes of an hour, for up to `limit` queues and types. Return the rows deleted."""
    old = _rows().filter(minute__gte=Now() - MINUTES - _MISSED, minute__lt=Now() - MINUTES)
    fine = old.exclude(minute=TruncHour("minute", tzinfo=UTC)).order_by("minute")
    first = fine.values_list("minute", flat=True).first()
    if first is None:
        return 0
    hour = first.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if hour + _HOUR > timezone.now() - MINUTES:
        return 0  # Its last minutes are kept a little longer.
    within = _rows().filter(minute__gte=hour, minute__lt=hour + _HOUR)
    pairs = within.exclude(minute=hour).order_by("queue", "type").values_list("queue", "type")
    keys = list(pairs.distinct()[:limit])
    return _coarsen(within, keys, hour) if keys else 0


@database.write_transaction
def _coarsen(within: QuerySet[Rollup], keys: Sequence[tuple[str, str]], hour: datetime) -> int:
    queues, types = (set(values) for values in zip(*keys, strict=True))
    return _sum_up(within.filter(queue__in=queues, type__in=types), hour)


def prune(keep: timedelta, limit: int = 5000) -> int:
    """Make rows that are older than `keep` all-time rows. Return how many.

    `fold` merges them into one for each queue and type, so the all-time sums never decrease.
    """
    old = _rows().filter(minute__gt=EVER, minute__lt=Now() - max(keep, YOUNG))
    return database.update_free(old.order_by("minute")[:limit], minute=EVER)


def _sum_up(parts: QuerySet[Rollup], at: datetime | None = None) -> int:
    """Replace the rows of each queue and type by their sum, for each minute or at the minute `at`.

    Return how many fewer rows there are. Rows that another worker has locked are left: it may have
    lost the lease during this work, and a worker that waits for it would lose the lease as well.
    """
    by_key: dict[tuple[datetime, str, str], list[Rollup]] = {}
    for part in parts.select_for_update(skip_locked=True):
        by_key.setdefault((at or part.minute, part.queue, part.type), []).append(part)
    replaced, sums = list[int](), list[Rollup]()
    for (minute, _, _), found in by_key.items():
        if len(found) > 1 or found[0].minute != minute:
            replaced += [part.pk for part in found]
            sums.append(_sum_of(found, minute))
    if replaced:
        _rows().filter(pk__in=replaced).delete()
        _rows().bulk_create(sums)
    return len(replaced) - len(sums)


def _sum_of(parts: Sequence[Rollup], minute: datetime) -> Rollup:
    first, *others = parts
    for other in others:
        for column in COLUMNS:
            setattr(first, column, getattr(first, column) + getattr(other, column))
        first.waited = [a + b for a, b in zip(first.waited, other.waited, strict=True)]
        first.ran = [a + b for a, b in zip(first.ran, other.ran, strict=True)]
    first.pk, first.minute = None, minute
    return first


def _rows() -> QuerySet[Rollup]:
    return Rollup.primary.all()

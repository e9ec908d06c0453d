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

#: A minute is folded this long after its end: writers may be late.
LATE: Final = timedelta(minutes=2)
#: Rows that are written later than this are not folded before they become part of an hour.
LATEST: Final = timedelta(hours=2)

#: Older rows are kept by the hour: a month of minutes of a busy site is millions of rows.
MINUTES: Final = timedelta(hours=50)
#: Minutes that maintenance has missed for longer than this remain minutes.
_MISSED: Final = timedelta(days=3)

#: The minute of the all-time rows.
EVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Younger rows are never pruned.
YOUNG: Final = timedelta(hours=1)

_HOUR: Final = timedelta(hours=1)


def fold(limit: int = 200) -> int:
    """Fold the rows of past minutes into one per minute, queue and type.

    Return how many rows were deleted.
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
    keys = list(split.values_list("minute", "queue", "type"))
    return _fold(keys) if keys else 0


def condition(keep: timedelta) -> str:
    """The condition in SQL for rows that `fold` or `prune` may find."""
    ago = database.dialect().ago
    # Only the all-time rows come before the others.
    ever = f"minute < '{EVER.year + 1}-01-01'"
    lately = f"minute >= {ago(LATEST.total_seconds())} AND minute < {ago(LATE.total_seconds())}"
    split = raw_queries.condition(
        Rollup, f"({lately}) OR {ever} GROUP BY minute, queue, type HAVING count(*) > 1"
    )
    old = raw_queries.is_older(Rollup, "minute", f"NOT {ever}", max(keep, YOUNG))
    return f"({split} OR {old})"


@database.write_transaction
def _fold(keys: Sequence[tuple[datetime, str, str]]) -> int:
    return sum(
        _into_one(_rows().filter(minute=minute, queue=queue, type=type), minute)
        for minute, queue, type in keys
    )


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
    return _coarsen(within, list(pairs.distinct()[:limit]), hour)


@database.write_transaction
def _coarsen(within: QuerySet[Rollup], keys: Sequence[tuple[str, str]], hour: datetime) -> int:
    return sum(_into_one(within.filter(queue=queue, type=type), hour) for queue, type in keys)


def prune(keep: timedelta, limit: int = 5000) -> int:
    """Make older rows all-time rows. Return how many.

    `fold` merges them into one for each queue and type, so the all-time sums never decrease.
    """
    old = _rows().filter(minute__gt=EVER, minute__lt=Now() - max(keep, YOUNG))
    keys = list(old.order_by("minute").values_list("pk", flat=True)[:limit])
    if not keys:
        return 0
    return int(database.retried(lambda: _rows().filter(pk__in=keys).update(minute=EVER)))


def _into_one(parts: QuerySet[Rollup], minute: datetime) -> int:
    found = list(parts.order_by("pk").select_for_update())
    if not found or (len(found) == 1 and found[0].minute == minute):
        return 0  # Another worker has done it.
    one = _merge(found)
    one.minute = minute
    one.save(using=database.alias())
    return _rows().filter(pk__in=[part.pk for part in found[1:]]).delete()[0]


def _merge(parts: Sequence[Rollup]) -> Rollup:
    first, *others = parts
    for other in others:
        for column in COLUMNS:
            setattr(first, column, getattr(first, column) + getattr(other, column))
        first.waited = [a + b for a, b in zip(first.waited, other.waited, strict=True)]
        first.ran = [a + b for a, b in zip(first.ran, other.ran, strict=True)]
    return first


def _rows() -> QuerySet[Rollup]:
    return Rollup.primary.all()

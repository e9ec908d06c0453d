"""Cursors of keyset pagination: where a page of jobs ends, and the next one begins.

An order is a tuple of field names, with "-" for descending; a cursor has the values of these fields
in one row. It stays valid when jobs are added and deleted.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final
from uuid import UUID

from django.db.models import F, Q, QuerySet, Value
from django.db.models.lookups import Exact, GreaterThan, LessThan

from django_ojs.models import Job
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage.dialects.expressions import Microseconds, Shortest

Order = tuple[str, ...]
Cursor = tuple[Any, ...]

_LOOKUPS: Final[dict[str, Callable[..., Any]]] = {
    "exact": Exact,
    "gt": GreaterThan,
    "lt": LessThan,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def of(job: Job, order: Order) -> Cursor:
    """Return the cursor at a job."""
    return tuple(getattr(job, name.removeprefix("-")) for name in order)


def rank(cursor: Cursor, order: Order) -> tuple[int, ...]:
    """Return a sort key that orders cursors as the database orders the jobs."""
    return tuple(
        -_number(value) if name.startswith("-") else _number(value)
        for name, value in zip(order, cursor, strict=True)
    )


def _number(value: Any) -> int:
    if isinstance(value, UUID):
        return value.int
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else int(value)


def beyond(found: QuerySet[Job], cursor: Cursor, order: Order) -> QuerySet[Job]:
    """Return the jobs after a cursor."""
    return _cut(found, cursor, order, "lt", "gt", last=False)


def until(found: QuerySet[Job], cursor: Cursor, order: Order) -> QuerySet[Job]:
    """Return the jobs up to a cursor, the one at the cursor included."""
    return _cut(found, cursor, order, "gt", "lt", last=True)


def _cut(
    found: QuerySet[Job], cursor: Cursor, order: Order, down: str, up: str, *, last: bool
) -> QuerySet[Job]:
    here = Q()
    wanted: list[Q] = []
    for name, value in zip(order, cursor, strict=True):
        field = name.removeprefix("-")
        lookup = down if name.startswith("-") else up
        if not wanted:
            # A separate condition, so that it bounds the range of the index.
            found = found.filter(**{f"{field}__{lookup}e": _outermost(value, lookup)})
        wanted.append(here & _compare(field, lookup, value))
        here &= _compare(field, "exact", value)
    if last:
        wanted.append(here)
    return found.filter(reduce(or_, wanted))


def _compare(field: str, lookup: str, value: Any) -> Q:
    if not isinstance(value, datetime):
        return Q(**{f"{field}__{lookup}": value})
    return Q(_LOOKUPS[lookup](Microseconds(F(field)), Microseconds(Value(value))))


def _outermost(value: Any, lookup: str) -> Any:
    if not isinstance(value, datetime):
        return value
    return Shortest(Value(value)) if lookup == "gt" else Microseconds(Value(value))


def write(cursor: Cursor) -> str:
    """Return a cursor as text, for a URL."""
    return "~".join(
        each.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")
        if isinstance(each, datetime)
        else str(each)
        for each in cursor
    )


def read(text: str, order: Order) -> Cursor:
    """Parse a cursor. Raises InvalidRequest for one that does not have this order."""
    parts = text.split("~")
    try:
        return tuple(_read(part, name) for part, name in zip(parts, order, strict=True))
    except (ValueError, OverflowError):
        raise InvalidRequest(
            "after must be the cursor of an earlier page.", details={"field": "after"}
        ) from None


def _read(part: str, name: str) -> Any:
    if not part.isascii() or len(part) > 40:
        raise ValueError
    if name.endswith("pk"):
        return UUID(part)
    if name.endswith("_at"):
        return datetime.strptime(part, "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    priority = int(part)
    if not -100 <= priority <= 100:
        raise ValueError
    return priority

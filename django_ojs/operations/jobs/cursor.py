"""Places in an order of jobs: where a page ends, and the next one begins.

An order is a tuple of field names, with "-" downwards; a place has a value for each of them. It
stays where it is when jobs come and go.
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
Place = tuple[Any, ...]

_LOOKUPS: Final[dict[str, Callable[..., Any]]] = {
    "exact": Exact,
    "gt": GreaterThan,
    "lt": LessThan,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def of(job: Job, order: Order) -> Place:
    """Return where a job is."""
    return tuple(getattr(job, name.removeprefix("-")) for name in order)


def rank(place: Place, order: Order) -> tuple[int, ...]:
    """Return what sorts places as the database sorts the jobs."""
    return tuple(
        -_number(value) if name.startswith("-") else _number(value)
        for name, value in zip(order, place, strict=True)
    )


def _number(value: Any) -> int:
    if isinstance(value, UUID):
        return value.int
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else int(value)


def beyond(found: QuerySet[Job], place: Place, order: Order) -> QuerySet[Job]:
    """Return the jobs that come after a place."""
    return _cut(found, place, order, "lt", "gt", last=False)


def until(found: QuerySet[Job], place: Place, order: Order) -> QuerySet[Job]:
    """Return the jobs up to a place, that at the place included."""
    return _cut(found, place, order, "gt", "lt", last=True)


def _cut(
    found: QuerySet[Job], place: Place, order: Order, down: str, up: str, *, last: bool
) -> QuerySet[Job]:
    here = Q()
    wanted: list[Q] = []
    for name, value in zip(order, place, strict=True):
        field = name.removeprefix("-")
        way = down if name.startswith("-") else up
        if not wanted:
            # Said by itself, so that the index begins or ends there.
            found = found.filter(**{f"{field}__{way}e": _outermost(value, way)})
        wanted.append(here & _compare(field, way, value))
        here &= _compare(field, "exact", value)
    if last:
        wanted.append(here)
    return found.filter(reduce(or_, wanted))


def _compare(field: str, way: str, value: Any) -> Q:
    if not isinstance(value, datetime):
        return Q(**{f"{field}__{way}": value})
    return Q(_LOOKUPS[way](Microseconds(F(field)), Microseconds(Value(value))))


def _outermost(value: Any, way: str) -> Any:
    if not isinstance(value, datetime):
        return value
    return Shortest(Value(value)) if way == "gt" else Microseconds(Value(value))


def write(place: Place) -> str:
    """Return a place as text, for an address."""
    return "~".join(
        each.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")
        if isinstance(each, datetime)
        else str(each)
        for each in place
    )


def read(text: str, order: Order) -> Place:
    """Return the place. Raises InvalidRequest for a text that was not written for this order."""
    parts = text.split("~")
    try:
        return tuple(_read(part, name) for part, name in zip(parts, order, strict=True))
    except (ValueError, OverflowError):
        raise InvalidRequest(
            "after must be where an earlier page ended.", details={"field": "after"}
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


__all__ = ["Order", "Place", "beyond", "of", "rank", "read", "until", "write"]

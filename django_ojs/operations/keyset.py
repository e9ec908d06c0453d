"""Pages of lists by keyset pagination: the rows after a cursor, or before it, in an order.

An order maps the columns of a list, with "-" for descending, to the types of their values; the last
column is unique. A cursor has the values of these columns in one row, so it stays valid when rows
are added and deleted. Its text is opaque to clients. The admin, the HTTP API and the command line
read their lists in this way, and a page that is asked for by number has an offset. Two lists have
no such order: the log of events, whose positions a reader keeps (`events.operations.log`), and jobs
that are sorted (`jobs.numbered_pages`).
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from django.db.models import F, Q, QuerySet, Value
from django.db.models.lookups import Exact, GreaterThan, LessThan

from django_ojs.spec import json, times
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.storage.dialects.expressions import Microseconds, Shortest

Order = Mapping[str, type]
Cursor = tuple[Any, ...]
#: A number of rows, and whether there are more, which were not counted.
Count = tuple[int, bool]
Row = TypeVar("Row")
Other = TypeVar("Other")

#: Rows are counted up to this number, which takes about 20 ms.
COUNT_LIMIT: Final = 10_000

_MAX_LENGTH: Final = 1_024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LOOKUPS: Final[dict[str, Callable[..., Any]]] = {
    "exact": Exact,
    "gt": GreaterThan,
    "lt": LessThan,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """The page that is asked for.

    `cursor` comes from an earlier page, and `offset` counts from there. With `backwards`, the page
    ends at the cursor, in the same order.
    """

    limit: int = 50
    cursor: str | None = None
    offset: int = 0
    backwards: bool = False

    def start(self, order: Order) -> Cursor | None:
        """Return the parsed cursor. Raises InvalidRequest."""
        return None if self.cursor is None else read(self.cursor, order)

    def order(self, order: Order) -> Order:
        """Return the order in which the rows are read."""
        return reverse(order) if self.backwards else order


FIRST_PAGE: Final = PageRequest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[Row]):
    """Rows of a list, and the cursors of the pages around them, or None if there is no such page.

    `scanned` is set if the page is not full because the scan ended after this many rows; more rows
    may match. `count` returns how many rows the list has.
    """

    rows: list[Row]
    count: Callable[[], Count]
    after: str | None = None
    before: str | None = None
    scanned: int | None = None

    @property
    def total(self) -> int:
        """How many rows the list has, as far as they are counted."""
        return self.count()[0]

    def showing(self, rows: list[Other]) -> "Page[Other]":
        """Return this page with these rows in place of its own."""
        return replace(self, rows=rows)  # type: ignore[return-value,arg-type]  # of other rows


def page(
    found: QuerySet[Any, Row],
    order: Order,
    wanted: PageRequest,
    *,
    among: QuerySet[Any, Any] | None = None,
    scan_limit: int = 0,
) -> Page[Row]:
    """Return a page of the rows of a query. Raises InvalidRequest for an invalid cursor.

    If `found` may have few rows, `among` has the rows that a scan reads to find them. The page then
    ends when the scan has read `scan_limit` rows.
    """
    rest, end = rest_of(found, order, wanted), None
    if among is not None:
        end = scan_end(rest_of(among, order, wanted), order, scan_limit)
        rest = rest if end is None else until(rest, end, wanted.order(order))
    rows = list(rest[wanted.offset : wanted.offset + wanted.limit + 1])
    return page_from(
        rows,
        order,
        wanted,
        count=lambda: count_up_to(found),
        end=end,
        scanned=None if end is None else scan_limit,
    )


def page_from(
    rows: list[Row],
    order: Order,
    wanted: PageRequest,
    *,
    count: Callable[[], Count],
    end: Cursor | None = None,
    scanned: int | None = None,
) -> Page[Row]:
    """Return a page of rows in the order in which they were read.

    More rows follow if there are more than the page can hold, or if their scan has an `end`.
    """
    if len(rows) > wanted.limit:
        rows, scanned = rows[: wanted.limit], None
        end = at(rows[-1], order) if rows else None
    if wanted.backwards:
        rows = rows[::-1]
        before, after = end, at(rows[-1], order) if rows else None
    else:
        after, before = end, at(rows[0], order) if rows and wanted.cursor is not None else None
    return Page(
        rows=rows,
        count=count,
        after=None if after is None else write(after),
        before=None if before is None else write(before),
        scanned=scanned,
    )


def page_of_all(rows: Sequence[Row], order: Order, wanted: PageRequest) -> Page[Row]:
    """Return a page of a list that is read whole, in an ascending order."""
    start, back = wanted.start(order), wanted.backwards
    rest = [
        row
        for row in (reversed(rows) if back else rows)
        if start is None or (at(row, order) < start if back else at(row, order) > start)
    ]
    shown = rest[wanted.offset : wanted.offset + wanted.limit + 1]
    return page_from(shown, order, wanted, count=lambda: (len(rows), False))


def all_rows(read_page: Callable[[PageRequest], Page[Row]], size: int) -> Iterator[Row]:
    """Yield the rows of all pages, each of which is read when it is needed."""
    wanted = PageRequest(limit=size)
    while True:
        found = read_page(wanted)
        yield from found.rows
        if found.after is None:
            return
        wanted = replace(wanted, cursor=found.after)


def rest_of(found: QuerySet[Any, Row], order: Order, wanted: PageRequest) -> QuerySet[Any, Row]:
    """Return the rows after the cursor, in the order in which they are read."""
    start, order = wanted.start(order), wanted.order(order)
    rest = found.order_by(*order)
    return rest if start is None else _cut(rest, start, order, "lt", "gt", last=False)


def scan_end(rest: QuerySet[Any, Any], order: Order, limit: int) -> Cursor | None:
    """Return the cursor at the last row that a scan reads, or None if there are fewer rows.

    On an index, this is an index-only scan of at most `limit` entries, so its cost is bounded.
    """
    return next(iter(rest.values_list(*columns(order))[limit - 1 : limit]), None)


def until(found: QuerySet[Any, Row], cursor: Cursor, order: Order) -> QuerySet[Any, Row]:
    """Return the rows up to a cursor, including the row at the cursor."""
    return _cut(found, cursor, order, "gt", "lt", last=True)


def count_up_to(found: QuerySet[Any, Any], limit: int | None = None) -> Count:
    """Return how many rows there are, counted up to `limit`, and whether there are more."""
    limit = limit or COUNT_LIMIT
    seen = found.order_by()[: limit + 1].count()
    return min(seen, limit), seen > limit


def reverse(order: Order) -> Order:
    """Return the opposite order."""
    return {name[1:] if name.startswith("-") else f"-{name}": kind for name, kind in order.items()}


def columns(order: Order) -> list[str]:
    """Return the names of the columns of an order."""
    return [name.removeprefix("-") for name in order]


def at(row: Any, order: Order) -> Cursor:
    """Return the cursor at a row. A row that is a text is its own column."""
    return (row,) if isinstance(row, str) else tuple(getattr(row, name) for name in columns(order))


def rank(cursor: Cursor, order: Order) -> tuple[int, ...]:
    """Return a sort key that orders cursors as the database orders the rows."""
    return tuple(
        -_number(value) if name.startswith("-") else _number(value)
        for name, value in zip(order, cursor, strict=True)
    )


def _number(value: Any) -> int:
    if isinstance(value, UUID):
        return value.int
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else int(value)


def write(cursor: Cursor) -> str:
    """Return the text of a cursor, which a URL can hold as it is."""
    text = json.dumps([_plain(value) for value in cursor])
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def read(text: str, order: Order) -> Cursor:
    """Parse the text of a cursor. Raises InvalidRequest for a cursor of another order."""
    try:
        if len(text) > _MAX_LENGTH:
            raise ValueError
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        parts = json.loads(base64.b64decode(padded, b"-_", validate=True))
        if not isinstance(parts, list):
            raise ValueError
        return tuple(_value(part, kind) for part, kind in zip(parts, order.values(), strict=True))
    except (ValueError, OJSError):
        raise InvalidRequest.of("cursor", "must be a next_cursor of this list") from None


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _value(part: Any, kind: type) -> Any:
    if isinstance(part, str):
        if kind is UUID:
            return UUID(part)
        if kind is datetime:
            return times.parse_timestamp(part, "cursor")
        if kind is str and part.isprintable():
            return part
    elif isinstance(part, int) and kind is int and not isinstance(part, bool):
        return part
    raise ValueError


def _cut(
    found: QuerySet[Any, Row], cursor: Cursor, order: Order, down: str, up: str, *, last: bool
) -> QuerySet[Any, Row]:
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

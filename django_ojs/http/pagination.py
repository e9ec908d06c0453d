"""Pages of lists: by limit and cursor or offset (http-binding §17), or by number (admin-api §4).

A cursor is opaque to clients: it encodes the sort key of the last item of a page.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django_ojs.http import fields
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload, InvalidRequest

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
#: The database reads all rows before an offset; pages further on need a cursor.
MAX_OFFSET: Final = 10_000

DEFAULT_PER_PAGE: Final = 20
MAX_PER_PAGE: Final = 100
MAX_PAGE: Final = 1_000_000

_MAX_CURSOR_LENGTH: Final = 1_024
_MAX_INTEGER: Final = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class CursorPage:
    """The page that a request of the data plane names. `cursor` has the decoded values."""

    limit: int
    offset: int
    cursor: tuple[Any, ...] | None
    #: The number of the page, if the request names it so.
    number: int | None = None

    def describe(
        self, *, total: int, has_more: bool, end: Sequence[Any] | None, capped: bool = False
    ) -> dict[str, Any]:
        """Return the `pagination` of a response. `end` is the key of the last item of the page.

        `capped`: there are more than `total`, where the count stopped.
        """
        out: dict[str, Any] = {
            "total": total,
            "limit": self.limit,
            "offset": self.offset,
            "has_more": has_more,
        }
        if self.number is not None:
            out |= {"page": self.number, "per_page": self.limit}
        if has_more and end is not None:
            out["next_cursor"] = encode(end)
        if capped:
            out["total_capped"] = True
        return out


def cursor_page(query: Mapping[str, str], *types: type) -> CursorPage:
    """Read `limit`, `offset` and `cursor`, whose values have these types.

    A limit over 200 is 200. With a cursor the offset counts from there. Clients that know the
    control plane alone send `page` and `per_page`. Raises InvalidRequest.
    """
    limit = read_limit(query, default=DEFAULT_LIMIT, maximum=MAX_LIMIT)
    number, offset = read_offset(query, limit, "next_cursor")
    given = query.get("cursor", "")
    return CursorPage(
        limit=limit,
        offset=offset,
        cursor=decode(given, *types) if given else None,
        number=number,
    )


def read_limit(
    query: Mapping[str, str],
    *,
    default: int,
    maximum: int,
    names: tuple[str, str] = ("limit", "per_page"),
) -> int:
    """Read the largest number of items, by the first of its names that has one."""
    name = next((name for name in names if query.get(name)), names[0])
    return fields.query_integer(query, name, default=default, minimum=1, maximum=maximum)


def read_offset(query: Mapping[str, str], limit: int, go_on: str) -> tuple[int | None, int]:
    """Read the number of a page, if the request has one, and how many items are before the page.

    `go_on` is what a client needs for pages that are further on. Raises InvalidRequest.
    """
    if not query.get("page") and not query.get("per_page"):
        offset = fields.query_integer(query, "offset", default=0, maximum=_MAX_INTEGER)
        if offset > MAX_OFFSET:
            raise InvalidRequest.of("offset", f"must be at most {MAX_OFFSET}: go on with {go_on}")
        return None, offset
    number = fields.query_integer(query, "page", default=1, minimum=1, maximum=_MAX_INTEGER)
    offset = (number - 1) * limit
    if offset > MAX_OFFSET:
        rule = f"must begin after at most {MAX_OFFSET} items: go on with {go_on}"
        raise InvalidRequest.of("page", rule)
    return number, offset


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedPage:
    """The page that a request of the control plane names; the first is 1."""

    page: int
    per_page: int

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.per_page

    def describe(self, *, total: int, capped: bool = False) -> dict[str, Any]:
        """Return the `pagination` of a response; `capped` as in CursorPage."""
        out: dict[str, Any] = {"total": total, "page": self.page, "per_page": self.per_page}
        if capped:
            out["total_capped"] = True
        return out


def numbered_page(query: Mapping[str, str]) -> NumberedPage:
    """Read `page` and `per_page`, which is at most 100. Raises InvalidRequest.

    Clients that know the data plane alone send `limit` and `offset`.
    """
    per_page = read_limit(
        query, default=DEFAULT_PER_PAGE, maximum=MAX_PER_PAGE, names=("per_page", "limit")
    )
    page = fields.query_integer(query, "page", default=1, minimum=1, maximum=_MAX_INTEGER)
    if page > MAX_PAGE:
        raise InvalidRequest.of("page", f"must be at most {MAX_PAGE}")
    offset = fields.query_integer(query, "offset", default=0, maximum=_MAX_INTEGER)
    if offset and not query.get("page"):
        page, rest = offset // per_page + 1, offset % per_page
        if rest:
            raise InvalidRequest.of("offset", "must be a multiple of limit: it stands for a page")
    return NumberedPage(page=page, per_page=per_page)


def encode(values: Sequence[Any]) -> str:
    """Return the cursor of these JSON values."""
    return base64.urlsafe_b64encode(json.dumps(list(values)).encode()).rstrip(b"=").decode()


def decode(cursor: str, *types: type) -> tuple[Any, ...]:
    """Return the values of a cursor, which must have these types. Raises InvalidRequest."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, InvalidPayload):
        values = None
    if (
        len(cursor) > _MAX_CURSOR_LENGTH
        or not isinstance(values, list)
        or [type(value) for value in values] != list(types)
    ):
        raise InvalidRequest.of("cursor", "must be a next_cursor of this list")
    return tuple(values)

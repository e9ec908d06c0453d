"""Pages of lists: by limit and cursor or offset (http-binding §17), or by number (admin-api §4).

A cursor says where a page ended. Clients send it back as it came; what it holds is ours.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django_ojs.http import fields
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
#: Whoever wants what lies further behind goes by cursors: an offset is walked through, each time.
MAX_OFFSET: Final = 10_000

DEFAULT_PER_PAGE: Final = 20
MAX_PER_PAGE: Final = 100
MAX_PAGE: Final = 1_000_000

_LONGEST_CURSOR: Final = 1_024
_LARGEST: Final = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """What a request asks for on the data plane. `cursor`: the values in it, None without one."""

    limit: int
    offset: int
    cursor: tuple[Any, ...] | None

    def describe(
        self, *, total: int, has_more: bool, end: Sequence[Any] | None, capped: bool = False
    ) -> dict[str, Any]:
        """Return the `pagination` of an answer. `end` is what the next page begins after.

        `capped` says that there are more than `total`, which is as far as was counted.
        """
        out: dict[str, Any] = {
            "total": total,
            "limit": self.limit,
            "offset": self.offset,
            "has_more": has_more,
        }
        if has_more and end is not None:
            out["next_cursor"] = encode(end)
        if capped:
            out["total_capped"] = True
        return out


def window(query: Mapping[str, str], *shape: type) -> Window:
    """Read `limit`, `offset` and `cursor`; `shape` are the types of a cursor's values.

    A limit over 200 is 200. With a cursor the offset counts from there. Raises InvalidRequest.
    """
    offset = fields.query_integer(query, "offset", default=0, maximum=_LARGEST)
    if offset > MAX_OFFSET:
        raise fields.refuse("offset", f"must be at most {MAX_OFFSET}: go on with next_cursor")
    given = query.get("cursor", "")
    return Window(
        limit=fields.query_integer(
            query, "limit", default=DEFAULT_LIMIT, minimum=1, maximum=MAX_LIMIT
        ),
        offset=offset,
        cursor=decode(given, *shape) if given else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedPage:
    """What a request asks for on the control plane; pages count from 1."""

    page: int
    per_page: int

    @property
    def offset(self) -> int:
        """How many entries come before the page."""
        return (self.page - 1) * self.per_page

    def describe(self, *, total: int, capped: bool = False) -> dict[str, Any]:
        """Return the `pagination` of an answer; `capped` as on the data plane."""
        out: dict[str, Any] = {"total": total, "page": self.page, "per_page": self.per_page}
        if capped:
            out["total_capped"] = True
        return out


def numbered(query: Mapping[str, str]) -> NumberedPage:
    """Read `page` and `per_page`; more than 100 a page is 100. Raises InvalidRequest."""
    page = fields.query_integer(query, "page", default=1, minimum=1, maximum=_LARGEST)
    if page > MAX_PAGE:
        raise fields.refuse("page", f"must be at most {MAX_PAGE}")
    per_page = fields.query_integer(
        query, "per_page", default=DEFAULT_PER_PAGE, minimum=1, maximum=MAX_PER_PAGE
    )
    return NumberedPage(page=page, per_page=per_page)


def encode(values: Sequence[Any]) -> str:
    """Return values of JSON as a cursor."""
    return base64.urlsafe_b64encode(json.dumps(list(values)).encode()).rstrip(b"=").decode()


def decode(cursor: str, *shape: type) -> tuple[Any, ...]:
    """Return the values of a cursor whose types are these. Raises InvalidRequest."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, InvalidPayload):
        values = None
    if (
        len(cursor) > _LONGEST_CURSOR
        or not isinstance(values, list)
        or [type(value) for value in values] != list(shape)
    ):
        raise fields.refuse("cursor", "must be a next_cursor of this list")
    return tuple(values)

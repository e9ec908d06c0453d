"""Pages of lists: by limit and cursor or offset (http-binding §17), or by number (admin-api §4)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django_ojs.http import fields
from django_ojs.operations.keyset import Count, Page, PageRequest, Row
from django_ojs.spec.errors import InvalidRequest

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
#: The database reads all rows before an offset, so later pages need a cursor.
MAX_OFFSET: Final = 10_000

DEFAULT_PER_PAGE: Final = 20
MAX_PER_PAGE: Final = 100
MAX_PAGE: Final = 1_000_000

_MAX_INTEGER: Final = 10**9


def cursor_page(query: Mapping[str, str]) -> PageRequest:
    """Read `limit`, `offset` and `cursor`.

    A limit over 200 counts as 200. With a cursor, the offset counts from the cursor. Clients that
    know only the control plane send `page` and `per_page`. Raises InvalidRequest.
    """
    limit = read_limit(query, default=DEFAULT_LIMIT, maximum=MAX_LIMIT)
    offset = read_offset(query, limit, "next_cursor")
    return PageRequest(limit=limit, offset=offset, cursor=query.get("cursor") or None)


def listed(
    query: Mapping[str, str],
    name: str,
    read: Callable[[PageRequest], Page[Row]],
    render: Callable[[Row], Any],
) -> dict[str, Any]:
    """Return the response of a list of the data plane: the page that the query asks for.

    Raises InvalidRequest.
    """
    wanted = cursor_page(query)
    page = read(wanted)
    shown = [render(row) for row in page.rows]
    return {name: shown, "pagination": _described(query, wanted, page)}


def _described(query: Mapping[str, str], wanted: PageRequest, page: Page[Any]) -> dict[str, Any]:
    total, capped = page.count()
    out: dict[str, Any] = {
        "total": total,
        "limit": wanted.limit,
        "offset": wanted.offset,
        "has_more": page.after is not None,
    }
    if _is_by_number(query):
        out |= {"page": wanted.offset // wanted.limit + 1, "per_page": wanted.limit}
    if page.after is not None:
        out["next_cursor"] = page.after
    if capped:
        out["total_capped"] = True
    return out


def read_limit(
    query: Mapping[str, str],
    *,
    default: int,
    maximum: int,
    names: tuple[str, str] = ("limit", "per_page"),
) -> int:
    """Read how many items a page may have, from the first of `names` that the query has."""
    name = next((name for name in names if query.get(name)), names[0])
    return fields.query_integer(query, name, default=default, minimum=1, maximum=maximum)


def read_offset(query: Mapping[str, str], limit: int, go_on: str) -> int:
    """Read how many items are before the page, which may be given by its number.

    `go_on` names the parameter that reaches later pages, for the error. Raises InvalidRequest.
    """
    if not query.get("page"):
        offset = fields.query_integer(query, "offset", default=0, maximum=_MAX_INTEGER)
        if offset > MAX_OFFSET:
            raise InvalidRequest.of("offset", f"must be at most {MAX_OFFSET}: go on with {go_on}")
        return offset
    number = fields.query_integer(query, "page", default=1, minimum=1, maximum=_MAX_INTEGER)
    offset = (number - 1) * limit
    if offset > MAX_OFFSET:
        rule = f"must begin after at most {MAX_OFFSET} items: go on with {go_on}"
        raise InvalidRequest.of("page", rule)
    return offset


def _is_by_number(query: Mapping[str, str]) -> bool:
    return bool(query.get("page") or query.get("per_page"))


def numbered_page(query: Mapping[str, str]) -> PageRequest:
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
    return PageRequest(limit=per_page, offset=(page - 1) * per_page)


def numbered(wanted: PageRequest, count: Count) -> dict[str, Any]:
    """Return the `pagination` of a response of the control plane."""
    total, capped = count
    page = wanted.offset // wanted.limit + 1
    out: dict[str, Any] = {"total": total, "page": page, "per_page": wanted.limit}
    if capped:
        out["total_capped"] = True
    return out

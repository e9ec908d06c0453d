"""Pages of both planes, and cursors that hold what they were given."""

from __future__ import annotations

import pytest

from django_ojs.http.pagination import cursor_page, decode, encode, numbered_page
from django_ojs.spec.errors import InvalidRequest


def test_a_cursor_gives_back_what_was_put_in() -> None:
    for values in (["a"], ["ä/?+=", 5], ["2026-01-01T00:00:00.123456+00:00", "x" * 300]):
        cursor = encode(values)
        assert decode(cursor, *map(type, values)) == tuple(values)
        assert all(letter.isalnum() or letter in "-_" for letter in cursor)


@pytest.mark.parametrize("cursor", [encode([True]), encode([1, 2]), encode(["a"]), encode([])])
def test_a_cursor_of_another_list_is_rejected(cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="next_cursor of this list"):
        decode(cursor, int)


def test_the_control_plane_counts_pages_from_one() -> None:
    first = numbered_page({})
    assert (first.page, first.per_page, first.offset) == (1, 20, 0)
    page = numbered_page({"page": "3", "per_page": "1000"})
    assert (page.per_page, page.offset) == (100, 200)
    assert page.describe(total=7) == {"total": 7, "page": 3, "per_page": 100}
    assert page.describe(total=7, capped=True)["total_capped"] is True


@pytest.mark.parametrize("query", [{"page": "0"}, {"page": "1000001"}, {"per_page": "0"}])
def test_a_page_that_cannot_be_is_rejected(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        numbered_page(query)
    assert caught.value.details["field"] in query


def test_more_than_the_most_a_page_may_have_is_the_most() -> None:
    assert (cursor_page({"limit": "200"}).limit, cursor_page({"limit": "100000"}).limit) == (
        200,
        200,
    )


def test_empty_parameters_are_parameters_that_are_left_out() -> None:
    found = cursor_page({"limit": "", "offset": "", "cursor": ""}, str)
    assert (found.limit, found.offset, found.cursor) == (50, 0, None)

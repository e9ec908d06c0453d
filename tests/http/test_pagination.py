"""The pages that requests of both planes ask for."""

from __future__ import annotations

import pytest

from django_ojs.http.pagination import cursor_page, numbered, numbered_page
from django_ojs.spec.errors import InvalidRequest


def test_the_control_plane_counts_pages_from_one() -> None:
    first = numbered_page({})
    assert (first.limit, first.offset) == (20, 0)
    page = numbered_page({"page": "3", "per_page": "1000"})
    assert (page.limit, page.offset) == (100, 200)
    assert numbered(page, (7, False)) == {"total": 7, "page": 3, "per_page": 100}
    assert numbered(page, (7, True))["total_capped"] is True


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
    found = cursor_page({"limit": "", "offset": "", "cursor": ""})
    assert (found.limit, found.offset, found.cursor) == (50, 0, None)


def test_an_offset_counts_beside_a_number_of_items_by_either_name() -> None:
    assert cursor_page({"per_page": "10", "offset": "20"}).offset == 20
    assert cursor_page({"limit": "10", "offset": "20"}).offset == 20
    assert cursor_page({"per_page": "10", "page": "2", "offset": "20"}).offset == 10

"""Searches that a user saves under a name, and finds again."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_ojs.admin import saved_searches
from django_ojs.models import SavedSearch
from tests.admin.markup import HOSTILE, structure
from tests.admin.test_jobs import LIST, text
from tests.admin.users import VIEW, root, staff

pytestmark = [pytest.mark.django_db, pytest.mark.once]

ADDRESS = f"{LIST}saved/"


def post(client: Client, **values: str) -> Any:
    return client.post(ADDRESS, {"next": LIST} | values, follow=True)


def saved() -> list[tuple[str, str]]:
    return list(SavedSearch.objects.order_by("name", "pk").values_list("name", "query"))


def test_a_search_is_saved_found_replaced_and_deleted_by_a_user_who_may_see_jobs() -> None:
    client = staff(*VIEW)
    assert "Saved searches" not in text(client)
    assert "Save this search as" in text(client, q="state:active")
    post(client, name="Slow mail", q="queue:mail ran:>10s")
    page = text(client)
    assert 'href="?q=queue%3Amail+ran%3A%3E10s">Slow mail</a>' in page
    assert "Save this search as" not in page
    post(client, name="Slow mail", q="queue:mail ran:>1m")
    assert saved() == [("Slow mail", "queue:mail ran:>1m")]
    post(client, delete="Slow mail")
    assert saved() == []


def test_the_searches_of_a_user_are_those_of_the_user_alone() -> None:
    ann, bob = staff(*VIEW), staff(*VIEW, name="bob")
    post(ann, name="mine", q="state:active")
    post(bob, name="mine", q="is:dead")
    assert saved() == [("mine", "state:active"), ("mine", "is:dead")]
    post(bob, delete="mine")
    assert saved() == [("mine", "state:active")]
    assert "mine</a>" not in text(bob)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": "x", "q": "state:failed"}, "Did you mean discarded?"),
        ({"name": "", "q": "is:dead"}, "required"),
        ({"name": "x" * 101, "q": "is:dead"}, "at most 100"),
        ({"name": "x\0", "q": "is:dead"}, "Null characters"),
        ({"name": "x"}, "required"),
    ],
)
def test_what_cannot_be_saved_is_said(values: dict[str, str], problem: str) -> None:
    response = post(root(), **values)
    assert problem in response.content.decode()
    assert saved() == []


def test_a_user_has_a_bounded_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_searches, "MAX_SAVED", 2)
    client = root()
    for n in range(3):
        page = post(client, name=f"n{n}", q="is:dead").content.decode()
    assert "Not saved: you have 2 searches." in page
    assert len(saved()) == 2


def test_it_needs_the_permission_to_see_jobs_and_a_post() -> None:
    assert staff("view_queue").post(ADDRESS, {"name": "x", "q": "is:dead"}).status_code == 403
    assert root().get(ADDRESS).status_code == 405
    assert (
        staff(*VIEW, csrf=True, name="eve").post(ADDRESS, {"name": "x", "q": "is:dead"}).status_code
        == 403
    )
    assert saved() == []


@pytest.mark.once
def test_a_name_changes_nothing_of_the_structure() -> None:
    tags = set()
    for n, name in enumerate(("harmless", *HOSTILE)):
        client = root(name=f"u{n}")
        post(client, name=name[:100], q=f'error:"{n}"')
        read = structure(client.get(LIST).content.decode())
        assert read.forbidden == []
        tags.add(tuple(read.tags))
    assert len(tags) == 1


def test_a_deletion_of_a_name_that_cannot_be_one_changes_nothing() -> None:
    assert post(root(), delete="\0").status_code == 200

"""A search that finds a job reveals its payload, so it needs the permission to see payloads."""

from __future__ import annotations

from html import unescape
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.test import Client, override_settings

from django_ojs.models import BulkOperation
from django_ojs.operations import fail
from django_ojs.spec.failure import Failure
from tests.admin.users import VIEW, root, staff
from tests.cases import together
from tests.factories import active, push

pytestmark = [pytest.mark.django_db, pytest.mark.once]

JOBS = "/admin/django_ojs/job/"
BULK = "/admin/django_ojs/bulkoperation/create/"
SECRET = [{"card": {"number": 4111111111111111}, "order": 7}]


def finds(client: Client, search: str, job_id: object) -> bool:
    response = client.get(JOBS, {"q": search})
    assert response.status_code == 200
    return f"{job_id}/change/" in response.content.decode()


def says(client: Client, search: str) -> str:
    return unescape(client.get(JOBS, {"q": search}).content.decode())


def failed_job(**values: Any) -> UUID:
    claimed = active(**values)
    fail.fail(claimed.id, Failure(type="Boom", message="only dust is left"))
    return claimed.id


@pytest.mark.parametrize(
    "search",
    [
        "args.card.number:4111111111111111",
        "args.0.card.number:4111111111111111",
        "meta.tenant:acme",
        "error:dust",
    ],
)
def test_a_search_in_what_jobs_carry_is_for_those_who_may_see_it(search: str) -> None:
    failed = failed_job(args=SECRET, meta={"tenant": "acme"})
    other = push(args=[{"card": {"number": 5}}], meta={"tenant": "other"})
    assert finds(root(), search, failed)
    assert not finds(root("second"), search, other.pk)
    blind = staff(*VIEW)
    # Neither is found, so that the two jobs cannot be distinguished, and the page says why.
    assert not finds(blind, search, failed)
    assert not finds(blind, search, other.pk)
    assert "You need the permission to see payloads to search" in says(blind, search)
    assert "All matching:" not in says(blind, search)


@pytest.mark.parametrize("search", ["args.card.number:4111111111111111", "error:dust"])
def test_nothing_is_ordered_for_a_search_that_is_not_allowed(search: str) -> None:
    push(args=SECRET)
    operator = staff(*VIEW, "operate_job")
    address = f"{BULK}cancel/?{urlencode({'q': search})}"
    assert root().get(address).status_code == 200
    assert operator.get(address).status_code == 302
    assert operator.post(f"{BULK}cancel/", {"q": search}).status_code == 302
    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize("search", ["args.card.number:4111111111111111", "error:dust"])
def test_the_history_of_an_operation_hides_what_its_page_hides(search: str) -> None:
    push(args=SECRET)
    assert root().post(f"{BULK}cancel/", {"q": search}).status_code == 302
    operation = BulkOperation.objects.get()
    client = staff(*VIEW)
    secret = search.partition(":")[2]
    for page in ("change", "history"):
        shown = client.get(f"/admin/django_ojs/bulkoperation/{operation.pk}/{page}/")
        assert shown.status_code == 200
        assert secret not in shown.content.decode()
    assert "bulk.ordered" in shown.content.decode()


@together(
    ("redact", "search", "hidden"),
    [
        ("card", "args.card.number:4111111111111111", True),
        ("NUMBER", "args.card.number:4111111111111111", True),
        ("*", "args.order:7", True),
        ("card", "args.order:7", False),
        ("message", "error:dust", True),
        ("card", "error:dust", False),
    ],
    undo=True,
)
def test_nobody_searches_in_what_the_settings_hide(redact: str, search: str, hidden: bool) -> None:
    job = failed_job(args=SECRET)
    other = push()
    with override_settings(OJS={"ADMIN_REDACT": [redact]}):
        client = root()
        assert finds(client, search, job) is not hidden
        assert not finds(client, search, other.pk)
        assert ("so it cannot be searched" in says(client, search)) is hidden

"""A search that its page cuts off goes on in the background: started, followed, stopped, read."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import Client, override_settings
from django.utils import translation

from django_ojs.models import AuditEntry, BulkOperation
from django_ojs.operations import delete
from django_ojs.operations.jobs import background_search, bulk_execution, bulk_operations, listing
from tests.admin.users import VIEW, root, staff
from tests.factories import MINUTE, age, jobs, push, push_many

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = "/admin/django_ojs/job/"
BULK = "/admin/django_ojs/bulkoperation/"
OFFER = "Search all jobs in the background"


@pytest.fixture(autouse=True)
def three_jobs_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {**(listing.list_jobs.__kwdefaults__ or {}), "scan_limit": 3}
    monkeypatch.setattr(listing.list_jobs, "__kwdefaults__", defaults)


def text(client: Client, address: str, **query: str) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def start(client: Client, search: str) -> str:
    response = client.post(f"{BULK}search/", {"q": search, "next": f"{LIST}?q=back"})
    assert response.status_code == 302
    return str(response["Location"])


def test_it_is_followed_to_its_end_by_whoever_may_see_jobs() -> None:
    wanted = push(queue="mail", type="mail.send", tags=["rare"], args=[{"user_id": 42}])
    push_many(9, queue="mail")
    age(jobs().values_list("pk", flat=True), MINUTE)
    client = staff(*VIEW)
    # A list that is not cut off offers nothing more, and neither does the list of all jobs.
    for search in ("", "queue:mail state:available", "id:" + str(wanted.pk)):
        assert OFFER not in text(client, LIST, q=search)
    page = text(client, LIST, q="tag:rare")
    assert "None of these 3 jobs matches" in page
    assert "Search older jobs" in page
    assert OFFER in page
    address = start(client, "tag:rare")
    page = text(client, address)
    assert "waiting" in page
    assert "0 of about 10 jobs read" in page
    assert "No job found so far." in page
    assert "data-ojs-refresh" in page
    # Another click leads to the same page.
    assert start(client, "tag:rare") == address

    bulk_execution.work_once(scan_limit=4)
    page = text(client, address)
    assert "4 of about 10 jobs read" in page
    assert "40 % done" in page
    while bulk_execution.work_once(scan_limit=4) is not None:
        pass
    page = text(client, address)
    assert "✓ done" in page
    assert "10 jobs read" in page
    assert f"{LIST}{wanted.pk}/change/" in page
    assert "mail.send" in page
    assert "user_id" not in page
    # A viewer changes nothing; an operator goes on with all that match.
    assert "bulkoperation/create" not in page
    page = text(root(), address)
    assert "user_id" in page
    assert "Cancel all matching" in page
    assert "1 found" in text(client, BULK)
    assert not AuditEntry.primary.exists()

    delete.erase([wanted.pk])
    assert "The jobs found here have been deleted since." in text(client, address)
    nothing = start(client, "tag:none")
    while bulk_execution.work_once() is not None:
        pass
    page = text(client, nothing)
    assert "No job matches. Search in any state · All jobs" in re.sub(r"<[^>]*>", "", page)
    assert "Search again" in page


def test_its_pages_follow_each_other_and_a_full_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_operations, "MAX_FOLLOWED", 60)
    made = [str(job.pk) for job in push_many(70, queue="mail", tags=["vip"])]
    age(jobs().values_list("pk", flat=True), MINUTE)
    client = root()
    address = start(client, "tag:vip")
    while bulk_execution.work_once() is not None:
        pass
    page = text(client, address)
    assert "The search ended at 60 jobs found." in page
    seen = re.findall(rf"{LIST}([0-9a-f-]{{36}})/change/", page)
    following = re.search(r'href="(\?after=\d+)">Next', page)
    assert following is not None
    page = text(client, address + following[1])
    seen += re.findall(rf"{LIST}([0-9a-f-]{{36}})/change/", page)
    assert seen == made[:-61:-1]
    assert ">Next" not in page
    for wrong in ("x", "-1", "9" * 30, "½"):
        assert client.get(address, {"after": wrong}).status_code == 200


def test_it_is_stopped_by_its_user_or_an_operator() -> None:
    push(queue="mail")
    ann, bob = staff(*VIEW, name="ann"), staff(*VIEW, name="bob")
    operator = staff(*VIEW, "operate_job", name="oscar")
    blind = staff(name="blind")
    assert blind.post(f"{BULK}search/", {"q": "tag:a"}).status_code == 403
    assert not BulkOperation.objects.exists()
    for client, status in ((bob, 403), (blind, 403), (ann, 302), (operator, 302)):
        address = start(ann, "tag:a")
        key = address.split("/")[-3]
        page = text(ann, address)
        assert "search/stop/" in page
        assert (
            "search/stop/" in text(operator, address),
            "search/stop/" in text(bob, address),
        ) == (
            True,
            False,
        )
        assert client.get(f"{BULK}search/stop/").status_code in (403, 405)
        assert client.post(f"{BULK}search/stop/", {"key": key}).status_code == status
        stopped = bulk_operations.get(int(key)).state == "stopped"
        assert stopped is (status == 302)
    assert "No job was found before the search was stopped." in text(ann, address)
    for key in ("", "0", "x", "9" * 30):
        assert ann.post(f"{BULK}search/stop/", {"key": key}).status_code == 404
    for count in range(background_search.MAX_OPEN + 1):
        back = start(ann, f"tag:{count}")
    assert back == f"{LIST}?q=back"
    assert "You have 3 searches that have not ended." in text(ann, LIST)
    for search in ("", "colour:red"):
        assert start(ann, search) == f"{LIST}?q=back"


def test_one_that_fails_says_so_in_the_language_of_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push(queue="mail")
    client = root()
    address = start(client, "tag:a")

    def fails(*_args: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(bulk_execution, "_move", fails)
    bulk_execution.work_once()
    assert "an error; see the log" in text(client, address)
    with translation.override("de"):
        assert "ein Fehler; siehe das Log" in text(client, address)


def test_what_jobs_carry_is_searched_and_its_results_seen_with_the_permission_only() -> None:
    wanted = push(queue="mail", args=[{"card": 4111111111111111}])
    push_many(9, queue="mail")
    age(jobs().values_list("pk", flat=True), MINUTE)
    seeing = staff(*VIEW, "view_payload_job", name="seeing")
    blind = staff(*VIEW, "operate_job", name="blind")
    assert start(blind, "args.card:4111111111111111") == f"{LIST}?q=back"
    assert "You need the permission to see payloads" in text(blind, LIST)
    assert not BulkOperation.objects.exists()
    address = start(seeing, "args.card:4111111111111111")
    while bulk_execution.work_once() is not None:
        pass
    assert str(wanted.pk) in text(seeing, address)
    assert "args.card:4111111111111111" in text(seeing, BULK)
    assert "1 found" in text(seeing, BULK)
    # Neither the jobs, nor how many, nor the words of the search; nor by the list of jobs.
    for page in (text(blind, address), text(blind, BULK)):
        assert "You need the permission to see payloads" in page
        assert str(wanted.pk) not in page
        assert "4111111111111111" not in page
        assert "1 found" not in page
    found = text(blind, LIST, q=f"retried_by:{address.split('/')[-3]}")
    assert f"{wanted.pk}/change" not in found
    with override_settings(OJS={"ADMIN_REDACT": ["card"]}):
        assert str(wanted.pk) not in text(seeing, address)

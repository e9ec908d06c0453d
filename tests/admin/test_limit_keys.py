"""Limit keys in the admin: what is at its limit and why, overrides, and pauses."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs.models import AuditEntry, LimitKey
from django_ojs.operations import fail, fetch, limits
from django_ojs.operations.beat import Registration
from django_ojs.spec.failure import Failure
from django_ojs.spec.times import format_timestamp
from tests.admin.users import root, staff
from tests.factories import WORKER, jobs, push, worker

pytestmark = pytest.mark.django_db

LIST = "/admin/django_ojs/limitkey/"


def page_of(key: str) -> str:
    return f"{LIST}{key.replace(':', '_3A')}/change/"


def add(key: str, number: int = 1, **policy: Any) -> None:
    for _ in range(number):
        push(queue="carrier", rate_limit={"key": key, **policy})


def claim() -> list[Any]:
    return fetch.fetch(["carrier"], count=100, worker_id=WORKER)


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.fixture
def busy() -> None:
    """A key at its limit, one that is paused, and one that has room."""
    add("customer:7", number=4, concurrency=2)
    add("api", number=2, rate={"limit": 50, "period": "PT1H"})
    add("free", concurrency=9)
    until = format_timestamp(timezone.now() + timedelta(hours=1))
    failed = next(job for job in claim() if job.options["rate_limit"]["key"] == "api")
    fail.fail(failed.id, Failure.parse({"type": "Busy", "rate_limit_until": until}))
    add("api", rate={"limit": 50, "period": "PT1H"})


@pytest.mark.usefixtures("busy")
def test_the_list_says_what_is_at_its_limit_and_why() -> None:
    client = staff("view_limitkey")
    page = text(client, LIST)
    for shown in ("customer:7", "2 at the same time", "concurrency, for", "50 in PT1H"):
        assert shown in page
    assert page.count('class="field-paused">for ') == 1
    assert "free" not in page
    assert "Show all" not in page
    assert "free" not in text(client, f"{LIST}?q=cust")
    assert ">customer:7<" in text(client, f"{LIST}?q=cust")
    page = text(client, page_of("customer:7"))
    assert "2 at the same time" in page
    assert 'name="_save"' not in page
    # A key that has jobs, and of which nothing is kept, has a page too.
    assert "9 at the same time" in text(client, page_of("free"))
    for absent in ("nobody", "a%00b"):
        assert client.get(page_of(absent)).status_code == 302


@pytest.mark.usefixtures("busy")
def test_the_page_of_a_job_leads_to_its_key() -> None:
    worker(registration=Registration(queues=("carrier",)))
    waiting = jobs().filter(limit_key="customer:7", state="available").first()
    assert waiting is not None
    address = f"/admin/django_ojs/job/{waiting.pk}/change/"
    assert page_of("customer:7") in text(root(), address)
    assert page_of("customer:7") not in text(staff("view_job"), address)


@pytest.mark.usefixtures("busy")
def test_an_override_is_set_changed_and_removed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_ojs.audit")
    client = root()
    address = page_of("customer:7")
    empty = {
        "concurrency": "",
        "rate": "",
        "rate_period": "",
        "throttle": "",
        "throttle_period": "",
    }
    never = {"override_until": ""}
    body = {**empty, **never, "concurrency": "3", "rate": "10", "rate_period": "PT1M"}
    assert client.post(address, body).status_code == 302
    found = LimitKey.primary.get(pk="customer:7")
    assert found.override == {"concurrency": 3, "rate": {"limit": 10, "period": "PT1M"}}
    assert [entry.principal for entry in caplog.records] == ["root"]  # type: ignore[attr-defined]  # an extra
    assert LogEntry.objects.get().object_id == "customer:7"
    limits.open_due()
    assert len(claim()) == 1
    page = text(client, address)
    assert 'value="PT1M"' in page
    wrong = {**body, "rate_period": "soon"}
    assert "ISO 8601" in client.post(address, wrong).content.decode()
    past = {**body, "override_until": "2020-01-01 00:00"}
    assert "in the future" in client.post(address, past).content.decode()
    assert client.post(address, {**empty, **never}).status_code == 302
    found.refresh_from_db()
    assert found.override == {}
    # A key can be overridden before its first job.
    new = {**body, "key": "later"}
    assert client.post(f"{LIST}add/", new).status_code == 302
    assert "10 in PT1M" in text(client, LIST)
    assert "letters" in client.post(f"{LIST}add/", {**body, "key": "a b"}).content.decode()
    nothing = {**empty, **never, "key": "none"}
    assert "Give one of the limits" in client.post(f"{LIST}add/", nothing).content.decode()
    recorded = AuditEntry.primary.count()
    assert client.post(address, {**empty, **never}).status_code == 302
    assert AuditEntry.primary.count() == recorded
    act = {"action": "remove_overrides", "_selected_action": ["later"]}
    assert "1 override removed" in client.post(LIST, act, follow=True).content.decode()


@pytest.mark.usefixtures("busy")
def test_a_pause_is_ended_by_those_who_may() -> None:
    act = {"action": "open_now", "_selected_action": ["api", "customer:7"]}
    viewer = staff("view_limitkey", "administer_job", name="administers")
    assert claim() == []
    staff("view_limitkey").post(LIST, act)
    assert LimitKey.primary.get(pk="api").paused_until is not None
    assert "1 opened" in viewer.post(LIST, act, follow=True).content.decode()
    assert [job.options["rate_limit"]["key"] for job in claim()] == ["api"]


def test_a_hundred_thousand_keys_do_not_make_it_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_ojs.admin.limit_keys.MAX_ROWS", 60)
    now = timezone.now()
    rows = [
        LimitKey(key=f"k{n:04}", expires_at=now, limited_since=now, limited_by="rate")
        for n in range(200)
    ]
    LimitKey.primary.bulk_create(rows)
    client = root()
    client.get(LIST)
    with CaptureQueriesContext(connection) as captured:
        page = text(client, LIST)
    assert page.count("rate, for") == 50
    assert len(captured) < 20
    assert text(client, f"{LIST}?p=2").count("rate, for") == 10

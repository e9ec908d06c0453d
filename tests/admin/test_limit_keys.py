"""Limit keys in the admin: what is at its limit and why, overrides, and pauses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

import django_ojs as ojs
from django_ojs.admin import formatting
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.limits import limit_journal, limit_keys
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.handler_registry import registry
from django_ojs.operations import fail, fetch
from django_ojs.spec.failure import Failure
from django_ojs.spec.times import format_timestamp
from tests.admin.users import root, staff
from tests.command_line.run import ojs as ojs_command
from tests.factories import WORKER, WorkerFactory, claim_limited, jobs, push, push_limited
from tests.model_factories import LimitKeyFactory

pytestmark = pytest.mark.django_db

LIST = "/admin/ojs_limits/limitkey/"


def page_of(key: str) -> str:
    return f"{LIST}{key.replace(':', '_3A')}/change/"


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.fixture
def busy() -> None:
    """A key at its limit, one that is paused, and one that has room."""
    push_limited("customer:7", number=4, concurrency=2)
    push_limited("api", number=2, rate={"limit": 50, "period": "PT1H"})
    push_limited("free", concurrency=9)
    until = format_timestamp(timezone.now() + timedelta(hours=1))
    failed = next(job for job in claim_limited() if job.options["rate_limit"]["key"] == "api")
    fail.fail(failed.id, Failure.parse({"type": "Busy", "rate_limit_until": until}))
    push_limited("api", rate={"limit": 50, "period": "PT1H"})


@pytest.mark.both
@pytest.mark.usefixtures("busy")
def test_the_list_says_what_is_at_its_limit_and_why() -> None:
    client = staff("view_limitkey", "view_payload_job")
    page = text(client, LIST)
    for shown in ("customer:7", "2 at the same time", "concurrency, for", "50 in 1"):
        assert shown in page
    assert page.count('data-label="Paused">for ') == 1
    assert "due within" not in page
    push_limited("later", number=3, concurrency=1, on_limit="reschedule")
    claim_limited()
    # In seconds, which may go by on a busy machine.
    until = F("rescheduled_until") + timedelta(hours=1)
    LimitKey.primary.filter(rescheduled_until__isnull=False).update(rescheduled_until=until)
    assert text(client, LIST).count('data-label="Rescheduled">due within ') == 1
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
    WorkerFactory(queues=("carrier",))
    waiting = jobs().filter(options__limit_key="customer:7", state="available").first()
    assert waiting is not None
    address = f"/admin/django_ojs/job/{waiting.pk}/change/"
    assert page_of("customer:7") in text(root(), address)
    assert page_of("customer:7") not in text(staff("view_job"), address)


@pytest.mark.both
@pytest.mark.usefixtures("busy")
def test_an_override_is_set_changed_and_removed() -> None:
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
    assert AuditEntry.primary.get().object_id == "customer:7"
    limit_journal.open_due()
    assert len(claim_limited()) == 1
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
    assert f"10 in {formatting.duration(60)}" in text(client, LIST)
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
    act = {"action": "resume_selected", "_selected_action": ["api", "customer:7"]}
    may = ("view_limitkey", "view_payload_job")
    operator = staff(*may, "operate_job", name="operates")
    assert claim_limited() == []
    staff(*may).post(LIST, act)
    assert LimitKey.primary.get(pk="api").paused_until is not None
    done = operator.post(LIST, act, follow=True).content.decode()
    assert "1 resumed, 1 skipped: customer:7 is not paused." in done
    assert [job.options["rate_limit"]["key"] for job in claim_limited()] == ["api"]


@pytest.mark.usefixtures("busy")
def test_a_key_is_paused_for_a_time_named_on_the_overview_and_resumed_from_there() -> None:
    may = ("view_limitkey", "view_payload_job", "view_overview")
    operator, viewer = staff(*may, "operate_job", name="operates"), staff(*may)
    WorkerFactory(queues=("carrier",))
    push_limited("free", number=2, concurrency=9)
    confirm = f"{LIST}action/pause/"
    page = text(operator, page_of("free"))
    assert f'href="{confirm}?key=free&amp;next=' in page
    assert ">Resume<" not in page
    assert "/action/" not in text(viewer, page_of("free"))
    assert viewer.post(confirm, {"key": "free", "confirmed": "1"}).status_code == 403
    # One asks for how long; a wrong duration is named, none is an hour.
    asked = text(operator, f"{confirm}?key=free")
    assert "No job of a paused key starts" in asked
    assert 'value="1h"' in asked
    order = {"key": "free", "confirmed": "1", "duration": ""}
    for wrong, said in (
        ("soon", "duration must be"),
        ("32d", "at most 31 days"),
        ("0s", "more than 0 and at most 31 days"),
    ):
        answer = operator.post(confirm, {**order, "duration": wrong}).content.decode()
        assert said in answer, answer
    assert LimitKey.primary.filter(pk="free", paused_until__isnull=False).count() == 0
    done = operator.post(confirm, {**order, "next": page_of("free")}, follow=True).content.decode()
    assert "No job of free starts before 2" in done
    assert ">Resume<" in done
    left = LimitKey.primary.get(pk="free").paused_until - timezone.now()  # type: ignore[operator]
    assert timedelta(minutes=55) < left < timedelta(minutes=65)
    assert claim_limited() == []
    assert AuditEntry.primary.get().action == "limit_key.paused"
    # Those that are paused are named with their jobs, as queues are.
    overview = text(operator, "/admin/django_ojs/overview/")
    assert re.search(r"is paused until .*: 2 jobs wait\.</b>", overview)
    assert "Limit key free<" in overview
    assert "Limit key api<" in overview
    (resume, _) = re.findall(r'action="(/[^"]*limitkey/action/resume/)"', overview)
    assert page_of("free") in overview
    assert "action/resume" not in text(viewer, "/admin/django_ojs/overview/")
    told = ojs_command("doctor", "--only", "overview")
    assert re.search(r"is paused until 2.*: 2 jobs wait\.", told.out)
    assert "manage.py ojs limits list" in told.out
    # A user who may not see the key's arguments sees no more of it there.
    hidden = text(staff("view_overview", "view_limitkey", name="x"), "/admin/django_ojs/overview/")
    assert "is paused until" in hidden
    assert "free" not in hidden
    assert page_of("free") not in hidden
    operator.post(resume, {"key": "free"})
    assert len(claim_limited()) == 2
    assert "Limit key free<" not in text(operator, "/admin/django_ojs/overview/")
    # Several at once, and back to where one was; a pause of seconds is no finding.
    both = {"action": "pause_selected", "_selected_action": ["api", "customer:7"]}
    asked = operator.post(f"{LIST}?q=a", both).content.decode()
    assert f'name="next" value="{LIST}?q=a"' in asked
    keys = {"key": ["api", "customer:7"], "confirmed": "1", "duration": "30s"}
    assert "2 paused." in operator.post(confirm, keys, follow=True).content.decode()
    assert claim_limited() == []
    # Nor one for which no job waits; those with the most jobs are named, the others counted.
    for n in range(7):
        limit_keys.pause([f"none-{n}", f"k{n}"], timedelta(hours=2))
        push_limited(f"k{n}", number=7 - n, concurrency=1)
    overview = text(operator, "/admin/django_ojs/overview/")
    named = re.findall(r">Limit key (\S+)<", overview)
    assert named == ["k0", "k1", "k2", "k3", "k4"]
    assert "More limit keys that are paused: 3." in overview
    assert operator.post(confirm, {**order, "key": "nobody"}, follow=True).status_code == 200
    assert not LimitKey.primary.filter(pk="nobody").exists()


@pytest.fixture
def report() -> Iterator[Any]:
    """A handler whose key has an argument, and a job of it at its limit."""
    policy = ojs.RateLimitPolicy(key="customer:{customer}:{type}", concurrency=1)

    @ojs.job("report.build", rate_limit=policy)
    def build(customer: str) -> None: ...

    for _ in range(3):
        build.options(queue="carrier").enqueue("secret-7")
    yield build
    registry.remove("report.build")


KEY = "customer:secret-7:report.build"


def test_arguments_in_keys_are_seen_by_those_who_may_see_arguments(report: Any) -> None:
    WorkerFactory(queues=("carrier",))
    claim_limited()
    override = {"concurrency": "1", "rate": "", "rate_period": "", "throttle": ""}
    override |= {"throttle_period": "", "override_until": ""}
    assert root().post(page_of(KEY), override).status_code == 302
    push_limited("made:elsewhere", number=2, concurrency=1)
    push(queue="invoices", rate_limit={"concurrency": 0})
    fetch.fetch(["carrier", "invoices"], count=9, worker_id=WORKER)
    waiting = jobs().filter(options__limit_key=KEY, state="available").first()
    assert waiting is not None
    admin, shown = "/admin/django_ojs", "customer:•••••:report.build"
    job = f"{admin}/job/{waiting.pk}/change/"
    flow = ojs.chain(report.options(queue="carrier").request("secret-7")).enqueue()
    step = f"/admin/ojs_workflows/workflow/{flow.id}/change/"
    may = ("view_limitkey", "view_event", "view_auditentry", "view_job", "administer_job")
    may += ("view_workflow",)
    client = staff(*may)
    for page in (LIST, job, step, f"{admin}/event/", f"{admin}/auditentry/"):
        found = text(client, page)
        assert shown in found, page
        assert "secret-7" not in found, page
        assert "elsewhere" not in found, page
    # No search tells whether there is such a key, or how it begins.
    searches = (f"{LIST}?q=customer:s", f"{admin}/event/?subject={KEY}")
    for search in (*searches, f"{admin}/auditentry/?q=object:limit_key/{KEY}"):
        assert "<tbody" not in text(client, search), search
    assert ">queue:invoices<" in text(client, f"{LIST}?q=queue")
    # As for a key that does not exist.
    assert client.get(page_of(KEY)).status_code == 302
    assert client.get(f"{page_of(KEY)}../history/").status_code == 302
    assert client.get(page_of("queue:invoices")).status_code == 200
    act = {"action": "remove_overrides", "_selected_action": [KEY]}
    client.post(LIST, act)
    assert LimitKey.primary.get(pk=KEY).override
    # Whoever sees arguments sees keys, except for those that the settings hide.
    trusted = staff(*may, "view_payload_job", name="trusted")
    assert f">{KEY}<" in text(trusted, LIST)
    assert KEY in text(trusted, job)
    assert trusted.get(page_of(KEY)).status_code == 200
    with override_settings(OJS={"ADMIN_REDACT": ["customer"]}):
        page = text(trusted, LIST)
        assert "secret-7" not in page
        assert ">made:elsewhere<" in page
    with override_settings(OJS={"ADMIN_REDACT": ["*"]}):
        assert "elsewhere" not in text(trusted, LIST)


def test_dropped_jobs_are_a_finding_and_stand_beside_their_key() -> None:
    push_limited("queue:carrier", number=4, concurrency=1, on_limit="drop")
    claim_limited()
    client = root()
    overview = text(client, "/admin/django_ojs/overview/")
    assert "3 jobs were dropped at " in overview
    assert f'href="{LIST}"' in overview
    assert "3, the last" in text(client, LIST)
    found = ojs_command("doctor", "--only", "overview").out
    assert "3 jobs were dropped at 1 rate limit, the last one less than an hour ago." in found
    job = jobs().filter(state="discarded").first()
    assert job is not None
    assert "reason: rate_limited" in text(client, f"/admin/django_ojs/job/{job.pk}/change/")
    LimitKey.primary.update(dropped_at=timezone.now() - timedelta(hours=2))
    overview = text(root("second"), "/admin/django_ojs/overview/")
    # It is over: only the grey line tells it.
    assert re.findall(r'<li class="([\w-]+)">(?:(?!<li).)*dropped at', overview) == ["ojs-dead"]


def test_a_hundred_thousand_keys_do_not_make_it_slow() -> None:
    for number in range(200):
        LimitKeyFactory(key=f"k{number:04}", limited_since=timezone.now(), limited_by="rate")
    client = root()
    client.get(LIST)
    with CaptureQueriesContext(connection) as captured:
        page = text(client, LIST)
    assert page.count("rate, for") == 50
    assert len(captured) < 20
    # Pages are turned by cursors, and none of them is far.
    seen = {*re.findall(r"k\d{4}", page)}
    while following := re.search(r'href="(\?after=[^"]+)">Next', page):
        page = text(client, f"{LIST}{following[1]}")
        seen |= {*re.findall(r"k\d{4}", page)}
    assert len(seen) == 200
    back = re.search(r'href="(\?before=[^"]+)">', page)
    assert back is not None
    assert "k0100" in text(client, f"{LIST}{back[1]}")

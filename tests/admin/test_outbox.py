"""The outbox in the Django admin: viewed and requeued; arguments need a permission."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox.models import OutboxEntry
from tests.admin.markup import form_data
from tests.admin.users import root, staff
from tests.command_line.run import ojs as run
from tests.model_factories import ApiKeyFactory, OutboxEntryFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = "/admin/ojs_outbox/outboxentry/"


@pytest.fixture
def rejected() -> OutboxEntry:
    with override_settings(OJS={"OUTBOX": {"far": {"url": "http://127.0.0.1:9", "types": ["*"]}}}):
        ojs.enqueue("test.job", ["secret-argument"])
    OutboxEntry.objects.update(
        state="rejected", position=1, error_code="JOB_TYPE_NOT_ALLOWED", error_message="not here"
    )
    return OutboxEntry.objects.get()


def page_of(entry: OutboxEntry) -> str:
    return f"{LIST}{entry.pk}/change/"


def requeue(client: Client, entry: OutboxEntry) -> str:
    form = {"action": "requeue", "_selected_action": [entry.pk]}
    return client.post(LIST, form, follow=True).content.decode()


def test_what_was_rejected_is_shown_with_its_reason(rejected: OutboxEntry) -> None:
    client = staff("view_outboxentry")
    listed = client.get(LIST, {"state": "rejected"}).content.decode()
    assert page_of(rejected) not in client.get(LIST, {"state": "sent"}).content.decode()
    assert "JOB_TYPE_NOT_ALLOWED: not here" in listed
    assert "rejected: requeue or delete" in listed
    assert "not here" in client.get(page_of(rejected)).content.decode()
    for query in ("far", str(rejected.job_id), "x'"):
        assert client.get(LIST, {"q": query}).status_code == 200


def test_arguments_are_for_those_who_may_see_what_jobs_carry(rejected: OutboxEntry) -> None:
    client = staff("view_outboxentry")
    for url in (LIST, page_of(rejected), f"{LIST}?q=test.job"):
        assert "secret-argument" not in client.get(url).content.decode()
    looks = staff("view_outboxentry", "view_job", name="looks")
    assert "secret-argument" not in looks.get(page_of(rejected)).content.decode()
    sees = staff("view_outboxentry", "view_payload_job", name="sees")
    shown = unescape(sees.get(page_of(rejected)).content.decode())
    assert '"args": [\n    "secret-argument"\n  ]' in shown  # With its lines and indents.
    with override_settings(OJS={"ADMIN_REDACT": ["args"]}):
        page = sees.get(page_of(rejected)).content.decode()
    assert "secret-argument" not in page
    assert "test.job" in page


def test_a_rejected_job_is_sent_again_by_those_who_may(rejected: OutboxEntry) -> None:
    said = requeue(staff("view_outboxentry", "requeue_outboxentry"), rejected)
    assert "1 requeued." in said
    rejected.refresh_from_db()
    assert (rejected.state, rejected.position, rejected.next_try_at) == ("pending", None, None)


def test_a_job_that_is_not_rejected_is_skipped(rejected: OutboxEntry) -> None:
    OutboxEntry.objects.update(state="sent")
    said = requeue(staff("view_outboxentry", "requeue_outboxentry"), rejected)
    assert "1 skipped: not rejected." in said
    rejected.refresh_from_db()
    assert rejected.state == "sent"


def test_without_the_permission_there_is_no_such_action(rejected: OutboxEntry) -> None:
    requeue(staff("view_outboxentry"), rejected)
    rejected.refresh_from_db()
    assert rejected.state == "rejected"


def test_nobody_writes_a_row_by_hand(rejected: OutboxEntry) -> None:
    client = staff("view_outboxentry", "requeue_outboxentry")
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(page_of(rejected), {"state": "sent"}).status_code == 403


@pytest.mark.both
def test_a_search_finds_an_id_a_type_or_a_queue_and_nothing_else(rejected: OutboxEntry) -> None:
    client = staff("view_outboxentry")
    for text, found in (
        (str(rejected.job_id), True),
        (rejected.job_id.hex, True),
        (rejected.type, True),
        (rejected.queue, True),
        ("test", False),
        ("01920000-0000-7000-8000-000000000000", False),
    ):
        assert (page_of(rejected) in client.get(LIST, {"q": text}).content.decode()) is found


def test_a_search_reads_the_newest_rows_and_a_request_requeues_some_of_all(
    rejected: OutboxEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_ojs.operations.keyset.COUNT_LIMIT", 3)
    monkeypatch.setattr("django_ojs.extensions.outbox.admin.SCAN_LIMIT", 2)
    for number in range(5):
        OutboxEntryFactory(type=f"more.{number}", destination="far")
    client = staff("view_outboxentry", "requeue_outboxentry")
    assert client.get(LIST).context["cl"].result_count == 6
    assert "more.4" in client.get(LIST, {"q": "more.4"}).content.decode()
    assert client.get(LIST, {"q": "more.0"}).context["cl"].result_count == 0
    OutboxEntry.objects.update(state="rejected")
    form = {"action": "requeue", "select_across": "1", "_selected_action": [rejected.pk]}
    said = client.post(LIST, form, follow=True).content.decode()
    assert "3 requeued. There are more" in said
    assert OutboxEntry.objects.filter(state="rejected").count() == 3


def test_more_rows_than_a_request_can_name_are_deleted_in_several() -> None:
    OutboxEntry.objects.bulk_create(OutboxEntryFactory.build_batch(1_100, state="rejected"))
    client, address = root(), f"{LIST}?state=rejected"
    every = {"action": "delete_selected", "select_across": "1", "_selected_action": ["0"]}
    for left in (600, 100, 0):
        page = client.post(address, every).content.decode()
        assert ("There are more; select them again." in page) is (left > 0)
        form = form_data(page, "post")
        assert client.post(address, form).status_code == 302
        assert OutboxEntry.objects.count() == left


@pytest.mark.parametrize(
    "query",
    [
        *("q=%00", "destination=%00", "state=%00", "state=x", "p=99999", "o=1.2.-3", "all="),
        *("state__exact=%00", "queue=%00", "job_id=x", "envelope__contains=secret-argument"),
    ],
)
def test_an_address_nobody_would_type_is_no_error_of_the_server_and_finds_nothing_hidden(
    rejected: OutboxEntry, query: str
) -> None:
    known = {"OUTBOX": {"far": {"url": "http://127.0.0.1:9"}}}
    with override_settings(OJS=known):
        response = staff("view_outboxentry").get(f"{LIST}?{query}")
    assert response.status_code == (
        400 if query.startswith(("state__", "qu", "job", "env")) else 200
    )


def test_destinations_to_filter_by_are_those_of_the_settings(rejected: OutboxEntry) -> None:
    client = staff("view_outboxentry")
    with override_settings(OJS={"OUTBOX": {"far": {"url": "http://127.0.0.1:9"}}}):
        assert page_of(rejected) in client.get(LIST, {"destination": "far"}).content.decode()
        assert "destination=far" in client.get(LIST).content.decode()


@pytest.mark.both
@pytest.mark.both
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_outbox_of_each_database_is_shown_and_requeued() -> None:
    away = {"far": {"url": "http://127.0.0.1:9", "types": ["*"]}}
    with override_settings(OJS={"WRONG_DATABASE": "outbox", "OUTBOX": away}):
        with transaction.atomic(using="other"):
            key = ojs.enqueue("test.other", ["there"]).id
        entry = OutboxEntry.objects.using("other").get(job_id=key)
        OutboxEntry.objects.using("other").update(state="rejected")
        client = root()
        here = client.get(LIST).content.decode()
        assert "test.other" not in here
        assert "outbox_of=other" in here
        assert client.get(page_of(entry)).status_code == 302
        there = f"{LIST}?outbox_of=other"
        shown = client.get(there).content.decode()
        assert "test.other" in shown
        (address,) = set(re.findall(rf'href="({page_of(entry)}[^"]*)"', shown))
        address = unescape(address)
        assert str(key) in client.get(address).content.decode()
        form = {"action": "requeue", "_selected_action": [entry.pk]}
        assert "1 requeued." in client.post(there, form, follow=True).content.decode()
        entry.refresh_from_db()
        assert entry.state == "pending"
        form = {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"}
        client.post(there, form, follow=True)
        assert not OutboxEntry.objects.using("other").exists()


@pytest.mark.both
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize(
    ("values", "of_site", "where"),
    [
        ({}, "default", ""),
        ({"WRONG_DATABASE": "outbox"}, "other", "It is the outbox of the database other."),
    ],
)
def test_the_overview_and_doctor_say_that_jobs_were_rejected(
    values: dict[str, Any], of_site: str, where: str
) -> None:
    away = {"far": {"url": "http://127.0.0.1:9", "types": ["*"]}}
    with override_settings(OJS={**values, "OUTBOX": away}):
        with transaction.atomic(using=of_site):
            ojs.enqueue("test.job")
        client = root()
        overview = "/admin/django_ojs/overview/"
        assert "Rejected jobs of the outbox" not in client.get(overview).content.decode()
        OutboxEntry.objects.using(of_site).update(state="rejected")
        page = client.get(overview).content.decode()
        assert "<b>Rejected jobs of the outbox: 1." in page
        assert where in page
        (address,) = re.findall(rf'href="({LIST}\?state=rejected[^"]*)"', page)
        assert "test.job" in client.get(unescape(address)).content.decode()
        said = run("doctor", "--only", "overview")
        assert "Rejected jobs of the outbox: 1" in said.out
        assert ("the database other" in said.out) is ("WRONG_DATABASE" in values)


def test_one_outbox_needs_no_choice_of_a_database(rejected: OutboxEntry) -> None:
    page = staff("view_outboxentry").get(f"{LIST}?outbox_of=nowhere").content.decode()
    assert page_of(rejected) in page
    assert "By database" not in page


class ReadsOnReplica:
    """A project that reads from `other`, a replica that lags behind."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "django_ojs" else None


@pytest.mark.django_db(databases=["default", "other"])
def test_no_page_reads_from_a_replica(rejected: OutboxEntry) -> None:
    ApiKeyFactory(name="the key")
    client = root()
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.ReadsOnReplica"]):
        assert "test.job" in client.get(LIST).content.decode()
        assert client.get(page_of(rejected)).status_code == 200
        assert "the key" in client.get("/admin/django_ojs/apikey/").content.decode()

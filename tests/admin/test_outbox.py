"""The outbox in the Django admin: looked at, sent again, and arguments only for those who may."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.models import OutboxEntry

pytestmark = pytest.mark.django_db

LIST = "/admin/django_ojs/outboxentry/"


def staff(*permissions: str) -> Client:
    user = User.objects.create_user(username="ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def refused() -> OutboxEntry:
    with override_settings(OJS={"OUTBOX": {"far": {"url": "http://127.0.0.1:9", "types": ["*"]}}}):
        ojs.enqueue("test.job", ["secret-argument"])
    OutboxEntry.objects.update(
        state="refused", position=1, error_code="JOB_TYPE_NOT_ALLOWED", error_message="not here"
    )
    return OutboxEntry.objects.get()


def page_of(entry: OutboxEntry) -> str:
    return f"{LIST}{entry.pk}/change/"


def requeue(client: Client, entry: OutboxEntry) -> str:
    form = {"action": "requeue", "_selected_action": [entry.pk]}
    return client.post(LIST, form, follow=True).content.decode()


def test_what_was_refused_is_shown_with_its_reason(refused: OutboxEntry) -> None:
    client = staff("view_outboxentry")
    listed = client.get(LIST, {"state__exact": "refused"}).content.decode()
    assert "JOB_TYPE_NOT_ALLOWED" in listed
    assert "not here" in client.get(page_of(refused)).content.decode()
    for query in ("far", str(refused.job_id), "x'"):
        assert client.get(LIST, {"q": query}).status_code == 200


def test_arguments_are_for_those_who_may_read_jobs(refused: OutboxEntry) -> None:
    client = staff("view_outboxentry")
    for url in (LIST, page_of(refused), f"{LIST}?q=test.job"):
        assert "secret-argument" not in client.get(url).content.decode()
    client.logout()
    User.objects.all().delete()
    assert (
        "secret-argument"
        in staff("view_outboxentry", "view_job").get(page_of(refused)).content.decode()
    )


def test_a_refused_job_is_sent_again_by_those_who_may(refused: OutboxEntry) -> None:
    said = requeue(staff("view_outboxentry", "requeue_outboxentry"), refused)
    assert "1 will be sent again." in said
    refused.refresh_from_db()
    assert (refused.state, refused.position, refused.next_try_at) == ("pending", None, None)


def test_a_job_that_is_not_refused_is_skipped(refused: OutboxEntry) -> None:
    OutboxEntry.objects.update(state="sent")
    said = requeue(staff("view_outboxentry", "requeue_outboxentry"), refused)
    assert "1 skipped: not refused." in said
    refused.refresh_from_db()
    assert refused.state == "sent"


def test_without_the_permission_there_is_no_such_action(refused: OutboxEntry) -> None:
    requeue(staff("view_outboxentry", "change_outboxentry"), refused)
    refused.refresh_from_db()
    assert refused.state == "refused"


def test_nobody_writes_a_row_by_hand(refused: OutboxEntry) -> None:
    client = staff("view_outboxentry", "add_outboxentry", "change_outboxentry")
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(page_of(refused), {"state": "sent"}).status_code == 403

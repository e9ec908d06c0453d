"""Webhooks in the Django admin: created, tested, replaced secrets, and their deliveries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client

from django_ojs.extensions.webhooks import sending
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import dispatch, subscriptions
from django_ojs.hooks import publish
from django_ojs.spec.published import EventType, of_queue
from tests.admin import users
from tests.model_factories import SubscriptionFactory
from tests.webhooks.conftest import Receiver

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = "/admin/ojs_webhooks/webhook/"
ADD = f"{LIST}add/"
FORM = {"url": "https://hooks.test/a", "events": "queue.*\njob.discarded", "active": "on"}
SECRET = re.compile(r"whsec_[A-Za-z0-9_-]{43}")


@pytest.fixture
def root() -> Client:
    return users.root()


def create(client: Client, **values: str) -> tuple[Webhook, str]:
    response = client.post(ADD, FORM | values)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    (secret,) = set(SECRET.findall(response.content.decode()))
    return Webhook.primary.get(), secret


def test_a_webhook_is_created_and_its_secret_shown_once(root: Client) -> None:
    webhook, secret = create(root, queues="a b")
    assert (webhook.events, webhook.queues) == (["queue.*", "job.discarded"], ["a", "b"])
    assert secret == subscriptions.secret_of(webhook)
    for url in (LIST, f"{LIST}{webhook.pk}/change/", f"{LIST}{webhook.pk}/history/"):
        page = root.get(url)
        assert page.status_code == 200
        assert secret not in page.content.decode()
        assert webhook.salt not in page.content.decode()
    assert all(secret not in str(session.get_decoded()) for session in Session.objects.all())


@pytest.mark.parametrize(
    "values",
    [
        {"url": "http://hooks.test"},
        {"events": "job"},
        {"events": "job.completed"},
        {"queues": "A"},
        {"job_types": "A"},
    ],
)
def test_what_the_api_rejects_is_an_error_of_the_form(root: Client, values: Any) -> None:
    page = root.post(ADD, FORM | values).content.decode()
    assert "errorlist" in page
    # The rejections of another page name another field, and have no translation.
    assert "types: " not in page
    assert not Webhook.primary.exists()


def test_a_webhook_is_tested_and_its_deliveries_are_listed(
    root: Client, loopback: None, receiver: Receiver
) -> None:
    webhook, _ = create(root, url=receiver.url)
    change = f"{LIST}{webhook.pk}/change/"
    form = FORM | {"url": receiver.url}
    receiver.responses = [200, 500]
    taken = root.post(change, form | {"_test": "1"}, follow=True).content.decode()
    assert "took the test event" in taken
    rejected = root.post(change, form | {"_test": "1"}, follow=True).content.decode()
    assert "status 500" in rejected
    # A receiver without TLS, none at all, and a name that leads nowhere: the cause is said.
    for wrong, cause in (
        (receiver.url.replace("http://", "https://"), "no response: TLS failed, "),
        ("http://127.0.0.1:1/", "no response: no connection could be made"),
        ("https://nowhere.invalid/", "no response: its host has no address"),
    ):
        page = root.post(change, form | {"url": wrong, "_test": "1"}, follow=True)
        assert cause in page.content.decode()
    root.post(change, form)
    assert [each.event["type"] for each in receiver.received] == ["webhook.test"] * 2
    publish(EventType.QUEUE_PAUSED, of_queue, "a")
    dispatch.dispatch()
    page = root.get(change).content.decode()
    assert "queue.paused</a> pending" in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic_requests", [False, True])
def test_no_transaction_is_open_while_a_webhook_is_tested(
    root: Client, atomic_requests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    webhook, _ = create(root)
    found = []

    def send(tested: Webhook) -> sending.SendingResult:
        found.append((tested.url, connection.in_atomic_block))
        return sending.SendingResult(reason="no response")

    monkeypatch.setattr(sending, "send_test", send)
    form = FORM | {"url": "https://hooks.test/b", "_test": "1"}
    page = root.post(f"{LIST}{webhook.pk}/change/", form, follow=True).content.decode()
    assert found == [("https://hooks.test/b", False)]
    assert "The test event was not taken: no response" in page


def test_the_secret_is_replaced(root: Client) -> None:
    webhook, secret = create(root)
    page = root.get(f"{LIST}{webhook.pk}/change/").content.decode()
    (token,) = re.findall(r'name="form_token" value="([^"]+)"', page)
    form = FORM | {"_rotate": "1", "form_token": token}
    response = root.post(f"{LIST}{webhook.pk}/change/", form)
    (new,) = set(SECRET.findall(response.content.decode()))
    # To reload that page sends the form again.
    assert root.post(f"{LIST}{webhook.pk}/change/", form).status_code == 302
    webhook.refresh_from_db()
    assert subscriptions.secrets_of(webhook) == [new, secret]


def test_a_webhook_is_disabled_and_removed(root: Client) -> None:
    webhook, _ = create(root)
    root.post(f"{LIST}{webhook.pk}/change/", {k: v for k, v in FORM.items() if k != "active"})
    webhook.refresh_from_db()
    assert not webhook.active
    root.post(f"{LIST}{webhook.pk}/delete/", {"post": "yes"})
    assert not Webhook.primary.exists()


def test_a_webhook_is_disabled_although_its_events_are_not_recorded_any_more(root: Client) -> None:
    webhook, _ = create(root)
    Webhook.primary.update(events=["job.completed"])
    change = f"{LIST}{webhook.pk}/change/"
    form = FORM | {"events": "job.completed"}
    root.post(change, {name: value for name, value in form.items() if name != "active"})
    webhook.refresh_from_db()
    assert not webhook.active
    assert "errorlist" in root.post(change, form | {"events": "job.started"}).content.decode()


@pytest.mark.parametrize("page", ["change", "delete"])
def test_a_webhook_that_is_removed_meanwhile_is_a_message(
    root: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    webhook, _ = create(root)
    name = {"change": "update", "delete": "remove"}[page]
    operation = getattr(subscriptions, name)

    def late(*arguments: Any, **values: Any) -> Any:
        Webhook.primary.all().delete()
        return operation(*arguments, **values)

    monkeypatch.setattr(subscriptions, name, late)
    form = FORM | {"url": "https://other.test", "post": "yes"}
    response = root.post(f"{LIST}{webhook.pk}/{page}/", form, follow=True)
    assert response.status_code == 200
    assert ("There is no webhook" in response.content.decode()) == (page == "change")


def test_only_a_user_with_the_scope_admin_changes_webhooks() -> None:
    permissions = ("view_webhook", "add_webhook", "change_webhook", "delete_webhook")
    client = users.staff(*permissions, "operate_job")
    webhook, _ = SubscriptionFactory()
    change = f"{LIST}{webhook.pk}/change/"
    assert client.get(change).status_code == 200
    for url in (ADD, change, f"{LIST}{webhook.pk}/delete/"):
        assert client.post(url, FORM | {"post": "yes"}).status_code == 403

"""Webhooks over HTTP (ojs-webhooks §6, §10)."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import dispatch
from django_ojs.hooks import publish
from django_ojs.spec.published import EventType, of_queue
from django_ojs.testing import TestContext
from tests.cases import together
from tests.http.api import NOBODY, Api, make_key
from tests.webhooks.conftest import Receiver

pytestmark = [pytest.mark.django_db, pytest.mark.once]

api = Api()

PATH = "webhooks/subscriptions"
GIVEN = {
    "url": "https://hooks.test/ojs",
    "events": ["queue.paused", "job.*"],
    "filter": {"queues": ["mine"], "job_types": ["email.send"]},
    "metadata": {"owner": "platform"},
}
#: Addresses in the forms that the resolver reads.
INTERNAL = ["10.1.2.3", "127.1", "2130706433", "0x7f000001", "[::1]"]


def create(by: Api = api, **values: Any) -> Any:
    return by.post(PATH, GIVEN | values).ok(201)


@pytest.mark.requirement("WH-001")
def test_a_subscription_is_created_read_changed_and_removed() -> None:
    response = api.post(PATH, GIVEN)
    created = response.ok(201)
    assert response.headers["Location"] == f"/ojs/v1/{PATH}/{created['id']}"
    assert created.pop("subscription") == created
    assert created.pop("secret").startswith("whsec_")
    assert created["id"].startswith("sub_")
    assert created.items() >= (GIVEN | {"active": True}).items()
    path = f"{PATH}/{created['id']}"
    assert api.get(path).ok() == {**created, "subscription": created}
    listed = api.get(PATH).ok()
    assert (listed["subscriptions"], listed["count"]) == ([created], 1)
    changed = api.ask("PATCH", path, {"events": ["*"], "active": False, "filter": {}}).ok()
    assert (changed["events"], changed["active"]) == (["*"], False)
    assert "filter" not in changed
    assert changed["url"] == created["url"]
    assert api.delete(path).ok() == {"deleted": True, "id": created["id"]}
    api.get(path).error(404, "not_found", resource_type="webhook")
    api.delete(path).error(404, "not_found", resource_type="webhook")


@pytest.mark.requirement("WH-007")
def test_the_secret_is_in_the_response_to_the_creation_alone() -> None:
    created = create()
    path = f"{PATH}/{created['id']}"
    responses = [api.get(path), api.get(PATH), api.ask("PATCH", path, {"active": True})]
    assert not any("secret" in each.raw.content.decode() for each in responses)


@pytest.mark.requirement("WH-R003")
def test_the_secret_is_rotated() -> None:
    created = create()
    rotated = api.post(f"{PATH}/{created['id']}/rotate-secret").ok()
    assert rotated["secret"] not in ("", created["secret"])
    assert rotated["id"] == created["id"]


@together(
    ("values", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "http://hooks.test"}, "url"),
        ({"url": "ftp://hooks.test"}, "url"),
        ({"url": "https://hooks.test/" + "a" * 2000}, "url"),
        ({"url": "https://hooks.test/a b"}, "url"),
        ({"url": "https://user:password@10.0.0.1/"}, "url"),
        ({"url": "https://hooks.test:99999/"}, "url"),
        ({"url": "https://hooks.test:0/"}, "url"),
        ({"url": "https://?a=b"}, "url"),
        # Python 3.11.4 and later raise for these.
        ({"url": "https://[.e:.cF0e:]/"}, "url"),
        ({"url": "https://[1:2]/"}, "url"),
        ({"url": "https:///a"}, "url"),
        ({"url": "https://hooks.test\\\\@10.0.0.1/"}, "url"),
        ({"events": None}, "events"),
        ({"events": []}, "events"),
        ({"events": ["job"]}, "events"),
        ({"events": "*"}, "events"),
        ({"filter": {"queues": ["A"]}}, "filter.queues"),
        ({"filter": {"queues": "a"}}, "queues"),
        # Ignored, it would let the events of all queues through.
        ({"filter": {"queue": "a"}}, "filter"),
        ({"metadata": {"a": "a" * 20_000}}, "metadata"),
        ({"metadata": {"a": "ä" * 9_000}}, "metadata"),
        ({"active": 1}, "active"),
    ],
    undo=True,
)
def test_what_is_ill_formed_is_rejected_by_name(values: dict[str, Any], field: str) -> None:
    error = api.post(PATH, GIVEN | values).error(400, "invalid_request", field=field)
    if error["message"] == "url must begin with https://":
        assert "WEBHOOK_HTTP" in error["hint"]
    assert not Webhook.primary.exists()


def test_a_change_is_checked_as_a_creation_is() -> None:
    path = f"{PATH}/{create()['id']}"
    for url in ("https://[.e:.cF0e:]/", "https://?a=b"):
        api.ask("PATCH", path, {"url": url}).error(400, "invalid_request", field="url")
    assert api.get(path).ok()["url"] == GIVEN["url"]


def test_events_that_are_not_recorded_are_not_supported() -> None:
    error = api.post(PATH, GIVEN | {"events": ["job.completed"]}).error(422, "unsupported")
    assert "KEEP_EVENTS" in error["hint"]


def test_a_limited_key_sees_and_makes_webhooks_of_its_queues(settings: Any) -> None:
    settings.OJS = {}
    everything, some = Api(make_key("admin")), Api(make_key("admin", queues=("mine",)))
    mine = create(some)
    other = create(everything, filter={"queues": ["mine", "other"]})
    whole = create(everything, filter={})
    assert [each["id"] for each in some.get(PATH).ok()["subscriptions"]] == [mine["id"]]
    for hidden in (other, whole):
        path = f"{PATH}/{hidden['id']}"
        for response in (some.get(path), some.delete(path), some.post(f"{path}/test")):
            response.error(404, "not_found")
    some.post(PATH, GIVEN | {"filter": {}}).error(403, "PERMISSION_DENIED")
    some.post(PATH, GIVEN | {"filter": {"queues": ["other"]}}).error(403, "PERMISSION_DENIED")
    wider: dict[str, Any] = {"filter": {"queues": []}}
    some.ask("PATCH", f"{PATH}/{mine['id']}", wider).error(403, "PERMISSION_DENIED")
    # The narrower filter of events stays.
    assert some.ask("PATCH", f"{PATH}/{mine['id']}", {"active": False}).ok()["filter"]


@pytest.mark.requirement("WH-R004", "WH-R005")
def test_deliveries_are_listed_and_a_dead_one_is_sent_again(
    loopback: None,
    receiver: Receiver,
    ojs: TestContext,
) -> None:
    receiver.responses = [400]
    created = create(url=receiver.url, filter={})
    create(filter={})
    publish(EventType.QUEUE_PAUSED, of_queue, "a")
    dispatch.dispatch()
    assert len(api.get("webhooks/deliveries").ok()["deliveries"]) == 2
    listed = f"webhooks/deliveries?subscription_id={created['id']}"
    (pending,) = api.get(listed).ok()["deliveries"]
    path = f"webhooks/deliveries/{pending['id']}"
    assert (pending["status"], pending["attempts"]) == ("pending", 0)
    api.post(f"{path}/retry").error(409, "conflict")
    ojs.drain("ojs-webhooks", max_jobs=1)
    dead = api.get(path).ok()
    assert dead.items() >= {"status": "dead", "error": "status 400", "attempts": 1}.items()
    assert api.post(f"{path}/retry").ok()["status"] != "dead"
    ojs.drain("ojs-webhooks")
    delivered = api.get(path).ok()
    assert (
        delivered.items()
        >= {
            "status": "delivered",
            "status_code": 200,
            "event_type": "queue.paused",
            "subscription_id": created["id"],
        }.items()
    )
    for unknown in ("x", f"del_{NOBODY}"):
        api.get(f"webhooks/deliveries/{unknown}").error(404, "not_found")


@pytest.mark.requirement("WH-013", "WH-R006")
def test_a_test_sends_an_event_at_once(
    loopback: None,
    receiver: Receiver,
) -> None:
    created = create(url=receiver.url)
    path = f"{PATH}/{created['id']}/test"
    found = api.post(path).ok()
    assert found.items() >= {"success": True, "status_code": 200, "response_body": "thanks"}.items()
    (sent,) = receiver.received
    assert sent.event["type"] == sent.headers["X-OJS-Event-Type"] == "webhook.test"
    receiver.responses = [500]
    assert api.post(path).ok().items() >= {"success": False, "error": "status 500"}.items()


@pytest.mark.parametrize("host", INTERNAL)
def test_an_address_that_is_not_public_is_rejected_unless_the_setting_allows_it(
    host: str, settings: Any
) -> None:
    url = f"https://{host}:8443/"
    error = api.post(PATH, GIVEN | {"url": url}).error(400, "invalid_request", field="url")
    assert "WEBHOOK_PRIVATE_NETWORKS" in error["hint"]
    assert host not in str(error)
    path = f"{PATH}/{create()['id']}"
    api.ask("PATCH", path, {"url": url}).error(400, "invalid_request", field="url")
    networks = ["127.0.0.0/8", "10.0.0.0/8", "::1/128"]
    settings.OJS = {**settings.OJS, "WEBHOOK_PRIVATE_NETWORKS": networks}
    assert api.ask("PATCH", path, {"url": url}).ok()["url"] == url
    # The setting is taken back: what is stored stays as it is, and is not sent.
    settings.OJS = {**settings.OJS, "WEBHOOK_PRIVATE_NETWORKS": []}
    assert api.ask("PATCH", path, {"active": False}).ok()["url"] == url


def test_a_test_is_guarded_as_deliveries_are(
    settings: Any, loopback: None, receiver: Receiver
) -> None:
    created = create(url=receiver.url)
    settings.OJS = {**settings.OJS, "WEBHOOK_PRIVATE_NETWORKS": []}
    found = api.post(f"{PATH}/{created['id']}/test").ok()
    assert (found["success"], "WEBHOOK_PRIVATE_NETWORKS" in found["error"]) == (False, True)
    assert receiver.received == []

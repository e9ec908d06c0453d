"""Events become deliveries, each once, and deliveries are sent: signed, guarded and retried."""

from __future__ import annotations

import hashlib
import hmac
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.extensions.events.models import Event
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.storage import ASSIGNED_AT_ONCE
from django_ojs.extensions.payloads.schemes import https
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
from django_ojs.extensions.webhooks.operations import deliveries, dispatch, subscriptions
from django_ojs.extensions.webhooks.operations.deliveries import DeliveryStatus
from django_ojs.extensions.webhooks.operations.subscriptions import Subscription
from django_ojs.hooks import publish
from django_ojs.models import Job
from django_ojs.operations import promotion, queues
from django_ojs.operations.push import push_batch
from django_ojs.spec.errors import InvalidRequest, NotFound, PayloadUnavailable, UnsupportedFeature
from django_ojs.spec.published import EventType, of_queue
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import database
from django_ojs.testing import TestContext
from tests.factories import MINUTE, EnvelopeFactory, age_all, in_state
from tests.model_factories import SubscriptionFactory
from tests.other_session import Other, until_one_waits
from tests.webhooks.conftest import Receiver
from tests.worker.waiting import BOUND

DAY = timedelta(days=1)

pytestmark = [pytest.mark.once, pytest.mark.django_db, pytest.mark.usefixtures("loopback")]


def subscribe(url: str = "https://hooks.test/a", *events: str, **values: Any) -> Webhook:
    return SubscriptionFactory(url=url, events=events or ["queue.*"], **values)[0]


def happen(*names: str) -> None:
    for name in names:
        publish(EventType.QUEUE_PAUSED, of_queue, name)


def jobs() -> list[Job]:
    return list(Job.primary.filter(queue=webhooks.QUEUE).order_by("pk"))


def subjects() -> list[str]:
    return [job.args[1]["subject"] for job in jobs()]


def run(ojs: TestContext) -> None:
    """Send what is due, and what waits for its next attempt."""
    ojs.drain(webhooks.QUEUE, with_retries=True)


def deliver(ojs: TestContext, *names: str) -> None:
    """Let events happen, and send them."""
    happen(*names)
    dispatch.dispatch()
    run(ojs)


@pytest.mark.requirement("WH-008")
def test_each_event_from_now_on_becomes_one_delivery() -> None:
    happen("before")
    subscribe()
    happen("a", "b")
    assert dispatch.dispatch() == 2
    assert subjects() == ["a", "b"]
    assert dispatch.dispatch() == 0
    happen("c")
    dispatch.dispatch()
    assert subjects() == ["a", "b", "c"]
    assert set(WebhookDelivery.primary.values_list("pk", flat=True)) == {job.pk for job in jobs()}


@pytest.mark.requirement("WH-002", "WH-R001", "WH-R002")
def test_a_webhook_gets_the_events_that_its_filters_match(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["*"]}
    subscribe("https://a.test", "queue.resumed")
    subscribe("https://b.test", "job.*", queues=["b"])
    subscribe("https://c.test", "*", job_types=["one.job"])
    queues.pause("a")
    queues.resume("a")
    in_state("completed", queue="b", type="one.job")
    in_state("completed", queue="b", type="two.job")
    in_state("available", queue="c", type="one.job")
    dispatch.dispatch()
    found: dict[str, list[str]] = {}
    for delivery in WebhookDelivery.primary.select_related("webhook").order_by("pk"):
        found.setdefault(delivery.webhook.url, []).append(delivery.event_type)
    steps = ["job.enqueued", "job.started", "job.completed"]
    assert found == {
        "https://a.test": ["queue.resumed"],
        "https://b.test": steps + steps,
        "https://c.test": [*steps, "job.enqueued"],
    }


def test_deliveries_cause_no_deliveries(settings: Any, receiver: Receiver, ojs: Any) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["*"]}
    subscribe(receiver.url, "*")
    in_state("available", queue="a")
    for _ in range(3):
        dispatch.dispatch()
        run(ojs)
    assert len(receiver.received) == 1


def test_a_dispatch_that_fails_is_made_again_from_the_same_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = subscribe(), subscribe()
    happen("a")
    enqueue = dispatch.enqueue

    def enqueue_or_fail(webhook: Webhook, events: Any) -> Any:
        stored = enqueue(webhook, events)
        return 1 / 0 if webhook == failing else stored

    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "enqueue", enqueue_or_fail)
        assert dispatch.dispatch() == 1
    assert [job.args[0] for job in jobs()] == [str(other.pk)]
    assert "ZeroDivisionError" in caplog.text
    dispatch.dispatch()
    assert [job.args[0] for job in jobs()] == [str(other.pk), str(failing.pk)]
    assert subjects() == ["a", "a"]


def test_no_pass_goes_on_without_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe()
    happen("a")

    def fail(*arguments: Any) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(dispatch, "enqueue", fail)
    monkeypatch.setattr(database, "is_unavailable", lambda error: True)
    with pytest.raises(OperationalError):
        dispatch.dispatch()


def test_a_pass_is_bounded_and_the_next_one_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_SECONDS", 0)
    found = sorted(str(subscribe().pk) for _ in range(3))
    happen(*["a"] * (dispatch.BATCH + 1))
    dispatcher = dispatch.WebhookDispatcher()
    served = []
    for _ in range(4):
        before = {job.pk for job in jobs()}
        dispatcher.dispatch()
        served += sorted({job.args[0] for job in jobs() if job.pk not in before})
    assert served == [*found, found[0]]


@pytest.mark.django_db(transaction=True)
def test_a_bound_below_a_batch_does_not_stop_deliveries(
    receiver: Receiver, ojs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queues.configure(webhooks.QUEUE, {"backpressure": {"max_depth": 7}})
    subscribe(receiver.url)
    names = [f"q{number}" for number in range(20)]
    happen(*names)
    dispatcher = dispatch.WebhookDispatcher()
    while receiver.subjects != names:
        sent = len(receiver.received)
        while dispatcher.dispatch():
            pass
        run(ojs)
        assert sent < len(receiver.received) <= sent + 7
    assert caplog.text.count("wait until the queue") == 2


def test_events_wait_while_the_queue_of_deliveries_drains(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.drain(webhooks.QUEUE)
    subscribe()
    happen("a")
    dispatcher = dispatch.WebhookDispatcher()
    tried: list[Webhook] = []
    enqueue = dispatch.enqueue

    def counted(webhook: Webhook, events: Any) -> list[UUID]:
        tried.append(webhook)
        return enqueue(webhook, events)

    monkeypatch.setattr(dispatch, "enqueue", counted)
    for number in (1, 2):
        assert dispatcher.dispatch() == 0
        assert len(tried) == number
    assert caplog.text.count("is resumed: it is draining") == 1
    queues.resume(webhooks.QUEUE)
    assert dispatcher.dispatch() > 0
    assert len(jobs()) == 1


def test_a_webhook_gets_no_event_of_the_time_before_it_however_many_wait_for_a_position() -> None:
    happen(*["before"] * (ASSIGNED_AT_ONCE + 1))
    subscribe()
    while dispatch.dispatch():
        pass
    assert jobs() == []


def test_more_events_than_one_batch_are_all_delivered() -> None:
    subscribe()
    happen(*["a"] * (dispatch.BATCH + 1))
    while dispatch.dispatch():
        pass
    assert len(jobs()) == dispatch.BATCH + 1


@pytest.mark.requirement("WH-003", "WH-005", "WH-006", "WH-010", "EV-13")
def test_a_delivery_is_the_event_signed_as_the_document_says(receiver: Receiver, ojs: Any) -> None:
    webhook = subscribe(receiver.url)
    deliver(ojs, "a")
    (sent,) = receiver.received
    assert sent.event == log.read().events[0]
    (job,) = jobs()
    headers = sent.headers
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"].startswith("OJS-Webhook/1.0")
    assert headers["X-OJS-Event-Type"] == "queue.paused"
    assert headers["X-OJS-Delivery-ID"] == f"del_{job.pk}"
    assert headers["X-OJS-Subscription-ID"] == f"sub_{webhook.pk}"
    signed = f"{headers['X-OJS-Timestamp']}.".encode() + sent.body
    secret = subscriptions.secret_of(webhook).encode()
    expected = hmac.new(secret, signed, hashlib.sha256).hexdigest()
    assert headers["X-OJS-Signature"] == f"sha256={expected}"
    assert (job.state, job.result["status_code"]) == (State.COMPLETED, 200)


@pytest.mark.requirement("WH-004", "WH-005", "WH-011")
def test_a_receiver_that_fails_gets_the_same_delivery_again_later(
    receiver: Receiver, ojs: Any
) -> None:
    receiver.responses = [500, 503]
    subscribe(receiver.url)
    happen("a")
    dispatch.dispatch()
    for delay in webhooks.DELAYS[:2]:
        ojs.drain(webhooks.QUEUE)
        (found,) = deliveries.latest()
        assert (found.status, found.job and found.job.state) == ("failed", State.RETRYABLE)
        age_all(delay - MINUTE / 4)
        assert not Job.primary.filter(due_at__lte=Now()).exists()
        age_all(MINUTE / 2)
        promotion.promote()
    ojs.drain(webhooks.QUEUE)
    assert deliveries.latest()[0].status == DeliveryStatus.DELIVERED
    first, *rest = [each.headers["X-OJS-Delivery-ID"] for each in receiver.received]
    assert rest == [first, first]
    assert len(webhooks.DELAYS) >= 5
    assert list(webhooks.DELAYS) == sorted(set(webhooks.DELAYS))


@pytest.mark.parametrize("is_out_of_time", [False, True])
def test_a_response_without_the_rest_of_its_body_is_a_response(
    receiver: Receiver, ojs: Any, monkeypatch: pytest.MonkeyPatch, is_out_of_time: bool
) -> None:
    receiver.headers = {"Content-Length": "100"}
    reads: list[bytes] = []
    read = https._TimedStream.read

    def read_headers(stream: Any, size: int, timeout: float | None = None) -> bytes:
        if reads and is_out_of_time:
            raise PayloadUnavailable("out of time")
        reads.append(read(stream, size, timeout))
        return reads[-1]

    monkeypatch.setattr(https._TimedStream, "read", read_headers)
    subscribe(receiver.url)
    deliver(ojs, "a")
    assert deliveries.latest()[0].status == DeliveryStatus.DELIVERED
    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [400, 404, 410, 302])
@pytest.mark.requirement("WH-014", "WH-R005")
def test_what_the_receiver_rejects_is_not_repeated_until_somebody_asks(
    receiver: Receiver, ojs: Any, status: int
) -> None:
    receiver.responses = [status]
    receiver.headers = {"Location": f"http://127.0.0.1:{receiver.port}/elsewhere"}
    subscribe(receiver.url)
    deliver(ojs, "a")
    (found,) = deliveries.latest()
    assert (found.status, len(receiver.received)) == ("dead", 1)
    assert found.error is not None
    assert found.error["message"] == f"status {status}"
    deliveries.retry(found.row.pk)
    run(ojs)
    assert deliveries.latest()[0].status == DeliveryStatus.DELIVERED


@pytest.mark.parametrize("is_date", [False, True])
@pytest.mark.requirement("WH-012", "WH-R009")
def test_a_receiver_that_is_asked_too_often_says_how_long_to_wait(
    receiver: Receiver, ojs: Any, is_date: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []
    post = https.post

    def posted(*args: Any, **values: Any) -> Any:
        timeouts.append(values["timeout"])
        return post(*args, **values)

    monkeypatch.setattr(https, "post", posted)
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=7200), usegmt=True)
    receiver.responses = [429]
    receiver.headers = {"Retry-After": later if is_date else "7200"}
    subscribe(receiver.url)
    happen("a")
    dispatch.dispatch()
    ojs.drain(webhooks.QUEUE)
    (job,) = jobs()
    assert job.state == State.RETRYABLE
    assert Job.primary.filter(due_at__gt=F("started_at") + timedelta(seconds=7000)).exists()
    assert timeouts == [30]


def test_a_webhook_is_disabled_after_deliveries_in_a_row_that_failed(
    receiver: Receiver, ojs: Any
) -> None:
    receiver.responses = [400, 200] + [400] * webhooks.DISABLED_AFTER
    webhook = subscribe(receiver.url)
    happen(*["a"] * (webhooks.DISABLED_AFTER + 3))
    while dispatch.dispatch():
        pass
    run(ojs)
    webhook.refresh_from_db()
    assert (webhook.active, webhook.failures) == (False, webhooks.DISABLED_AFTER)
    assert webhook.disabled_at is not None
    # What was left was not sent.
    assert len(receiver.received) == webhooks.DISABLED_AFTER + 2
    happen("while disabled")
    dispatch.dispatch()
    subscriptions.update(webhook.pk, Subscription(active=True))
    deliver(ojs, "after")
    assert receiver.subjects[-1:] == ["after"]
    assert "while disabled" not in receiver.subjects


@pytest.mark.requirement("WH-R008")
def test_a_removed_webhook_gets_nothing_more(receiver: Receiver, ojs: Any) -> None:
    webhook = subscribe(receiver.url)
    happen("a")
    dispatch.dispatch()
    subscriptions.remove(webhook.pk)
    run(ojs)
    assert receiver.received == []
    assert [job.state for job in jobs()] == [State.DISCARDED]


def test_a_webhook_with_more_deliveries_than_a_batch_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "BATCH", 2)
    webhook, other = subscribe(), subscribe()
    happen("a", "b", "c", "d", "e")
    dispatch.dispatch()
    subscriptions.remove(webhook.pk)
    assert list(Webhook.primary.all()) == [other]
    assert set(WebhookDelivery.primary.values_list("webhook", flat=True)) == {other.pk}


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_webhook_is_removed_while_its_events_are_dispatched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webhook = subscribe()
    happen("a")
    removals: list[Future[None]] = []
    enqueue = dispatch.enqueue

    with Other() as other:

        def enqueue_during_removal(*arguments: Any) -> Any:
            stored = enqueue(*arguments)
            removals.append(other.do(lambda: subscriptions.remove(webhook.pk)))
            until_one_waits(removals[0])
            assert not removals[0].done()
            return stored

        monkeypatch.setattr(dispatch, "enqueue", enqueue_during_removal)
        assert dispatch.dispatch() == 1
        removals[0].result()
    assert not Webhook.primary.exists()
    assert not WebhookDelivery.primary.exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::1]:{port}/",
        "http://169.254.169.254/",
        "http://user@127.0.0.1:{port}/",
    ],
)
@pytest.mark.requirement("WH-009")
def test_nothing_is_sent_to_an_address_that_is_not_public(
    url: str, receiver: Receiver, ojs: Any, settings: Any
) -> None:
    settings.OJS = {**settings.OJS, "WEBHOOK_PRIVATE_NETWORKS": []}
    subscribe()
    # The last one is rejected at the creation too.
    Webhook.primary.update(url=url.format(port=receiver.port))
    deliver(ojs, "a")
    assert deliveries.latest()[0].status == DeliveryStatus.DEAD
    assert receiver.received == []


def test_http_is_for_development(settings: Any, receiver: Receiver, ojs: Any) -> None:
    subscribe(receiver.url)
    settings.OJS = {**settings.OJS, "WEBHOOK_HTTP": False}
    with pytest.raises(InvalidRequest, match="https"):
        subscribe(receiver.url)
    deliver(ojs, "a")
    assert receiver.received == []


@pytest.mark.requirement("WH-R007")
def test_a_secret_is_not_stored_and_the_one_before_signs_for_a_day() -> None:
    webhook = subscribe()
    old = subscriptions.secret_of(webhook)
    assert old.startswith("whsec_")
    assert old not in str(Webhook.primary.values().get())
    webhook, new = subscriptions.rotate_secret(webhook.pk)
    assert subscriptions.secrets_of(webhook) == [new, old]
    end_grace(webhook)
    assert subscriptions.secrets_of(webhook) == [new]


def end_grace(webhook: Webhook) -> None:
    """Let the day pass after which the latest former secret is not used any more."""
    salt, _until = webhook.former_salts[0]
    webhook.former_salts[0] = [salt, format_timestamp(timezone.now() - timedelta(seconds=1))]
    webhook.save()


def test_a_repeated_rotation_keeps_the_secret_that_the_receiver_has() -> None:
    webhook = subscribe()
    first = subscriptions.secret_of(webhook)
    webhook, second = subscriptions.rotate_secret(webhook.pk)
    webhook, third = subscriptions.rotate_secret(webhook.pk)
    assert subscriptions.secrets_of(webhook) == [third, second, first]
    end_grace(webhook)
    webhook, fourth = subscriptions.rotate_secret(webhook.pk)
    assert subscriptions.secrets_of(webhook) == [fourth, third, first]


def test_of_many_former_secrets_the_latest_ones_sign() -> None:
    webhook = subscribe()
    secrets = []
    for _ in range(20):
        webhook, latest = subscriptions.rotate_secret(webhook.pk)
        secrets.append(latest)
    assert subscriptions.secrets_of(webhook) == list(reversed(secrets[-11:]))


@pytest.mark.both
@pytest.mark.django_db(transaction=True)
def test_two_rotations_at_a_time_keep_the_secrets_of_each_other() -> None:
    webhook = subscribe()
    first = subscriptions.secret_of(webhook)

    with Other() as other:
        with transaction.atomic():
            _, second = subscriptions.rotate_secret(webhook.pk)
            again = other.do(lambda: subscriptions.rotate_secret(webhook.pk))
            # It waits for this commit, or would have read the webhook before it.
            wait([again], timeout=0.5)
        webhook, third = again.result(BOUND)
    assert subscriptions.secrets_of(webhook) == [third, second, first]


def test_a_new_secret_key_of_the_project_signs_beside_the_one_before(settings: Any) -> None:
    webhook = subscribe()
    old = subscriptions.secret_of(webhook)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"
    new, *others = subscriptions.secrets_of(webhook)
    assert (new != old, others) == (True, [old])


def test_events_that_are_not_recorded_cannot_be_subscribed_to() -> None:
    with pytest.raises(UnsupportedFeature, match=r"job\.completed"):
        subscribe("https://a.test", "job.discarded", "job.completed")


def test_records_of_deliveries_are_kept_as_long_as_events(receiver: Receiver, ojs: Any) -> None:
    receiver.responses = [400]
    subscribe(receiver.url)
    happen("a", "b")
    dispatch.dispatch()
    WebhookDelivery.primary.update(created_at=F("created_at") - 31 * DAY)
    # Their jobs have not run.
    assert dispatch.prune() == 0
    run(ojs)
    # The first one is a dead letter, which may be retried.
    assert dispatch.prune() == 1
    deliveries.retry(deliveries.latest()[0].row.pk)
    run(ojs)
    assert dispatch.prune() == 1
    deliver(ojs, "c")
    assert dispatch.prune() == 0


def test_a_job_that_is_no_delivery_of_an_event_sends_nothing(receiver: Receiver, ojs: Any) -> None:
    webhook = subscribe(receiver.url)
    other = subscribe(receiver.url)
    happen("a")
    dispatch.dispatch()
    first, second = jobs()
    event = first.args[1]
    Job.primary.filter(pk=first.pk).update(args=[str(other.pk), event])
    Job.primary.filter(pk=second.pk).update(args=[str(other.pk), event | {"id": "evt_1"}])
    made_up: list[Any] = [{}, event, event | {"subject": "made up"}]
    arguments = [*([str(webhook.pk), each] for each in made_up), ["x", {}]]
    push_batch(
        [
            EnvelopeFactory(type=webhooks.JOB_TYPE, queue=webhooks.QUEUE, args=args)
            for args in arguments
        ]
    )
    run(ojs)
    assert receiver.received == []
    assert [job.state for job in jobs()] == [State.DISCARDED] * 6
    assert [job.attempt for job in jobs()] == [1] * 6


def test_claims_that_were_given_back_spend_no_attempt(receiver: Receiver, ojs: Any) -> None:
    receiver.responses = [500]
    subscribe(receiver.url)
    happen("a")
    dispatch.dispatch()
    Job.primary.filter(queue=webhooks.QUEUE).update(
        attempt=webhooks.MAX_ATTEMPTS, returned=webhooks.MAX_ATTEMPTS
    )
    ojs.drain(webhooks.QUEUE)
    (job,) = jobs()
    assert (job.state, job.spent) == (State.RETRYABLE, 1)
    age_all(webhooks.DELAYS[0] + MINUTE)
    run(ojs)
    assert deliveries.latest()[0].status == DeliveryStatus.DELIVERED


def test_a_success_counts_although_others_failed_while_it_was_sent() -> None:
    webhook = subscribe()
    deliveries.died(webhook)
    assert webhook.failures == 0
    deliveries.succeeded(webhook)
    webhook.refresh_from_db()
    assert webhook.failures == 0


def test_without_a_webhook_the_events_are_not_read(django_assert_num_queries: Any) -> None:
    happen("a")
    with django_assert_num_queries(1):
        assert dispatch.dispatch() == 0
    assert Event.objects.get().position is None


def test_a_delivery_that_is_not_known_is_not_found() -> None:
    with pytest.raises(NotFound):
        deliveries.get(UUID(int=1))


def test_the_name_of_a_webhook_shows_no_token() -> None:
    webhook = subscribe("https://hooks.test:8443/token?key=secret")
    assert str(webhook) == "https://hooks.test"
    webhook.url = "https://user:password@hooks.test/"
    assert str(webhook) == str(webhook.pk)

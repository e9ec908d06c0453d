"""The breaker, the reading of manifests and responses, and the settings of destinations."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_ojs import conf
from django_ojs.conf import of
from django_ojs.extensions.outbox import responses
from django_ojs.extensions.outbox import storage as outbox
from django_ojs.extensions.outbox.breaker import COOLDOWN, THRESHOLD, Breaker, BreakerState
from django_ojs.extensions.outbox.relay import lease_name
from django_ojs.extensions.outbox.remote_manifest import RemoteManifest
from django_ojs.extensions.outbox.responses import DeliveryOutcome
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.spec import ids
from tests.cases import together


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_waits_double_until_the_breaker_opens_and_then_are_its_cooldown() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock, random_=lambda: 0.5)
    assert [breaker.failed().total_seconds() for _ in range(7)] == [1, 2, 4, 8, 10, 10, 10]
    assert breaker.state is BreakerState.OPEN
    clock.now += COOLDOWN
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.succeeded()
    assert (breaker.state, breaker.wait) == (BreakerState.CLOSED, 0)


def test_a_server_may_ask_for_a_longer_wait_but_not_for_ever() -> None:
    breaker = Breaker(clock=Clock(), random_=lambda: 0.5)
    assert breaker.failed(30).total_seconds() == 30
    assert breaker.failed(0).total_seconds() == 2
    assert breaker.failed(10**9) == outbox.LONGEST_WAIT
    assert breaker.failures < THRESHOLD


def test_a_manifest_is_read_in_both_dialects_and_garbage_says_nothing() -> None:
    site = {"limits": {"max_job_size_bytes": 5, "max_meta_size_bytes": 4, "max_type_length": True}}
    assert RemoteManifest.parse(site) == RemoteManifest(envelope_bytes=5, meta_bytes=4)
    for garbage in (None, [], "x", {"limits": [], "extensions": 3, "capabilities": None}):
        assert RemoteManifest.parse(garbage) == RemoteManifest()


@together(
    ("text", "seconds"),
    [("7", 7.0), (" 7 ", 7.0), ("-1", None), ("9" * 30, None), ("soon", None), (None, None),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
     ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
     ("Wed, 21 Oct 2015 07:28:00 +99999999", None)],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    headers = {} if text is None else {"retry-after": text}
    key = ids.uuid7()
    assert responses.read(429, headers, None, [key], batch=False).retry_after == seconds


@pytest.mark.parametrize(
    ("date", "seconds"),
    [("Wed, 21 Oct 2015 07:27:53 GMT", 7.0), ("Wed, 21 Oct 2015 08:00:00 GMT", 0.0), ("now", 0.0)],
)
def test_a_date_is_read_by_the_servers_clock_and_not_by_ours(date: str, seconds: float) -> None:
    headers = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": date}
    response = responses.read(429, headers, None, [ids.uuid7()], batch=False)
    assert response.retry_after == seconds


@together(
    ("error", "room"),
    [
        ({"code": "QUEUE_FULL", "details": {"depth": 7, "bound": 10}}, 3),
        ({"code": "QUEUE_FULL", "depth": 7, "bound": 10}, 3),
        ({"code": "QUEUE_FULL", "details": {"depth": 12, "bound": 10}}, 0),
        ({"code": "QUEUE_FULL", "details": {"depth": 7, "bound": 10, "unit": "bytes"}}, 0),
        ({"code": "QUEUE_FULL", "details": {"depth": "7", "bound": 10}}, 0),
        ({"code": "QUEUE_FULL", "details": [7, 10]}, 0),
        ({"code": "rate_limited", "details": {"depth": 7, "bound": 10}}, 0),
    ],
    ids=range(7),
)
def test_a_full_queue_says_how_many_jobs_it_would_take(error: Any, room: int) -> None:
    response = responses.read(429, {}, {"error": error}, ids.many(5), batch=True)
    assert (response.outcome, response.room) == (DeliveryOutcome.LATER, room)


@together(
    ("status", "body", "outcome"),
    [
        (200, {"job": None, "dropped": True}, DeliveryOutcome.DELIVERED),
        (200, {"job": {"id": "other"}, "deduplicated": True}, DeliveryOutcome.DELIVERED),
        (201, [], DeliveryOutcome.LATER),
        (409, {"error": {"code": "duplicate"}}, DeliveryOutcome.DELIVERED),
        (409, {"error": {"code": "conflict"}}, DeliveryOutcome.REJECTED),
        (409, {"error": "x"}, DeliveryOutcome.LATER),
        (500, {"error": {"code": "x", "retryable": False}}, DeliveryOutcome.REJECTED),
        (501, None, DeliveryOutcome.LATER),
        (413, None, DeliveryOutcome.REJECTED),
    ],
)
def test_a_response_means(status: int, body: Any, outcome: DeliveryOutcome) -> None:
    assert responses.read(status, {}, body, [ids.uuid7()], batch=False).outcome is outcome


@together("status", [400, 404, 405, 409, 413, 422])
def test_a_batch_that_is_rejected_goes_job_by_job(status: int) -> None:
    keys = ids.many(2)
    assert responses.read(status, {}, None, keys, batch=True).outcome is DeliveryOutcome.ONE_BY_ONE


@pytest.mark.parametrize(
    ("jobs", "outcome"),
    [
        ([{"id": "a"}, None], DeliveryOutcome.DELIVERED),
        ([{"id": "a"}], DeliveryOutcome.LATER),
        ([{"id": "a"}, {}], DeliveryOutcome.LATER),
        ([1, 2], DeliveryOutcome.LATER),
        ({"a": 1, "b": 2}, DeliveryOutcome.LATER),
    ],
    ids=range(5),
)
def test_a_batch_has_arrived_when_each_job_is_in_the_response(
    jobs: Any, outcome: DeliveryOutcome
) -> None:
    assert responses.read(201, {}, {"jobs": jobs}, ids.many(2), batch=True).outcome is outcome


@pytest.mark.parametrize("status", [401, 408, 429, 500, 503])
def test_a_batch_that_came_at_a_bad_time_waits_as_a_whole(status: int) -> None:
    keys = ids.many(2)
    assert responses.read(status, {}, None, keys, batch=True).outcome is DeliveryOutcome.LATER


def test_the_name_of_a_lease_fits_whatever_the_alias() -> None:
    assert lease_name("remote", "default") == "outbox remote default"
    assert len(lease_name("r" * 32, "a" * 24)) <= 64
    assert len(lease_name("r" * 32, "a" * 90)) <= 64
    assert lease_name("r", "a" * 90) != lease_name("r", "b" * 90)


@together(
    "bad",
    [
        [],
        {"local": {"url": "http://a"}},
        {"UPPER": {"url": "http://a"}},
        {"a": {}},
        {"a": {"url": "ftp://a"}},
        {"a": {"url": "http://key@a"}},
        {"a": {"url": "http://[a:.]"}},
        {"a": {"url": "http://a:99999"}},
        {"a": {"url": "http://a", "queue": ["x"]}},
        {"a": {"url": "http://a", "queues": "x"}},
        {"a": {"url": "http://a", "api_key": "line\nbreak"}},
        {"a": {"url": "http://a", "batch_size": 0}},
        {"a": {"url": "http://a", "batch_size": True}},
        {"a": {"url": "http://a", "timeout": 0}},
    ],
    ids=str,
)
def test_a_bad_destination_is_an_error(bad: Any) -> None:
    with override_settings(OJS={"OUTBOX": bad}), pytest.raises(ImproperlyConfigured) as caught:
        conf.settings()
    assert "OUTBOX" in str(caught.value)


def test_the_key_of_a_destination_is_in_no_text_and_its_url_has_no_path_of_ours() -> None:
    given = {"a": {"url": "https://a.example/x/ojs/v1/", "api_key": "secret", "timeout": "PT5S"}}
    with override_settings(OJS={"OUTBOX": given}):
        (made,) = of(OutboxSettings).outbox
        assert "secret" not in repr(conf.settings())
    assert made.url == "https://a.example/x"
    assert made.timeout.total_seconds() == 5

"""How many requests a caller over HTTP may send: HTTP_RATE_LIMIT (ojs-rate-limiting §10.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured

from django_ojs.conf import settings as ojs_settings
from django_ojs.http.throttling import CallerThrottle
from django_ojs.operations.access import api_keys
from tests.http.api import Api, ApiResponse
from tests.model_factories import ApiKeyFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

JOB = {"type": "test.job", "args": []}
KEYS = ["django_ojs.http.authentication.ApiKeyAuthentication"]


@pytest.fixture(autouse=True)
def limited(settings: Any) -> Iterator[None]:
    settings.OJS = {"HTTP_RATE_LIMIT": "3/min", "HTTP_AUTHENTICATION": KEYS}
    cache.clear()
    yield
    cache.clear()


def caller(*scopes: str, name: str = "billing") -> Api:
    return Api(ApiKeyFactory(name=name, scopes=scopes or ["admin"])[1])


def left(response: ApiResponse) -> tuple[int, int]:
    """Return the limit of a response, and how many requests are left."""
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining")
    limit, remaining = (int(response.headers[name]) for name in names)
    return limit, remaining


@pytest.mark.requirement("RL-10.4-1", "RL-10.4-2")
def test_a_key_may_send_so_many_requests_and_each_response_says_how_many_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(CallerThrottle, "timer", lambda _: now)
    api = caller()
    assert [left(api.post("jobs", JOB)) for _ in range(2)] == [(3, 2), (3, 1)]
    missing = api.get("jobs/01a1fc00-0000-7000-8000-000000000001")
    assert (missing.status, left(missing)) == (404, (3, 0))
    rejected = api.post("jobs", JOB)
    error = rejected.error(429, "rate_limited")
    assert error["retryable"] is True
    assert "Retry-After" in error["hint"]
    assert left(rejected) == (3, 0)
    wait = int(rejected.headers["Retry-After"])
    assert wait == 60
    assert error["details"]["retry_after_seconds"] == wait
    reset = int(rejected.headers["X-RateLimit-Reset"])
    assert reset == math.ceil(now + 60)
    # Another key has requests of its own, and so does the same one a minute later.
    assert left(caller(name="other").post("jobs", JOB)) == (3, 2)
    monkeypatch.setattr(CallerThrottle, "timer", lambda _: reset + 1)
    assert left(api.post("jobs", JOB)) == (3, 2)


def test_a_key_and_the_key_that_replaces_it_are_one_caller() -> None:
    old, text = ApiKeyFactory(scopes=["admin"])
    assert left(Api(text).post("jobs", JOB)) == (3, 2)
    _, new = api_keys.replace(old.prefix)
    assert left(Api(new).post("jobs", JOB)) == (3, 1)


@pytest.mark.requirement("RL-10.4-1")
def test_responses_to_requests_that_are_not_counted_have_the_headers_too() -> None:
    for _ in range(5):
        assert left(Api().get("/ojs/v1/health")) == (3, 3)
        assert left(Api().get("/ojs/nowhere")) == (3, 3)
    wrong = Api("ojs_wrong").get("queues")
    assert (wrong.status, left(wrong)) == (401, (3, 3))
    producer = caller("producer")
    assert left(producer.post("jobs", JOB)) == (3, 2)
    denied = producer.get("queues")
    assert (denied.status, left(denied)) == (403, (3, 2))


def test_callers_of_an_open_api_are_told_apart_by_their_addresses(settings: Any) -> None:
    open_to_all = ["django_ojs.http.authentication.AllowAny"]
    settings.OJS = {"HTTP_RATE_LIMIT": "2/hour", "HTTP_AUTHENTICATION": open_to_all}
    one, other = Api(REMOTE_ADDR="10.0.0.1"), Api(REMOTE_ADDR="10.0.0.2")
    assert [one.get("queues").status for _ in range(3)] == [200, 200, 429]
    assert other.get("queues").status == 200


def test_without_its_cache_no_request_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError

    monkeypatch.setattr(LocMemCache, "get", fails)
    assert [caller(name=str(n)).get("queues").status for n in range(5)] == [200] * 5


def test_by_default_requests_are_not_limited(settings: Any) -> None:
    settings.OJS = {"HTTP_AUTHENTICATION": KEYS}
    api = caller()
    for _ in range(5):
        response = api.get("queues")
        assert response.status == 200
    assert "X-RateLimit-Limit" not in response.headers


@pytest.mark.parametrize("rate", [5, "5", "0/min", "5/minutely", "20000/min", "x/min", "5/w", ""])
def test_a_rate_that_cannot_be_read_is_an_error(settings: Any, rate: Any) -> None:
    settings.OJS = {"HTTP_RATE_LIMIT": rate}
    with pytest.raises(ImproperlyConfigured, match="HTTP_RATE_LIMIT"):
        ojs_settings()
    settings.OJS = {"HTTP_RATE_LIMIT_CACHE": "nowhere"}
    with pytest.raises(ImproperlyConfigured, match="CACHE"):
        ojs_settings()

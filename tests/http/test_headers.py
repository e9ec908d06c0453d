"""Ids of requests, versions, content types. `api.framed` checks what every response has."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import RequestFactory
from django.urls import resolve

from django_ojs.spec import ids
from tests.cases import together
from tests.http.api import JSON_TYPE, Api, stored

pytestmark = [pytest.mark.django_db, pytest.mark.once]

JOB = {"type": "a", "args": []}
GENERATED = re.compile(r"req_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
api = Api()


class TestRequestId:
    @pytest.mark.parametrize("given", ["a", "req_1", "x" * 200, '<>"&;%00', "~!@#$%^&*()"])
    def test_the_clients_own_comes_back(self, given: str) -> None:
        headers = {"X-Request-Id": given}
        assert api.post("jobs", JOB, headers=headers).headers["X-Request-Id"] == given
        error = api.get("nothing", headers=headers).error(404, "not_found")
        assert error["request_id"] == given

    @together(
        "given",
        ["", " ", "a b", "a\tb", "x" * 201, "é", "a\x00b", "a\r\nSet-Cookie: b", "\x7f"],
        undo=True,
    )
    def test_a_hostile_one_is_replaced(self, given: str) -> None:
        response = api.get("health", headers={"X-Request-Id": given})
        assert GENERATED.fullmatch(response.headers["X-Request-Id"])
        assert "Set-Cookie" not in response.headers

    def test_each_request_gets_its_own(self) -> None:
        found = {api.get("health").headers["X-Request-Id"] for _ in range(20)}
        assert len(found) == 20
        assert all(GENERATED.fullmatch(text) for text in found)


class TestVersion:
    @pytest.mark.parametrize("asked", ["1.0", "1", " 1.0 ", "1.0.0-rc.1"])
    def test_ours_may_be_asked_for(self, asked: str) -> None:
        api.post("jobs", JOB, headers={"OJS-Version": asked}).ok(201)

    @together("asked", ["", "2.0", "0.9", "1.1", "x", "1.0, 2.0", "é" * 100], undo=True)
    @together("path", ["jobs", "nothing"], undo=True)
    def test_another_is_unsupported(self, path: str, asked: str) -> None:
        api.post(path, JOB, headers={"OJS-Version": asked}).error(422, "unsupported")
        assert stored() == 0


class TestContentType:
    @together(
        "given",
        [
            JSON_TYPE,
            "application/json",
            f"{JSON_TYPE}; charset=utf-8",
            "application/json;charset=UTF-8",
            "APPLICATION/JSON",
            " application/json ; charset=nonsense",
        ],
        undo=True,
    )
    def test_both_types_are_read_with_or_without_a_charset(self, given: str) -> None:
        assert api.post("jobs", JOB | {"args": ["ä"]}, content_type=given).ok(201)

    @together(
        "given",
        [
            "",
            "text/plain",
            "text/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/json, text/plain",
            "application/jsonx",
            "application/xml",
            "*/*",
            "x" * 5_000,
        ],
        undo=True,
    )
    def test_any_other_is_400_and_stores_nothing(self, given: str) -> None:
        response = api.post("jobs", JOB, content_type=given)
        response.error(400, "invalid_request", field="Content-Type")
        assert stored() == 0

    @pytest.mark.parametrize("accept", ["text/html", "application/xml;q=1", "", "nonsense", "*/*"])
    def test_accept_decides_nothing(self, accept: str) -> None:
        api.post("jobs", JOB, headers={"Accept": accept}).ok(201)
        api.get("nothing", headers={"Accept": accept}).error(404, "not_found")
        api.get("health?format=xml", headers={"Accept": accept}).ok()


@pytest.mark.parametrize("path", ["jobs/{}", "jobs/{}/progress", "health", "/ojs/metrics"])
def test_a_cache_of_the_whole_site_repeats_no_response(settings: Any, path: str) -> None:
    """A client would read a state of ten minutes ago, also with a key that was revoked since."""
    cache = "django.middleware.cache"
    settings.MIDDLEWARE = [
        f"{cache}.UpdateCacheMiddleware",
        *settings.MIDDLEWARE,
        f"{cache}.FetchFromCacheMiddleware",
    ]
    client = Api()  # It reads the setting.
    path = path.format(client.push()["id"])
    first, second = (client.get(path).headers["X-Request-Id"] for _ in range(2))
    assert first != second


class TestHead:
    def test_head_returns_what_get_returns_without_a_body(self) -> None:
        key = api.push()["id"]
        for path in (f"jobs/{key}", "health", "/ojs/manifest"):
            response = api.ask("HEAD", path)
            assert (response.status, response.body) == (200, None)

    @pytest.mark.parametrize("path", ["/ojs/manifest", "/ojs/v1/nothing", "/ojs/v1/workers/ack"])
    def test_head_has_the_length_of_a_body_that_is_left_out(self, path: str) -> None:
        # The test client would leave it out by itself.
        view, args, values = resolve(path)
        headers = {"X-Request-Id": "same"}
        got, head = (
            view(getattr(RequestFactory(), method)(path, headers=headers), *args, **values)
            for method in ("get", "head")
        )
        assert got.content
        assert head.content == b""
        assert head.status_code == got.status_code
        assert int(head["Content-Length"]) == len(got.content)

    def test_its_errors_have_the_same_status_and_headers(self) -> None:
        assert api.ask("HEAD", f"jobs/{ids.uuid7()}").status == 404
        assert api.ask("HEAD", "nothing").status == 404
        response = api.ask("HEAD", "workers/fetch")
        assert (response.status, response.headers["Allow"]) == (405, "POST")

"""Errors have one shape, whatever raises them, and reveal nothing that was sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import (
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.http import Http404, UnreadablePostError
from rest_framework import exceptions as drf

from django_ojs.http.views import base, jobs, system
from django_ojs.operations.push import push
from django_ojs.spec import errors
from django_ojs.storage import database
from tests.cases import together
from tests.http.api import NOBODY, Api, stored

pytestmark = [pytest.mark.django_db, pytest.mark.once]

JOB = {"type": "a", "args": []}
api = Api()
#: Returns the 500 itself; the test client would raise what the server logs.
calm = Api(raising=False)
SECRET = "hunter2 is my password"


def breaking(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let PUSH raise."""

    def broken(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(jobs, "push", broken)


@pytest.mark.postgresql
def test_a_database_that_is_read_only_is_unavailable_for_a_while() -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        answer = calm.post("jobs", JOB)
        transaction.set_rollback(True)
    answer.error(503, "backend_error")
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_connection_to_a_server_that_takes_no_writes_is_closed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    calm.post("jobs", JOB).error(503, "backend_error")
    assert calm.post("jobs", JOB).status == 201


@pytest.mark.requirement("RL-10.4-2")
@together("debug", [False, True], undo=True)
@together(
    ("error", "status", "code"),
    [
        (ValueError(SECRET), 500, "backend_error"),
        (RecursionError(SECRET), 500, "backend_error"),
        (MemoryError(SECRET), 500, "backend_error"),
        (IntegrityError(SECRET), 500, "backend_error"),
        (DataError(SECRET), 500, "backend_error"),
        (drf.APIException(SECRET), 500, "backend_error"),
        (errors.ConnectionError(SECRET), 500, "backend_error"),
        (OperationalError(SECRET), 503, "backend_error"),
        (InterfaceError(SECRET), 503, "backend_error"),
        (drf.NotAuthenticated(SECRET), 401, "UNAUTHENTICATED"),
        (drf.AuthenticationFailed(SECRET), 401, "UNAUTHENTICATED"),
        (drf.PermissionDenied(SECRET), 403, "PERMISSION_DENIED"),
        (drf.NotFound(SECRET), 404, "not_found"),
        (Http404(SECRET), 404, "not_found"),
        (drf.MethodNotAllowed(SECRET), 405, "invalid_request"),
        (drf.UnsupportedMediaType(SECRET), 400, "invalid_request"),
        (drf.ParseError(SECRET), 400, "invalid_payload"),
        (drf.ValidationError({SECRET: [SECRET]}), 400, "invalid_request"),
        (UnreadablePostError(SECRET), 400, "invalid_payload"),
        (SuspiciousOperation(SECRET), 400, "invalid_request"),
        (drf.Throttled(wait=1.5), 429, "rate_limited"),
        (drf.Throttled(), 429, "rate_limited"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
    undo=True,
)
def test_whatever_is_raised_has_a_response_in_the_contracts_shape_and_without_its_text(
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    error: Exception,
    status: int,
    code: str,
    debug: bool,
) -> None:
    settings.DEBUG = debug
    breaking(monkeypatch, error)
    response = calm.post("jobs", JOB)
    response.error(status, code)
    assert SECRET.encode() not in response.raw.content


def test_a_wait_is_rounded_up_to_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, drf.Throttled(wait=1.5))
    assert api.post("jobs", JOB).headers["Retry-After"] == "2"


def test_a_500_is_logged_with_its_traceback_and_without_its_text_in_the_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    breaking(monkeypatch, ValueError(SECRET))
    with caplog.at_level(logging.ERROR, "django_ojs.http"):
        response = calm.post("jobs", JOB)
    (record,) = [found for found in caplog.records if found.name == "django_ojs.http"]
    assert record.exc_info is not None
    assert SECRET not in record.getMessage()
    assert response.headers["X-Request-Id"] in record.getMessage()


def test_a_response_that_cannot_be_written_is_a_500_in_the_same_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "manifest", lambda base: {"x": object()})
    calm.get("/ojs/manifest").error(500, "backend_error")


def test_an_authentication_class_that_cannot_be_imported_is_a_500_in_the_same_shape(
    settings: Any,
) -> None:
    settings.OJS = {"HTTP_AUTHENTICATION": ["nowhere.Nobody"]}
    calm.post("jobs", JOB).error(500, "backend_error")


@together("debug", [False, True], undo=True)
@together("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"], undo=True)
@together(
    "path",
    [
        "/ojs",
        "/ojs/",
        "/ojs/v1",
        "/ojs/v2/jobs",
        "/ojs/v1/nothing",
        "/ojs/v1/jobs/",
        "/ojs/v1/jobs/x/y/z",
        "/ojs/manifest/",
        "/ojs//manifest",
        "/ojs/a%0Ab",
        "/ojs/%00",
        "/ojs/%ff%fe",
        "/ojs/v1/workers/fetch/",
        "/ojs/<script>",
    ],
    undo=True,
)
def test_a_path_that_is_not_there_is_404_for_every_method(
    settings: Any, path: str, method: str, debug: bool
) -> None:
    settings.DEBUG = debug
    response = api.ask(method, path)
    response.error(404, "not_found")
    assert b"script" not in response.raw.content


@together("path", ["workflows/{}", "cron/{}", "jobs/{}", "webhooks/subscriptions/{}", "nothing/{}"])
def test_what_is_not_there_is_named_unless_it_is_long(path: str) -> None:
    long = "x" * 5_000
    details = api.get(path.format(long)).error(404, "not_found")["details"]
    assert "resource_id" not in details
    assert api.get(path.format("short")).error(404, "not_found")["details"]["resource_id"]


def test_a_path_of_the_projects_own_is_none_of_ours() -> None:
    assert "OJS-Version" not in api.client.get("/ojsx").headers


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("jobs", {"POST"}),
        ("jobs/batch", {"POST"}),
        (f"jobs/{NOBODY}", {"GET", "HEAD", "DELETE"}),
        ("workers/fetch", {"POST"}),
        ("workers/heartbeat", {"POST"}),
        ("/ojs/manifest", {"GET", "HEAD"}),
        ("health", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_is_not_there_is_405_and_says_which_are(path: str, allowed: set[str]) -> None:
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - allowed:
        if (path, method) == ("jobs", "GET"):
            continue  # a list of jobs may be served there
        response = api.ask(method, path)
        response.error(405, "invalid_request")
        assert set(response.headers["Allow"].split(", ")) == allowed


class TestWhatWasSentIsNotRepeated:
    @together(
        ("path", "body"),
        [
            *(
                ("jobs", JOB | {name: SECRET})
                for name in (
                    *("id", "type", "args", "queue", "priority", "timeout_ms", "timeout", "retry"),
                    *("scheduled_at", "expires_at", "unique", "tags", "pending", "meta", "schema"),
                    *("specversion", "options", "metadata", "visibility_timeout_ms", "rate_limit"),
                )
            ),
            ("jobs", JOB | {"args": [{SECRET: 2**60}]}),
            ("jobs", JOB | {"retry": {"max_attempts": SECRET}}),
            ("jobs", JOB | {"retry": {"backoff_strategy": SECRET}}),
            ("jobs", JOB | {"retry": {"initial_interval": SECRET}}),
            ("jobs/batch", {"jobs": [JOB, SECRET]}),
            ("workers/fetch", {"queues": [SECRET]}),
            ("workers/fetch", {"queues": ["a"], "count": SECRET}),
            ("workers/ack", {"job_id": SECRET}),
            ("workers/nack", {"job_id": NOBODY, "error": {"type": SECRET}}),
            ("workers/nack", {"job_id": NOBODY, "error": SECRET}),
            ("workers/heartbeat", {"worker_id": "w", "state": SECRET}),
            ("workers/heartbeat", {"worker_id": "w", "active_jobs": [SECRET]}),
            ("workers/heartbeat", {"worker_id": "w", "started_at": SECRET}),
            ("jobs", SECRET),
            ("jobs", f'{{"type": "{SECRET}'.encode()),
        ],
        undo=True,
    )
    def test_in_a_body(self, path: str, body: Any) -> None:
        response = api.post(path, body)
        assert 400 <= response.status < 500
        assert SECRET.encode() not in response.raw.content
        assert stored() == 0

    @pytest.mark.parametrize(
        "header", ["Content-Type", "Content-Encoding", "OJS-Version", "Authorization", "Accept"]
    )
    def test_in_a_header(self, settings: Any, header: str) -> None:
        if header == "Authorization":
            settings.OJS = {
                "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]
            }
        given = (
            {"content_type": SECRET} if header == "Content-Type" else {"headers": {header: SECRET}}
        )
        response = api.post("jobs", JOB, **given)
        assert SECRET.encode() not in response.raw.content
        assert response.status >= 400 or header == "Accept"


class TestWithoutItsDatabase:
    @pytest.fixture(autouse=True)
    def _gone(self, transactional_db: None) -> Iterator[None]:
        link = database.connection()
        link.close()
        kept = dict(link.settings_dict)
        if link.vendor == "postgresql":
            link.settings_dict |= {"HOST": "127.0.0.1", "PORT": "1"}
        else:
            link.settings_dict["NAME"] = "/nowhere/at/all.sqlite3"
        yield
        link.close()
        link.settings_dict.update(kept)

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("POST", "jobs", JOB),
            ("POST", "jobs/batch", {"jobs": [JOB]}),
            ("GET", f"jobs/{NOBODY}", None),
            ("DELETE", f"jobs/{NOBODY}", None),
            ("POST", f"jobs/{NOBODY}/activate", None),
            ("POST", "workers/fetch", {"queues": ["a"]}),
            ("POST", "workers/ack", {"job_id": NOBODY}),
            ("POST", "workers/heartbeat", {"worker_id": "w"}),
        ],
    )
    def test_every_operation_is_503_and_says_when_to_come_back(
        self, method: str, path: str, body: Any
    ) -> None:
        response = calm.ask(method, path, body)
        response.error(503, "backend_error")
        assert b"nowhere" not in response.raw.content
        assert b"127.0.0.1" not in response.raw.content

    def test_so_is_a_key_that_cannot_be_looked_up(self, settings: Any) -> None:
        settings.OJS = {
            "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]
        }
        mine = Api(f"ojs_{'a' * 10}_{'b' * 43}", raising=False)
        mine.post("jobs", JOB).error(503, "backend_error")

    @pytest.mark.parametrize("path", ["health", "ready"])
    def test_health_says_so_and_nothing_of_the_database(self, path: str) -> None:
        response = api.get(path)
        body = response.ok(503)
        assert body["status"] == "degraded"
        assert body["backend"]["status"] == "disconnected"
        assert "nowhere" not in str(body)
        assert "127.0.0.1" not in str(body)

    def test_the_manifest_is_there_all_the_same(self) -> None:
        api.get("/ojs/manifest").ok()


@pytest.mark.django_db(transaction=True)
def test_atomic_requests_does_not_wrap_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    link = database.connection()
    monkeypatch.setitem(link.settings_dict, "ATOMIC_REQUESTS", True)
    seen = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(any(found.in_atomic_block for found in connections.all()))
        return push(*args, **kwargs)

    monkeypatch.setattr(jobs, "push", watched)
    api.push()
    assert seen == [False]
    # What an error response reports as stored stays stored.
    key = api.active(queue="b", retry={"max_attempts": 1})["id"]
    error = {"type": "Boom", "message": "m"}
    api.post("workers/nack", {"job_id": key, "error": error}).ok()
    api.post("workers/ack", {"job_id": key}).error(409, "conflict")
    assert api.info(key)["state"] == "discarded"


def test_a_projects_own_settings_of_drf_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused:
        def __init__(self) -> None:
            raise AssertionError("the project's API has its own rules")

    for name in ("permission", "throttle", "authentication", "parser", "renderer"):
        # What `REST_FRAMEWORK` sets ends in these attributes.
        monkeypatch.setattr(base.OJSView, f"{name}_classes", [Refused])
    for name in ("versioning_class", "content_negotiation_class", "metadata_class"):
        monkeypatch.setattr(base.OJSView, name, Refused)
    assert api.post("jobs", JOB).status == 201
    api.get("jobs/none").error(404, "not_found")

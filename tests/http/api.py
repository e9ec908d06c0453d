"""A client of the HTTP API that checks the frame of every response."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.test import Client

from tests.factories import jobs as stored_jobs
from tests.model_factories import ApiKeyFactory

JSON_TYPE = "application/openjobspec+json"
#: No job has it. Always the same: the names of tests must be, in each process that collects them.
NOBODY = "01a1fc00-0000-7000-8000-000000000001"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: What an `error` always holds, and what it may hold beside that.
ALWAYS = {"code", "message", "retryable", "details", "request_id"}
SOMETIMES = {"type", "hint", "docs_url", "queue", "depth", "bound", "strategy"}


class ApiResponse:
    """A response whose frame is right: see `framed`."""

    def __init__(self, raw: HttpResponse) -> None:
        self.raw = raw
        self.status = raw.status_code
        self.headers = raw.headers
        is_json = bool(raw.content) and raw["Content-Type"] != TEXT_TYPE
        self.body: Any = json.loads(raw.content) if is_json else None

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    def ok(self, status: int = 200) -> Any:
        """Return the body of a response that has this status."""
        assert self.status == status, (self.status, self.body)
        return self.body

    def error(self, status: int, code: str, **details: Any) -> dict[str, Any]:
        """Return the error of a response with this status and code; it has these details."""
        assert (self.status, self.body["error"]["code"]) == (status, code), self.body
        error: dict[str, Any] = self.body["error"]
        assert error["details"].items() >= details.items(), error
        return error


class Api:
    """Somebody who asks. Paths are those below `/ojs/v1/`, or begin with a slash."""

    def __init__(self, key: str | None = None, *, raising: bool = True, **extra: Any) -> None:
        if key is not None:
            extra["HTTP_AUTHORIZATION"] = f"Bearer {key}"
        self.client = Client(raise_request_exception=raising, **extra)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON_TYPE,
        headers: dict[str, str] | None = None,
        **extra: Any,
    ) -> ApiResponse:
        """Send a body (bytes as they are, anything else as JSON, None not at all)."""
        where = path if path.startswith("/") else f"/ojs/v1/{path}"
        if body is None:
            raw = self.client.generic(method, where, headers=headers, **extra)
        else:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            raw = self.client.generic(method, where, data, content_type, headers=headers, **extra)
        return framed(raw)

    def get(self, path: str, **values: Any) -> ApiResponse:
        return self.ask("GET", path, **values)

    def post(self, path: str, body: Any = None, **values: Any) -> ApiResponse:
        return self.ask("POST", path, body, **values)

    def put(self, path: str, body: Any = None, **values: Any) -> ApiResponse:
        return self.ask("PUT", path, body, **values)

    def delete(self, path: str, body: Any = None, **values: Any) -> ApiResponse:
        return self.ask("DELETE", path, body, **values)

    def push(self, status: int = 201, **values: Any) -> Any:
        """PUSH a job and return it as the response has it."""
        return self.post("jobs", {"type": "test.job", "args": []} | values).ok(status)["job"]

    def fetch(self, queue: str = "default", **values: Any) -> list[Any]:
        """FETCH from a queue."""
        found: list[Any] = self.post("workers/fetch", {"queues": [queue]} | values).ok()["jobs"]
        return found

    def active(self, *, worker_id: str | None = None, **values: Any) -> Any:
        """PUSH a job and FETCH it."""
        job = self.push(**values)
        more = {} if worker_id is None else {"worker_id": worker_id}
        (claimed,) = self.fetch(job["queue"], **more)
        assert claimed["id"] == job["id"]
        return claimed

    def info(self, job_id: str) -> Any:
        """INFO."""
        return self.get(f"jobs/{job_id}").ok()["job"]


def is_text(raw: HttpResponse) -> bool:
    """Whether this is the one response that is no JSON: metrics."""
    return raw.content.startswith(b"# HELP ojs_")


def framed(raw: HttpResponse) -> ApiResponse:
    """Check what every response must have."""
    assert raw["Content-Type"] == (TEXT_TYPE if is_text(raw) else JSON_TYPE)
    assert raw["OJS-Version"] == "1.0"
    assert raw["X-Request-Id"]
    response = ApiResponse(raw)
    if response.body is None:
        return response
    assert isinstance(response.body, dict)
    if response.status >= 400 and "backend" not in response.body:
        assert list(response.body) == ["error"]
        error = response.body["error"]
        assert set(error) >= ALWAYS
        assert set(error) <= ALWAYS | SOMETIMES
        assert isinstance(error["details"], dict)
        # A 429 without Retry-After: what never fits needs no second try.
        later = response.status == 429 and "Retry-After" in raw
        later_there = later or error["code"] == "queue_paused"
        assert error["retryable"] is (later_there or response.status in (500, 503, 504))
        assert error["request_id"] == raw["X-Request-Id"]
        assert error["message"]
        if response.status == 404:
            assert error["hint"]
            assert error["docs_url"]
        if later or response.status == 503:
            assert int(raw["Retry-After"]) >= 1
        if response.status == 401:
            assert raw["WWW-Authenticate"]
    else:
        assert response.status < 400 or response.status == 503
    return response


def make_key(*scopes: str, queues: tuple[str, ...] = ()) -> str:
    """Make an API key and return its text."""
    return ApiKeyFactory(scopes=scopes, queues=queues)[1]


def stored() -> int:
    """Count the jobs that are stored."""
    return stored_jobs().count()


def state_of(job_id: str) -> str:
    """Look at a job's state without asking the API."""
    return str(stored_jobs().get(pk=UUID(job_id)).state)

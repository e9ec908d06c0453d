"""The public SDKs, by what each of them sends: headers of its HTTP library, shape of its bodies.

The headers are those that the HTTP library adds on its own. Of the bodies, the fields below that a
comment names were seen in requests of SDKs, though not in which one; all others have the shape that
the HTTP binding (Go, Java), the worker protocol (JavaScript, Python) or core (Ruby) gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.factories import HOUR, age_all
from tests.http.clients.wire import OJS_JSON, Wire, pass_time

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

WORKER = "worker_019414d4-aaaa-7000-8000-111111111111"


@dataclass(frozen=True)
class SDK:
    """What one SDK sends."""

    name: str
    headers: Mapping[str, str]
    #: Beside type and args.
    job: Mapping[str, Any]
    #: Beside queues.
    fetch: Mapping[str, Any]
    #: Beside the id of the worker and the ids of its jobs.
    beat: Mapping[str, Any]
    #: Seconds between two beats.
    interval: float
    error: Mapping[str, Any]
    #: The number of active jobs in `active_jobs`, and their ids in `active_job_ids`.
    ids_apart: bool = False
    #: Whether ACK and FAIL name the worker.
    claims: bool = False
    ack: Mapping[str, Any] = field(default_factory=dict)

    def heartbeat(self, *jobs: str) -> dict[str, Any]:
        """Return the body of a BEAT."""
        held = {"active_job_ids": jobs, "active_jobs": len(jobs)}
        return {
            "worker_id": WORKER,
            **(held if self.ids_apart else {"active_jobs": jobs}),
            **self.beat,
        }

    def outcome(self, job: str, **more: Any) -> dict[str, Any]:
        """Return the body of an ACK or a FAIL."""
        return {"job_id": job, **({"worker_id": WORKER} if self.claims else {}), **more}


GO = SDK(
    name="go",
    headers={
        "User-Agent": "Go-http-client/1.1",
        "Accept-Encoding": "gzip",
        "Content-Type": OJS_JSON,
    },
    # Seen: `delay_until` and `max_attempts` in the options.
    job={"options": {"queue": "email", "max_attempts": 2, "timeout_ms": 600_000}},
    fetch={"count": 1, "worker_id": WORKER, "visibility_timeout_ms": 30_000},
    beat={"visibility_timeout_ms": 30_000},
    interval=15,
    error={"code": "handler_error", "message": "SMTP rejected", "retryable": True},
    ack={"result": {"sent": True}},
)
JAVASCRIPT = SDK(
    name="javascript",
    # fetch() of Node.
    headers={
        "Accept": "*/*",
        "Accept-Language": "*",
        "Sec-Fetch-Mode": "cors",
        "User-Agent": "node",
        "Accept-Encoding": "gzip, deflate",
        "Content-Type": OJS_JSON,
    },
    # Seen: `unique.key` with names of dimensions.
    job={
        "meta": {"trace_id": "t"},
        "options": {
            "queue": "email",
            "retry": {"max_attempts": 2},
            "unique": {"key": ["type", "queue", "args"], "on_conflict": "ignore"},
        },
    },
    # Seen: a FETCH without a worker, whose BEAT names one.
    fetch={"count": 1},
    beat={"state": "running"},
    interval=5,
    error={"type": "TypeError", "message": "not a function", "backtrace": ["at a.js:1"]},
    ids_apart=True,
)
PYTHON = SDK(
    name="python",
    # httpx.
    headers={
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "python-httpx/0.27.0",
        "Content-Type": OJS_JSON,
    },
    job={"options": {"queue": "email", "retry": {"max_attempts": 2, "jitter": False}}},
    # Seen: `batch_size`.
    fetch={"batch_size": 1, "worker_id": WORKER},
    beat={"state": "running", "hostname": "host", "pid": 7, "queues": ["email"], "concurrency": 4},
    interval=15,
    error={"type": "ValueError", "message": "", "backtrace": "File a.py, line 1"},
    ids_apart=True,
    claims=True,
)
RUBY = SDK(
    name="ruby",
    # Net::HTTP.
    headers={
        "Accept-Encoding": "gzip;q=1.0,deflate;q=0.6,identity;q=0.3",
        "Accept": "*/*",
        "User-Agent": "Ruby",
        "Content-Type": "application/json",
    },
    # Core's spelling: everything at the top level.
    job={
        "specversion": "1.0",
        "queue": "email",
        "timeout": 600,
        "retry": {"max_attempts": 2, "initial_interval": "PT1S"},
    },
    fetch={"count": 1, "worker_id": WORKER},
    beat={},
    interval=15,
    # Seen: a failure without a message.
    error={"type": "RuntimeError"},
)
JAVA = SDK(
    name="java",
    # java.net.http.HttpClient offers HTTP/2 with each request without TLS.
    headers={
        "Connection": "Upgrade, HTTP2-Settings",
        "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
        "Upgrade": "h2c",
        "User-Agent": "Java-http-client/17.0.9",
        "Content-Type": OJS_JSON,
    },
    job={"meta": {}, "options": {"queue": "email", "priority": 0, "retry": {"max_attempts": 2}}},
    fetch={"count": 1, "worker_id": WORKER, "visibility_timeout_ms": 30_000},
    beat={"visibility_timeout_ms": 30_000},
    interval=10,
    error={"code": "handler_error", "message": "java.io.IOException", "details": {"a": "b"}},
    claims=True,
)
SDKS = (GO, JAVASCRIPT, PYTHON, RUBY, JAVA)

each = pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.name)


class Client(Wire):
    """One SDK, and what it does for its user."""

    def __init__(self, url: str, sdk: SDK) -> None:
        super().__init__(url, **sdk.headers)
        self.sdk = sdk

    def enqueue(self, *args: Any) -> str:
        job = {"type": "email.send", "args": list(args), **self.sdk.job}
        found: str = self.send("POST", "/v1/jobs", job, 201)["job"]["id"]
        return found

    def claim(self) -> list[str]:
        body = {"queues": ["email"], **self.sdk.fetch}
        return [job["id"] for job in self.send("POST", "/v1/workers/fetch", body)["jobs"]]

    def nack(self, key: str) -> Any:
        body = self.sdk.outcome(key, error=self.sdk.error)
        return self.send("POST", "/v1/workers/nack", body)


@pytest.fixture
def client(live_server: LiveServer, sdk: SDK) -> Client:
    return Client(live_server.url, sdk)


@each
def test_a_long_job_is_kept_by_beats_and_done_once(client: Client, sdk: SDK) -> None:
    key = client.enqueue("a@example.com")
    assert client.claim() == [key]
    for _ in range(8):
        answer = client.send("POST", "/v1/workers/heartbeat", sdk.heartbeat(key))
        assert (answer["state"], answer["jobs_extended"]) == ("running", [key])
        pass_time(sdk.interval)
        assert client.claim() == []
    done = client.send("POST", "/v1/workers/ack", sdk.outcome(key, **sdk.ack))
    assert (done["acknowledged"], done["job_id"], done["state"]) == (True, key, "completed")
    shown = client.send("GET", f"/v1/jobs/{key}")["job"]
    assert (shown["state"], shown["attempt"]) == ("completed", 1)
    assert "errors" not in shown


@each
def test_a_job_that_fails_is_tried_again_and_becomes_a_dead_letter(
    client: Client, sdk: SDK
) -> None:
    key = client.enqueue("a@example.com")
    kind = sdk.error.get("type") or sdk.error["code"]
    assert client.claim() == [key]
    first = client.nack(key)
    assert (first["state"], first["attempt"], first["max_attempts"]) == ("retryable", 1, 2)
    age_all(HOUR)
    assert client.claim() == [key]
    assert client.nack(key)["state"] == "discarded"
    (dead,) = client.send("GET", "/v1/dead-letter?queue=email&limit=10")["jobs"]
    assert (dead["id"], dead["error"]["code"]) == (key, kind)
    assert [(entry["attempt"], entry["code"]) for entry in dead["errors"]] == [(1, kind), (2, kind)]
    client.send("POST", f"/v1/dead-letter/{key}/retry")
    assert client.claim() == [key]


@each
def test_a_worker_that_dies_loses_its_job_to_the_next_one(client: Client, sdk: SDK) -> None:
    key = client.enqueue("a@example.com")
    assert client.claim() == [key]
    client.send("POST", "/v1/workers/heartbeat", sdk.heartbeat(key))
    pass_time(46)
    assert client.claim() == [key]


@each
def test_a_batch_is_stored_and_a_job_cancelled(client: Client, sdk: SDK) -> None:
    jobs = [{"type": "email.send", "args": [n], **sdk.job} for n in range(3)]
    stored = client.send("POST", "/v1/jobs/batch", {"jobs": jobs}, 201)
    keys = [job["id"] for job in stored["jobs"]]
    assert stored["count"] == len(set(keys)) == 3
    assert client.send("DELETE", f"/v1/jobs/{keys[0]}")["job"]["state"] == "cancelled"
    client.send("DELETE", f"/v1/jobs/{keys[0]}", status=409)
    assert client.claim() == keys[1:2]


@each
def test_progress_and_what_is_not_served(client: Client, sdk: SDK) -> None:
    key = client.enqueue("a@example.com")
    client.claim()
    # Seen in two SDKs, which fail the job at a 404.
    body = {"job_id": key, "progress": 0.5}
    assert client.send("POST", "/v1/workers/progress", body)["progress"] == 0.5
    assert client.send("GET", "/v1/workflows")["workflows"] == []
    assert client.send("GET", "/manifest")["capabilities"]["workflows"] is True


@each
def test_queues_are_listed_paused_and_resumed(client: Client, sdk: SDK) -> None:
    key = client.enqueue("a@example.com")
    assert [queue["name"] for queue in client.send("GET", "/v1/queues")["queues"]] == ["email"]
    client.send("POST", "/v1/queues/email/pause")
    assert client.claim() == []
    client.send("POST", "/v1/queues/email/resume")
    assert client.claim() == [key]
    assert client.send("GET", "/v1/queues/email/stats")["stats"]["active"] == 1

"""The shape of responses, where clients with typed models read it."""

from __future__ import annotations

import pytest
from pytest_django.live_server_helper import LiveServer

from django_ojs.http import readiness
from django_ojs.models import Worker
from tests.factories import HOUR, age_all
from tests.http.clients.wire import Wire
from tests.http.test_jobs import TIMESTAMP
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

ERROR = {"type": "SMTPError", "message": "rejected"}


@pytest.fixture
def wire(live_server: LiveServer) -> Wire:
    return Wire(live_server.url)


def nack(wire: Wire, key: str, **error: object) -> dict[str, object]:
    body = {"job_id": key, "error": ERROR | error}
    found: dict[str, object] = wire.send("POST", "/v1/workers/nack", body)
    return found


def test_a_later_beat_does_not_blank_what_an_earlier_one_said(wire: Wire) -> None:
    started = "2026-01-01T00:00:00.000Z"
    first = {"started_at": started, "hostname": "h", "queues": ["a"], "labels": ["l"]}
    wire.beat(worker_id="w", concurrency=7, version="1.2", **first)
    wire.beat(worker_id="w", pid=3)
    wire.beat(worker_id="w", hostname="other")
    (shown,) = wire.send("GET", "/v1/admin/workers")["items"]
    assert (shown["started_at"], shown["queues"]) == (started, ["a"])
    row = Worker.objects.get()
    assert (row.labels, row.concurrency, row.version) == (["l"], 7, "1.2")
    assert (row.hostname, row.pid) == ("other", 3)


def test_a_beat_with_a_hostname_only_leaves_the_time_of_the_first_beat(wire: Wire) -> None:
    wire.beat(worker_id="w", hostname="h", pid=3)
    wire.beat(worker_id="w", hostname="h", pid=3)
    assert Worker.objects.get().started_at is not None


@pytest.mark.parametrize("path", ["health", "ready"])
def test_the_latency_of_the_backend_is_an_integer(
    wire: Wire, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "ANSWER_TIMEOUT", BOUND)
    latency = wire.send("GET", f"/v1/{path}")["backend"]["latency_ms"]
    assert type(latency) is int
    assert latency >= 0


@pytest.mark.requirement("L0-OPS-004")
def test_an_error_has_its_code_and_the_history_the_attempt_and_the_time(wire: Wire) -> None:
    # http-binding §12.1, ojs-errors §6.1 (ERR-012).
    key = wire.push(options={"retry": {"max_attempts": 2}})
    wire.fetch()
    nack(wire, key)
    job = wire.send("GET", f"/v1/jobs/{key}")["job"]
    assert job["error"] == {**ERROR, "code": "SMTPError"}
    (entry,) = job["errors"]
    assert entry.items() >= {**ERROR, "code": "SMTPError", "attempt": 1}.items()
    assert TIMESTAMP(entry["occurred_at"])
    (admin,) = wire.send("GET", "/v1/admin/jobs")["items"]
    assert admin["error"] == {**ERROR, "code": "SMTPError"}


def test_the_code_by_which_a_handler_decided_stays(wire: Wire) -> None:
    key = wire.push()
    wire.fetch()
    nack(wire, key, code="DISCARD")
    job = wire.send("GET", f"/v1/jobs/{key}")["job"]
    assert [job["error"]["code"], job["errors"][0]["code"]] == ["DISCARD", "DISCARD"]


def test_a_fetched_job_says_how_long_it_waited_for_this_attempt(wire: Wire) -> None:
    key = wire.push(options={"retry": {"initial_interval": "PT7S", "jitter": False}})
    wire.fetch()
    assert nack(wire, key)["retry_delay_ms"] == 7_000
    age_all(HOUR)
    (again,) = wire.fetch()
    assert (again["attempt"], again["retry_delay_ms"]) == (2, 7_000)
    assert [entry["code"] for entry in again["errors"]] == ["SMTPError"]


@pytest.mark.requirement("L1-DLQ-002")
def test_a_discard_has_its_time_and_the_dead_letter_its_history(wire: Wire) -> None:
    keys = [wire.push(options={"retry": {"max_attempts": 1}}) for _ in range(2)]
    wire.fetch(count=2)
    for key in keys:
        answer = nack(wire, key)
        assert answer["state"] == "discarded"
        assert answer["completed_at"] == answer["discarded_at"]
        assert "retry_delay_ms" not in answer
    listed = wire.send("GET", "/v1/dead-letter")["jobs"]
    assert sorted(job["id"] for job in listed) == sorted(keys)
    for job in listed:
        (entry,) = job["errors"]
        assert entry.items() >= {**ERROR, "code": "SMTPError", "attempt": 1}.items()
        assert TIMESTAMP(entry["occurred_at"])

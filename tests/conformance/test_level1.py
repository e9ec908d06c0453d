"""Level 1, reliable: retries, dead letters, heartbeat, leases (ojs-conformance §2.2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from django_ojs.models.worker import Directive
from django_ojs.operations import beat
from django_ojs.operations.workers.rescue import lapse
from tests.conformance.signals import received
from tests.factories import HOUR, MINUTE, age, in_state, read
from tests.http.api import Api

pytestmark = pytest.mark.django_db

ERROR = {"type": "Boom", "message": "it broke"}
api = Api()


def failed(key: str, **error: Any) -> Any:
    return api.post("workers/nack", {"job_id": key, "error": ERROR | error}).ok()


def wait_of(response: Any) -> timedelta:
    (entry,) = response["job"]["errors"][-1:]
    began = datetime.fromisoformat(entry["timestamp"])
    return datetime.fromisoformat(response["next_attempt_at"]) - began


@pytest.mark.requirement("L1-RET-001", "L1-RET-002")
def test_a_job_waits_longer_after_each_failure_up_to_the_largest_wait() -> None:
    policy = {
        "max_attempts": 5,
        "initial_interval": "PT1M",
        "backoff_coefficient": 3.0,
        "max_interval": "PT5M",
        "jitter": False,
    }
    key = api.push(retry=policy)["id"]
    waits = []
    for _ in range(4):
        (job,) = api.fetch()
        assert job["id"] == key
        response = failed(key)
        waits.append(response["retry_delay_ms"] // 60_000)
        assert abs(wait_of(response) - waits[-1] * MINUTE) < MINUTE / 2
        assert api.fetch() == []
        age(UUID(key), HOUR)
    assert waits == [1, 3, 5, 5]
    api.fetch()
    assert failed(key).items() >= {"state": "discarded", "attempt": 5}.items()


@pytest.mark.requirement("L1-RET-002")
def test_jitter_spreads_the_wait_within_its_bounds() -> None:
    waits = set()
    for _ in range(8):
        key = api.active(retry={"initial_interval": "PT1M", "max_interval": "PT1H"})["id"]
        waits.add(failed(key)["retry_delay_ms"])
    assert len(waits) > 1
    assert all(30_000 <= wait <= 90_000 for wait in waits)


@pytest.mark.requirement("L1-RET-002")
@pytest.mark.parametrize(
    "field", ["max_attempts", "initial_interval", "backoff_coefficient", "max_interval", "jitter"]
)
def test_each_field_of_a_policy_comes_back_and_is_checked(field: str) -> None:
    policy = {
        "max_attempts": 7,
        "initial_interval": "PT2S",
        "backoff_coefficient": 1.5,
        "max_interval": "PT9M",
        "jitter": False,
    }
    assert api.push(retry=policy)["retry"][field] == policy[field]
    bad = api.post("jobs", {"type": "a", "args": [], "retry": policy | {field: "nonsense"}})
    assert f"retry.{field}" in bad.error(422, "invalid_request")["message"]


@pytest.mark.requirement("L1-RET-003")
def test_an_error_that_is_not_retryable_discards_at_once() -> None:
    policy = {"max_attempts": 9, "non_retryable_errors": ["auth.*", "NotFound"]}
    for type_, state in (("NotFound", "discarded"), ("auth.x", "discarded"), ("X", "retryable")):
        key = api.active(retry=policy)["id"]
        assert failed(key, type=type_)["state"] == state


@pytest.mark.requirement("L1-DLQ-001", "L1-DLQ-002")
def test_a_job_whose_attempts_are_spent_is_a_dead_letter_to_be_looked_at() -> None:
    key = api.active(retry={"max_attempts": 1}, args=["kept"])["id"]
    assert failed(key)["state"] == "discarded"
    assert [job["id"] for job in api.get("dead-letter").ok()["jobs"]] == [key]
    letter = api.get(f"dead-letter/{key}").ok()["job"]
    assert (letter["id"], letter["args"], letter["error"]["type"]) == (key, ["kept"], "Boom")


@pytest.mark.requirement("L1-HB-001")
def test_a_beat_keeps_what_the_worker_holds() -> None:
    key = api.active(worker_id="w", visibility_timeout_ms=60_000)["id"]
    age(UUID(key), timedelta(seconds=50))
    api.post("workers/heartbeat", {"worker_id": "w", "active_jobs": [key]}).ok()
    age(UUID(key), timedelta(seconds=50))
    lapse()
    assert api.info(key)["state"] == "active"


@pytest.mark.requirement("L1-HB-002")
@pytest.mark.parametrize("directive", [Directive.QUIET, Directive.TERMINATE])
def test_the_response_to_a_beat_has_the_directive(directive: Directive) -> None:
    api.post("workers/heartbeat", {"worker_id": "w"}).ok()
    held = api.active(worker_id="w")["id"]
    beat.direct("w", directive)
    for jobs in ([], [held]):
        body = {"worker_id": "w", "active_jobs": jobs}
        assert api.post("workers/heartbeat", body).ok()["state"] == directive


@pytest.mark.requirement("L1-VT-001")
def test_a_claimed_job_is_reserved_for_its_visibility_timeout() -> None:
    row = read(UUID(api.active(visibility_timeout_ms=90_000)["id"]))
    assert row.lease_until is not None
    assert row.started_at is not None
    # On SQLite the two may differ by a millisecond more.
    assert abs(row.lease_until - row.started_at - timedelta(seconds=90)) < MINUTE / 2
    assert api.fetch() == []


@pytest.mark.requirement("L1-VT-002")
def test_a_job_whose_lease_ends_goes_to_the_next_worker() -> None:
    key = api.active(worker_id="a", visibility_timeout_ms=1_000)["id"]
    age(UUID(key), MINUTE)
    lapse()
    (job,) = api.fetch(worker_id="b")
    assert (job["id"], job["attempt"]) == (key, 2)
    api.post("workers/ack", {"job_id": key, "worker_id": "a"}).error(409, "conflict")
    api.post("workers/ack", {"job_id": key, "worker_id": "b"}).ok()


@pytest.mark.requirement("L1-CAN-001", "L1-CAN-002")
@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "retryable", "active"])
def test_a_job_that_has_not_ended_can_be_cancelled(state: str) -> None:
    key = str(in_state(state).pk)
    response = api.delete(f"jobs/{key}").ok()["job"]
    assert (response["state"], response["previous_state"]) == ("cancelled", state)
    assert api.info(key)["state"] == "cancelled"


@pytest.mark.requirement("L1-INFO-001")
def test_info_shows_all_there_is_to_know() -> None:
    key = api.active(queue="q", priority=3, tags=["a"], meta={"m": 1}, args=[7])["id"]
    failed(key)
    job = api.info(key)
    assert (
        job.items()
        >= {
            "id": key,
            "queue": "q",
            "priority": 3,
            "tags": ["a"],
            "meta": {"m": 1},
            "args": [7],
            "state": "retryable",
            "attempt": 1,
            "max_attempts": 3,
        }.items()
    )
    assert job["error"].items() >= ERROR.items()
    assert [error["type"] for error in job["errors"]] == ["Boom"]
    assert job.keys() >= {"created_at", "enqueued_at", "started_at", "next_attempt_at"}
    done = api.active()["id"]
    api.post("workers/ack", {"job_id": done, "result": {"n": 1}}).ok()
    ended = api.info(done)
    assert ended["result"] == {"n": 1}
    # Not that it is later: the clock may be set back by a moment.
    lasted = datetime.fromisoformat(ended["completed_at"]) - datetime.fromisoformat(
        ended["started_at"]
    )
    assert abs(lasted) < MINUTE
    api.get("jobs/0191a000-0000-7000-8000-000000000000").error(404, "not_found")


@pytest.mark.requirement("L1-EVT-001", "L1-EVT-002")
@pytest.mark.django_db(transaction=True)
def test_retries_and_cancellations_are_events(settings: Any) -> None:
    settings.OJS = settings.OJS | {"KEEP_EVENTS": ["*"]}
    key = api.active()["id"]
    failed(key)
    api.delete(f"jobs/{key}").ok()
    reported = api.get("events?types=job.retrying,job.cancelled").ok()["events"]
    assert [event["type"] for event in reported] == ["job.retrying", "job.cancelled"]
    assert {event["subject"] for event in reported} == {key}


@pytest.mark.requirement("L1-EVT-001", "L1-EVT-002")
@pytest.mark.django_db(transaction=True)
def test_retries_and_cancellations_are_signals_by_default() -> None:
    key = api.active()["id"]
    with received() as steps:
        failed(key)
        api.delete(f"jobs/{key}").ok()
    assert [(name, str(job.id), job.state) for name, job in steps] == [
        ("job_failed", key, "retryable"),
        ("job_retrying", key, "retryable"),
        ("job_cancelled", key, "cancelled"),
    ]

"""INFO, ojs-core §7.7, one MUST after the other."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.operations import info
from django_ojs.spec.envelope import OPTIONS
from django_ojs.spec.errors import JobNotFound
from django_ojs.spec.ids import uuid7
from tests.cases import together
from tests.factories import HOUR, MINUTE, age, in_state, push, snapshot
from tests.http.api import Api
from tests.spec.test_states import STATES

pytestmark = pytest.mark.django_db

#: Of each state: the attributes of core §5.3 that a response has, beside those it always has.
TIMES = {
    "scheduled": {"scheduled_at"},
    "available": {"enqueued_at"},
    "pending": set(),
    "active": {"enqueued_at", "started_at"},
    "completed": {"enqueued_at", "started_at", "completed_at", "result"},
    "retryable": {"enqueued_at", "started_at", "next_attempt_at", "error", "errors"},
    "cancelled": {"enqueued_at", "cancelled_at"},
    "discarded": {"enqueued_at", "started_at", "completed_at", "discarded_at", "error", "errors"},
}
ALWAYS = {
    "specversion",
    "id",
    "type",
    "queue",
    "args",
    "meta",
    "state",
    "attempt",
    "max_attempts",
    "priority",
    "created_at",
}


@pytest.mark.requirement("CORE-5.3-8", "CORE-7.7-1")
@together("state", STATES, undo=True)
def test_must_1_the_envelope_is_complete_and_holds_nothing_that_is_not_so(state: str) -> None:
    job = in_state(state)
    rendered = info.info(job.pk).envelope()
    assert rendered.keys() - {"retry"} == ALWAYS | TIMES[state]
    assert (rendered["id"], rendered["state"]) == (str(job.pk), state)
    for name in rendered:
        if name.endswith("_at"):
            assert rendered[name].endswith("Z")
            assert datetime.fromisoformat(rendered[name]).tzinfo is not None


#: Every attribute that a client may send, each with another value than its default.
SENT: dict[str, Any] = {
    "specversion": "1.0",
    "type": "email.send",
    "args": [1, "two", {"three": [3.5, None]}],
    "meta": {"trace": "abc"},
    "queue": "mail",
    "priority": 5,
    "timeout": 90,
    "timeout_ms": 90_000,
    "visibility_timeout_ms": 45_000,
    "scheduled_at": "2126-01-31T09:30:00.000Z",
    "expires_at": "2126-02-28T09:30:00.000Z",
    "enqueue_ttl": 3600,
    "total_timeout": 7200,
    "schema": "urn:example:email:1",
    "tags": ["a", "b"],
    "parent_id": "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
    "root_id": "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e01",
    "colour": {"of": "the client"},
}
#: They come back with the defaults of what was left out.
POLICIES: dict[str, Any] = {
    "retry": {"max_attempts": 7, "on_exhaustion": "discard"},
    "unique": {"keys": ["type", "args"], "on_conflict": "ignore"},
    "rate_limit": {"key": "mail", "concurrency": 2},
}


@pytest.mark.requirement("CORE-7.7-1")
def test_must_1_all_that_a_client_sent_is_in_the_response() -> None:
    api = Api()
    job = api.post("jobs", {**SENT, **POLICIES}).ok(201)["job"]
    shown = api.info(job["id"])
    assert {name: shown.get(name) for name in SENT} == SENT
    for name, policy in POLICIES.items():
        assert shown[name].items() >= policy.items()
    # All options that there are, but for other spellings of these.
    spelt_otherwise = {"delay_until", "metadata", "pending", "retry_policy", "visibility_timeout"}
    assert SENT.keys() | POLICIES.keys() | spelt_otherwise | {"max_attempts"} >= OPTIONS


@pytest.mark.requirement("CORE-7.7-1")
def test_must_1_what_became_of_a_job_is_in_the_response() -> None:
    api = Api()
    job = api.active(retry={"max_attempts": 2, "initial_interval": "PT1S"})
    api.put(f"jobs/{job['id']}/progress", {"progress": 0.5, "checkpoint": {"at": 1}}).ok()
    assert api.info(job["id"])["progress"] == 0.5
    error = {"type": "Boom", "message": "it broke", "details": {"of": "it"}}
    for _ in range(2):
        api.post("workers/nack", {"job_id": job["id"], "error": error}).ok()
        age(UUID(job["id"]), HOUR)
        fetched = api.fetch()
    assert not fetched
    shown = api.info(job["id"])
    assert (shown["state"], shown["attempt"], shown["max_attempts"]) == ("discarded", 2, 2)
    assert [each["attempt"] for each in shown["errors"]] == [1, 2]
    assert shown["error"].items() >= error.items()
    assert shown["errors"][0]["retry_delay_ms"] > 0
    assert shown["last_checkpoint"] == shown["checkpoint"]["state"] == {"at": 1}
    assert all(shown[name] for name in ("enqueued_at", "started_at", "discarded_at"))


@pytest.mark.requirement("CORE-5.3-3")
@together("state", STATES, undo=True)
def test_attempt_is_zero_until_the_first_run_and_one_based_after(state: str) -> None:
    ran = state in {"active", "completed", "retryable", "discarded"}
    assert info.info(in_state(state).pk).attempt == int(ran)


@pytest.mark.requirement("CORE-7.7-2")
def test_must_2_a_job_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(JobNotFound, match="no job with this id"):
        info.info(uuid7())


@pytest.mark.requirement("CORE-7.7-3")
@together("state", STATES, undo=True)
def test_must_3_looking_at_a_job_writes_nothing_even_when_time_has_passed(state: str) -> None:
    job = in_state(state, expires_at=2 * HOUR)
    age(job.pk, 48 * HOUR)
    before = snapshot(job.pk)
    with CaptureQueriesContext(connection) as queries:
        found = info.info(job.pk)
        found.envelope()
    assert {query["sql"].split()[0] for query in queries} == {"SELECT"}
    assert snapshot(job.pk) == before
    assert found.state == state


def test_a_job_shows_what_it_is_and_how_long_it_waited() -> None:
    job = push(type="mail.send")
    assert str(job) == f"mail.send {job.pk} (available)"
    assert job.waited is None
    done = in_state("completed")
    assert done.started_at is not None
    for before, waited in ((MINUTE, MINUTE), (-MINUTE, timedelta(0))):  # The clock was set back.
        done.enqueued_at = done.started_at - before
        assert done.waited == waited

"""INFO, ojs-core §7.7, one MUST after the other."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.operations import info
from django_ojs.spec.errors import JobNotFound
from django_ojs.spec.ids import uuid7
from tests.cases import together
from tests.factories import HOUR, age, in_state, push, snapshot
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
    assert done.waited is not None
    assert done.started_at is not None
    assert done.enqueued_at is not None
    assert done.waited == done.started_at - done.enqueued_at

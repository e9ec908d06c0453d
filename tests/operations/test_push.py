"""PUSH, ojs-core §7.1, one MUST after the other, and what §5 says of the values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from django_ojs.operations import push as pushing
from django_ojs.operations.push import PushOptions
from django_ojs.spec import json, times
from django_ojs.spec.errors import DuplicateJob, InvalidQueue, InvalidRequest
from django_ojs.spec.retry_policy import RetryPolicy
from tests.factories import HOUR, MINUTE, EnvelopeFactory, jobs, push, read

pytestmark = pytest.mark.django_db

LATER = datetime(2199, 1, 1, 12, 30, 0, 250_000, tzinfo=UTC)
EARLIER = datetime(1999, 1, 1, tzinfo=UTC)
SYSTEM = (
    "state",
    "attempt",
    "run",
    "returned",
    "created_at",
    "enqueued_at",
    "due_at",
    "expires_at",
    "started_at",
    "lease_until",
    "finished_at",
    "worker_id",
    "result",
    "error",
    "dead_letter",
    "discard_reason",
)


def state_of(**values: Any) -> str:
    return read(push(**values).pk).state


@pytest.mark.requirement("CORE-7.1-1")
def test_must_1_the_envelope_is_validated_before_anything_is_stored() -> None:
    with pytest.raises(InvalidQueue, match="queue must"):
        pushing.push(EnvelopeFactory(queue="No Such Queue"))
    assert not jobs().exists()


@pytest.mark.requirement("CORE-5.2-14", "CORE-7.1-2")
@pytest.mark.parametrize("when", [LATER, HOUR, timedelta(seconds=30)])
def test_must_2_a_future_time_makes_the_job_scheduled(when: datetime | timedelta) -> None:
    assert state_of(scheduled_at=when) == "scheduled"


@pytest.mark.requirement("CORE-7.1-3")
@pytest.mark.parametrize("when", [None, EARLIER, timedelta(0)])
def test_must_3_without_a_time_or_with_one_in_the_past_it_is_available(
    when: datetime | timedelta | None,
) -> None:
    assert state_of(scheduled_at=when) == "available"


@pytest.mark.requirement("CORE-7.1-4")
@pytest.mark.parametrize("when", [None, LATER, EARLIER])
def test_must_4_the_pending_flag_makes_it_pending(when: datetime | None) -> None:
    assert state_of(pending=True, scheduled_at=when) == "pending"


@pytest.mark.requirement("CORE-5.3-5", "CORE-7.1-5")
@pytest.mark.parametrize("values", [{}, {"expires_at": HOUR}, {"priority": 3}], ids=str)
def test_must_5_the_system_attributes_are_set(values: dict[str, Any]) -> None:
    job = push(**values)
    stored = read(job.pk)
    assert (stored.state, stored.attempt, stored.run, stored.returned) == ("available", 0, 0, 0)
    assert stored.created_at.tzinfo is not None
    # core §5.3: for immediately available jobs, the one equals the other.
    assert stored.enqueued_at == stored.created_at
    assert (stored.started_at, stored.finished_at, stored.worker_id) == (None, None, None)
    assert (stored.result, stored.error, stored.dead_letter) == (None, None, False)


@pytest.mark.requirement("CORE-7.1-5")
@pytest.mark.parametrize("values", [{"scheduled_at": HOUR}, {"pending": True}], ids=str)
def test_must_5_what_is_not_yet_available_has_no_time_of_becoming_so(values: Any) -> None:
    assert read(push(**values).pk).enqueued_at is None


@pytest.mark.requirement("CORE-7.1-8")
def test_must_9_the_whole_envelope_is_returned_as_info_would_read_it() -> None:
    job = push(
        type="report.render",
        queue="reports",
        args=[1, 2.5, "ż", None, {"a": [True]}],
        meta={"user_id": "7"},
        priority=-100,
        timeout_ms=1_500,
        visibility_timeout_ms=60_000,
        scheduled_at=HOUR,
        expires_at=2 * HOUR,
        retry=RetryPolicy(max_attempts=7),
        tags=["b", "a"],
        schema="urn:test:v1",
        extra={"x_unknown": {"kept": 1}},
    )
    assert job.envelope() == read(job.pk).envelope()
    for name in (*SYSTEM, "args", "meta", "options", "max_attempts", "tags", "retry_policy"):
        assert getattr(job, name) == getattr(read(job.pk), name), name
    assert job.envelope()["x_unknown"] == {"kept": 1}
    assert job.max_attempts == 7


def test_a_returned_job_needs_no_query_to_be_looked_at() -> None:
    job = push(args=[1])
    with CaptureQueriesContext(connection) as queries:
        assert all(getattr(job, field.attname) is not job for field in job._meta.concrete_fields)
    assert len(queries) == 0


def test_unknown_attributes_and_absolute_times_come_back_as_they_were_sent() -> None:
    text = "2199-01-01T14:30:00.250+02:00"
    job = push(scheduled_at=LATER, scheduled_at_text=text, extra={"later": [1]})
    rendered = read(job.pk).envelope()
    assert (rendered["scheduled_at"], rendered["later"]) == (text, [1])
    assert read(job.pk).due_at == LATER


@pytest.mark.parametrize(("column", "name"), [("due_at", "scheduled_at"), ("expires_at",) * 2])
def test_a_relative_time_counts_by_the_clock_of_the_database(
    column: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = push(**{name: HOUR})
    soon, late = Now() + 59 * MINUTE, Now() + 61 * MINUTE
    assert jobs().filter(pk=job.pk, **{f"{column}__gt": soon, f"{column}__lt": late}).exists()
    absolute = times.format_timestamp(getattr(read(job.pk), column))
    assert read(job.pk).envelope()[name] == absolute
    assert job.envelope()[name] == absolute


def test_both_relative_times_are_kept_apart() -> None:
    job = push(scheduled_at=HOUR, expires_at=3 * HOUR, tags=["kept"])
    stored = read(job.pk)
    assert stored.due_at is not None
    assert stored.expires_at == stored.due_at + 2 * HOUR
    assert (stored.tags, job.options) == (["kept"], stored.options)


def test_an_empty_batch_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="jobs must hold at least one job"):
        pushing.push_batch([])


@pytest.mark.parametrize("generated", [True, False])
def test_a_batch_of_a_thousand_is_one_statement(generated: bool) -> None:
    envelopes = [EnvelopeFactory(queue="bulk", args=[n]) for n in range(1_000)]
    with CaptureQueriesContext(connection) as queries:
        stored = pushing.push_batch(envelopes, PushOptions(batch=True, generated_ids=generated))
    statements = [q["sql"] for q in queries if "INSERT INTO ojs_job" in q["sql"]]
    assert len(statements) == 1
    assert [job.id for job in stored] == [e.id for e in envelopes]
    assert jobs().filter(queue="bulk", state="available").count() == 1_000


def test_a_batch_mixes_states_and_each_job_keeps_what_is_its_own() -> None:
    envelopes = [
        EnvelopeFactory(args=["plain"]),
        EnvelopeFactory(args=["later"], scheduled_at=HOUR),
        EnvelopeFactory(args=["pending"], pending=True, priority=9),
        EnvelopeFactory(args=["deadline"], expires_at=HOUR, timeout_ms=1),
        EnvelopeFactory(args=["fixed"], scheduled_at=LATER, visibility_timeout_ms=5),
    ]
    results = pushing.push_batch(envelopes)
    stored = [job.model() for job in results]
    assert [job.state for job in stored] == [
        "available",
        "scheduled",
        "pending",
        "available",
        "scheduled",
    ]
    for sent, job, result in zip(envelopes, stored, results, strict=True):
        again = read(job.pk)
        assert (again.args, again.priority, again.queue) == (sent.args, sent.priority, sent.queue)
        assert again.envelope() == job.envelope()
        assert json.dumps(result.render()) == json.dumps(again.envelope())
        assert (again.timeout_ms, again.visibility_timeout_ms) == (
            sent.timeout_ms,
            sent.visibility_timeout_ms,
        )


@pytest.mark.requirement("CORE-7.1-9")
@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_taken_id_rejects_the_batch_stores_nothing_and_leaves_the_transaction_usable(
    index: int,
) -> None:
    taken = push(args=["first"])
    envelopes = EnvelopeFactory.create_batch(5, queue="dup")
    envelopes[index].id = taken.pk
    with pytest.raises(DuplicateJob) as caught:
        pushing.push_batch(envelopes)
    assert caught.value.details == {"existing_job_id": str(taken.pk), "index": index}
    assert not jobs().filter(queue="dup").exists()
    assert read(taken.pk).args == ["first"]
    push(queue="dup")
    assert jobs().filter(queue="dup").count() == 1


def test_a_single_duplicate_names_no_index_and_leaves_the_transaction_usable() -> None:
    first = push()
    with pytest.raises(DuplicateJob) as caught:
        push(id=first.pk)
    assert caught.value.details == {"existing_job_id": str(first.pk)}
    assert jobs().count() == 1


@pytest.mark.parametrize("pending", [False, True])
def test_a_deadline_that_has_passed_does_not_reject_the_job(pending: bool) -> None:
    # It is discarded where it would be fetched (core §5.2), not at the door.
    assert state_of(expires_at=EARLIER, pending=pending) == ("pending" if pending else "available")


def test_in_a_batch_too_available_jobs_became_so_when_they_were_created() -> None:
    stored = pushing.push_batch(EnvelopeFactory.create_batch(5))
    again = [job.job() for job in stored]
    assert [job.enqueued_at for job in again] == [job.created_at for job in again]


def test_a_time_of_the_first_centuries_is_stored_as_it_is() -> None:
    long_ago = datetime(76, 2, 6, 21, 7, 11, 5_000, tzinfo=UTC)

    due = push(scheduled_at=long_ago)
    expired = push(expires_at=long_ago)

    assert read(due.pk).state == "available"
    assert read(expired.pk).expires_at == long_ago

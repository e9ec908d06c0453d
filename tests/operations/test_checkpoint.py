"""A checkpoint is kept for the next run, fenced by the claim, and ends with its job."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError, connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints import storage as checkpoints
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job
from django_ojs.operations import ack, cancel, delete, fail, fetch, progress, retry
from django_ojs.spec.errors import ClaimLost, Conflict, JobNotFound, NotFound
from django_ojs.spec.ids import uuid7
from django_ojs.spec.progress import Report
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.storage import database
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim
from tests.cases import together
from tests.factories import BOOM, HOUR, active, age, claim, held, hourly, in_state, jobs, push, read

pytestmark = pytest.mark.django_db

WITHOUT_DEAD_LETTER = RetryPolicy(max_attempts=1, on_exhaustion="discard")


def saved(**values: Any) -> Claimed:
    """Return an active job with a checkpoint."""
    job = active(**values)
    checkpoint.save(job.id, {"row": 5}, claim=held(job))
    return job


@pytest.mark.requirement("DUR-001", "DUR-002")
def test_the_latest_checkpoint_of_an_active_job_is_read_again() -> None:
    job = saved()
    for state in ([1, {"a": None}], "here", 7, None, {"row": 6, "é": 0.5}):
        checkpoint.save(job.id, state)
        assert checkpoint.read(job.id).state == state
    assert Checkpoint.objects.count() == 1


@pytest.mark.requirement("DUR-008")
def test_the_sequence_counts_all_checkpoints_of_a_job() -> None:
    job = saved(retry=hourly(3))
    assert checkpoint.save(job.id, 2).sequence == 2
    checkpoint.delete(job.id)
    assert checkpoint.save(job.id, 3).sequence == 3
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    (again,) = fetch.fetch([job.queue])
    found = checkpoint.save(again.id, 4)
    assert found.sequence == 4
    assert found == checkpoint.read(job.id)


@pytest.mark.requirement("DUR-R001", "DUR-004")
def test_the_next_run_gets_the_checkpoint_after_a_failure_and_a_return() -> None:
    job = saved(retry=hourly(3))
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    (again,) = fetch.fetch([job.queue])
    assert again.more["last_checkpoint"] == {"row": 5}
    assert again.envelope()["checkpoint"] == {"state": {"row": 5}, "sequence": 1}
    fail.requeue(job.id)
    (third,) = fetch.fetch([job.queue])
    assert third.envelope()["last_checkpoint"] == {"row": 5}
    assert read(job.id).envelope()["checkpoint"] == {"state": {"row": 5}, "sequence": 1}


def test_a_claim_whose_checkpoints_cannot_be_read_keeps_no_job(monkeypatch: Any) -> None:
    job = saved(retry=hourly(3))
    other = push(queue=job.queue)
    fail.requeue(job.id)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "of", Mock(side_effect=OperationalError))
        with pytest.raises(OperationalError):
            fetch.fetch([job.queue], count=5, worker_id="worker-a")
    assert {read(key).state for key in (job.id, other.pk)} == {"available"}
    found = {each.id: each for each in fetch.fetch([job.queue], count=5, worker_id="worker-a")}
    assert found.keys() == {job.id, other.pk}
    assert "checkpoint" in found[job.id].more


@pytest.mark.requirement("DUR-004")
def test_a_job_without_a_checkpoint_has_no_such_attribute() -> None:
    fresh, other = push(), saved(retry=hourly(3))
    fail.requeue(other.id)
    found = {job.id: job.envelope() for job in fetch.fetch([fresh.queue, other.queue], count=5)}
    assert "checkpoint" in found[other.id]
    assert not found[fresh.pk].keys() & {"checkpoint", "last_checkpoint"}
    assert "checkpoint" not in read(fresh.pk).envelope()


@pytest.mark.requirement("DUR-007")
@together(
    "state", ["pending", "scheduled", "available", "retryable", "completed", "cancelled"], undo=True
)
def test_only_an_active_job_gets_a_checkpoint(state: str) -> None:
    job = in_state(state)
    with pytest.raises(Conflict) as caught:
        checkpoint.save(job.pk, {"row": 5})
    assert caught.value.details["current_state"] == state
    assert not Checkpoint.objects.exists()


@pytest.mark.parametrize(
    "lost", [Claim(worker_id="another"), Claim(attempt=2), Claim(worker_id="worker-a", run=7)]
)
def test_a_worker_that_lost_the_job_stores_nothing(lost: Claim) -> None:
    job = saved()
    for save in (checkpoint.save, checkpoint.save_unlocked):
        with pytest.raises(ClaimLost):
            save(job.id, {"row": 6}, claim=lost)
    with pytest.raises(ClaimLost):
        checkpoint.announce(job.id, claim=lost)
    assert checkpoint.read(job.id).state == {"row": 5}


def test_a_run_that_lost_its_claim_meanwhile_replaces_no_later_checkpoint() -> None:
    job = saved(retry=hourly(3))
    fail.requeue(job.id)
    again = claim(read(job.id))
    checkpoint.save(again.id, {"row": 8}, claim=held(again))
    # Its claim was checked before the other run began.
    assert checkpoints.save(job.id, job.run, "6") is None
    assert checkpoint.read(job.id).state == {"row": 8}


@pytest.mark.requirement("DUR-009")
def test_there_is_no_checkpoint_of_what_is_no_job_or_has_saved_none() -> None:
    for call in (checkpoint.read, checkpoint.delete):
        with pytest.raises(JobNotFound):
            call(uuid7())
        with pytest.raises(NotFound) as caught:
            call(active().id)
        assert caught.value.details["resource_type"] == "checkpoint"
    with pytest.raises(JobNotFound):
        checkpoint.save(uuid7(), 1)


@pytest.mark.requirement("DUR-003")
def test_a_deleted_checkpoint_is_gone_and_the_next_run_starts_from_the_beginning() -> None:
    job = saved(retry=hourly(3))
    checkpoint.delete(job.id)
    with pytest.raises(NotFound):
        checkpoint.read(job.id)
    with pytest.raises(NotFound):
        checkpoint.delete(job.id)
    fail.requeue(job.id)
    (again,) = fetch.fetch([job.queue])
    assert not again.more


@pytest.mark.requirement("DUR-005")
def test_a_checkpoint_ends_with_its_job() -> None:
    done, batch, cancelled, discarded = (
        saved(),
        saved(),
        saved(),
        saved(retry=WITHOUT_DEAD_LETTER),
    )
    ack.ack(done.id)
    ack.ack_batch("worker-a", [(batch.id, batch.run, None)])
    cancel.cancel(cancelled.id)
    fail.fail(discarded.id, BOOM)
    for job in (done, batch, cancelled, discarded):
        assert checkpoint.latest(read(job.id)) is None
    assert not Checkpoint.objects.exists()


def test_a_dead_letter_keeps_its_checkpoint_for_a_retry_by_hand() -> None:
    job = saved(retry=hourly(1))
    fail.fail(job.id, BOOM)
    assert read(job.id).dead_letter
    assert checkpoint.read(job.id).state == {"row": 5}
    retry.retry(job.id)
    (again,) = fetch.fetch([job.queue])
    assert again.envelope()["checkpoint"] == {"state": {"row": 5}, "sequence": 1}
    fail.fail(job.id, BOOM)
    delete.delete(job.id)
    assert not Checkpoint.objects.exists()


def test_a_job_that_is_deleted_as_a_row_takes_its_checkpoint_along() -> None:
    job = saved()
    Job.objects.filter(pk=job.id).delete()
    assert not Checkpoint.objects.exists()


def test_a_checkpoint_extends_the_lease() -> None:
    job = active(visibility_timeout_ms=60_000)
    lease = read(job.id).lease_until
    age(job.id, 30.0)
    checkpoint.save(job.id, 1)
    extended = read(job.id).lease_until
    assert lease is not None
    assert extended is not None
    assert extended > lease - HOUR / 120
    assert (extended - lease).total_seconds() > -1


def test_the_checkpoint_of_a_report_is_the_checkpoint_of_the_job() -> None:
    job = saved()
    progress.report(job.id, Report(progress=0.5, checkpoint={"row": 7}), claim=held(job))
    assert checkpoint.read(job.id).state == {"row": 7}
    assert checkpoint.read(job.id).sequence == 2
    progress.report(job.id, Report(progress=0.6))
    assert checkpoint.read(job.id).state == {"row": 7}
    assert "checkpoint" not in read(job.id).progress


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change",
    [
        checkpoint.delete,
        lambda key: checkpoint.save(key, 2),
        lambda key: progress.report(key, Report(progress=0.5, checkpoint={"row": 7})),
    ],
    ids=["delete", "save", "report"],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_waits_for_a_checkpoint_under_the_lock_of_its_job(
    change: Any, is_new: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(database, "FIRST_PAUSE", 0.001)
    job = active() if is_new and change is not checkpoint.delete else saved()
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            # As the transaction of a handler, which has saved one and goes on.
            cursor.execute(
                "INSERT INTO ojs_checkpoint (job_id, run, sequence, state, created_at) "
                "VALUES (%s, 1, 1, '1', now()) ON CONFLICT (job_id) DO UPDATE SET state = '1'",
                [job.id],
            )
        with pytest.raises(OperationalError):
            change(job.id)
        with other.cursor() as cursor:
            cursor.execute("SELECT id FROM ojs_job FOR UPDATE NOWAIT")
        other.rollback()
        change(job.id)
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",)
    finally:
        other.close()


def test_a_plain_job_costs_no_statement_for_checkpoints() -> None:
    job = push()
    with CaptureQueriesContext(connection) as queries:
        (claimed,) = fetch.fetch([job.queue], worker_id="worker-a", due=False)
        ack.ack_batch("worker-a", [(claimed.id, claimed.run, None)])
    assert jobs().get(pk=job.pk).state == "completed"
    assert not [each for each in queries.captured_queries if "ojs_checkpoint" in each["sql"]]


@pytest.mark.requirement("DUR-R003")
def test_a_checkpoint_is_an_event_where_that_is_recorded() -> None:
    saved()
    with override_settings(OJS={"KEEP_EVENTS": ["job.checkpointed"]}):
        job = saved()
    (event,) = Event.objects.filter(type="job.checkpointed")
    assert (event.subject, event.queue) == (str(job.id), job.queue)
    assert event.data["sequence"] == 1
    assert event.data["size_bytes"] == len('{"row":5}')
    assert event.data["worker_id"] == "worker-a"
    assert "row" not in event.data

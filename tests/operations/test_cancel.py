"""CANCEL, ojs-core §7.6, one MUST after the other."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from django_ojs.operations import ack, beat, cancel, fail, fetch, promotion
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict
from django_ojs.spec.states import State
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    WORKER,
    active,
    age,
    held,
    in_state,
    jobs,
    read,
    snapshot,
)

pytestmark = pytest.mark.django_db
OPEN = ["scheduled", "available", "pending", "active", "retryable"]


@pytest.mark.requirement("CORE-7.6-1", "CORE-7.6-2", "CORE-7.6-3")
@pytest.mark.parametrize("state", OPEN)
def test_musts_1_to_3_a_job_that_has_not_ended_is_cancelled(state: str) -> None:
    job = in_state(state)
    cancelled, before = cancel.cancel(job.pk)
    assert (before, cancelled.state) == (State(state), "cancelled")
    stored = read(job.pk)
    assert (stored.state, stored.lease_until, stored.dead_letter) == ("cancelled", None, False)
    recent = {"finished_at__gt": Now() - MINUTE, "finished_at__lte": Now() + MINUTE}
    assert jobs().filter(pk=job.pk, **recent).exists()
    rendered = stored.envelope()
    assert "cancelled_at" in rendered
    assert not {"completed_at", "discarded_at", "next_attempt_at"} & rendered.keys()


@pytest.mark.requirement("CORE-6.5-5")
@pytest.mark.parametrize("state", OPEN)
def test_a_cancelled_job_never_runs_again(state: str) -> None:
    job = in_state(state, queue="a")
    cancel.cancel(job.pk)
    age(job.pk, 48 * HOUR)
    assert (promotion.promote(), rescue.lapse(), rescue.rescue([WORKER])) == (0, 0, 0)
    assert fetch.fetch(["a"]) == []
    assert read(job.pk).state == "cancelled"


def test_must_2_the_response_to_the_next_beat_names_the_job() -> None:
    job, other = active(), active()
    cancel.cancel(job.id)
    response = beat.beat(WORKER, holding=[job.id, other.id])
    assert (response.lost, response.jobs_extended) == ({job.id}, 1)


def test_must_2_the_ack_of_the_worker_is_rejected() -> None:
    job = active()
    cancel.cancel(job.id)
    for response in (
        lambda: ack.ack(job.id, claim=held(job)),
        lambda: fail.fail(job.id, BOOM, claim=held(job)),
        lambda: fail.requeue(job.id, claim=held(job)),
    ):
        with pytest.raises(Conflict, match="The job is cancelled"):
            response()
    assert ack.ack_batch(WORKER, [(job.id, job.run, None)]) == set()
    assert read(job.id).state == "cancelled"


def test_the_run_that_was_cut_short_is_noted_and_is_no_error() -> None:
    job = active()
    cancel.cancel(job.id)
    row = read(job.id).attempts.get()
    assert (row.outcome, row.run, row.worker_id, row.error) == ("cancelled", 1, WORKER, None)
    assert "errors" not in read(job.id).envelope()


def test_a_job_that_did_not_run_leaves_no_run_behind() -> None:
    job = in_state("available")
    cancel.cancel(job.pk)
    assert not job.attempts.exists()


@pytest.mark.requirement("CORE-7.6-4")
def test_must_4_cancelling_a_cancelled_job_succeeds_and_changes_nothing() -> None:
    job = in_state("cancelled")
    age(job.pk, HOUR)
    before = snapshot(job.pk)
    again, state = cancel.cancel(job.pk)
    assert (again.state, state) == ("cancelled", State.CANCELLED)
    assert snapshot(job.pk) == before

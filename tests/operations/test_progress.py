"""A run's progress is kept, shown, fenced, and counts as a heartbeat."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings

from django_ojs.extensions.events.models import Event
from django_ojs.models import Job
from django_ojs.operations import ack, cancel, fail, fetch, progress, retry
from django_ojs.spec.errors import ClaimLost, JobNotFound
from django_ojs.spec.ids import uuid7
from django_ojs.spec.progress import Report
from django_ojs.storage.transitions import Claim
from tests.factories import BOOM, HOUR, active, age, held, hourly, in_state, jobs, read, snapshot

pytestmark = pytest.mark.django_db


def shown(job_id: Any) -> Any:
    return read(job_id).envelope().get("progress")


@pytest.mark.requirement("PRG-003", "PRG-R001")
def test_progress_is_in_the_jobs_envelope_and_never_goes_back() -> None:
    job = active()
    assert shown(job.id) is None
    progress.report(job.id, Report(progress=0.5, data={"row": 5}), claim=held(job))
    progress.report(job.id, Report(progress=0.25))
    assert shown(job.id) == 0.5
    assert read(job.id).progress["data"] == {"row": 5}


@pytest.mark.requirement("PRG-008")
def test_progress_extends_the_lease_and_never_shortens_it() -> None:
    job = active(visibility_timeout_ms=60_000)
    lease = read(job.id).lease_until
    jobs().filter(pk=job.id).update(lease_until=F("lease_until") - timedelta(seconds=50))
    progress.report(job.id, Report(progress=0.5))
    extended = read(job.id).lease_until
    assert lease is not None
    assert extended is not None
    assert abs(extended - lease) < timedelta(seconds=25)
    jobs().filter(pk=job.id).update(lease_until=extended + HOUR)
    progress.report(job.id, Report(progress=0.6))
    assert read(job.id).lease_until == extended + HOUR


@pytest.mark.requirement("PRG-007")
@pytest.mark.parametrize("state", ["available", "retryable", "completed", "cancelled", "discarded"])
def test_a_job_that_does_not_run_is_left_as_it_is(state: str) -> None:
    job = in_state(state)
    before = snapshot(job.pk)
    assert progress.report(job.pk, Report(progress=0.5)).state == state
    assert snapshot(job.pk) == before


@pytest.mark.parametrize(
    "claim", [Claim(worker_id="another"), Claim(attempt=2), Claim(worker_id="worker-a", run=7)]
)
def test_a_worker_that_lost_the_job_cannot_report_on_it(claim: Claim) -> None:
    job = active()
    before = snapshot(job.id)
    with pytest.raises(ClaimLost) as caught:
        progress.report(job.id, Report(progress=0.5), claim=claim)
    assert caught.value.details["job_id"] == str(job.id)
    assert snapshot(job.id) == before


def test_there_is_no_progress_of_what_is_no_job() -> None:
    with pytest.raises(JobNotFound):
        progress.report(uuid7(), Report(progress=0.5))


@pytest.mark.requirement("PRG-005", "PRG-006")
def test_a_completed_job_is_done_and_a_failed_one_stays_where_it_was() -> None:
    done, failed, cancelled = active(), active(), active()
    for job in (done, failed, cancelled):
        progress.report(job.id, Report(progress=0.73))
    ack.ack(done.id)
    fail.fail(failed.id, BOOM)
    cancel.cancel(cancelled.id)
    assert [shown(job.id) for job in (done, failed, cancelled)] == [1.0, 0.73, 0.73]


@pytest.mark.requirement("PRG-R002")
def test_the_next_attempt_begins_anew_and_is_given_the_checkpoint() -> None:
    job = active(retry=hourly(3))
    progress.report(job.id, Report(progress=0.73, checkpoint={"last": 72}))
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    (again,) = fetch.fetch([job.queue], worker_id="worker-b")
    assert again.envelope()["last_checkpoint"] == {"last": 72}
    assert "progress" not in again.envelope()
    assert shown(job.id) is None
    progress.report(job.id, Report(progress=0.1), claim=held(again))
    assert shown(job.id) == 0.1


def test_a_retry_by_hand_clears_the_progress_and_keeps_the_checkpoint() -> None:
    job = active(retry=hourly(1))
    progress.report(job.id, Report(progress=0.73, checkpoint={"last": 72}))
    fail.fail(job.id, BOOM)
    assert shown(job.id) == 0.73
    envelope = retry.retry(job.id).envelope()
    assert "progress" not in envelope
    assert envelope["last_checkpoint"] == {"last": 72}


@pytest.mark.requirement("EV-S04")
@override_settings(OJS={"KEEP_EVENTS": ["job.progress"]})
def test_progress_is_an_event_once_a_second_at_most() -> None:
    job = active()
    progress.report(job.id, Report(data={"phase": 1}))
    for share in (0.25, 0.5):
        progress.report(job.id, Report(progress=share))
    stored = dict(read(job.id).progress) | {"told_at": "2026-01-01T00:00:00.000Z"}
    Job.objects.filter(pk=job.id).update(progress=stored)
    # The report a moment before has had no event, so this one has.
    progress.report(job.id, Report(progress=0.655, data={"message": "row 655"}))
    reported = Event.objects.filter(type="job.progress").order_by("id")
    assert [event.data["progress_percent"] for event in reported] == [25.0, 65.5]
    assert [event.data.get("progress_message") for event in reported] == [None, "row 655"]
    assert {(event.subject, event.queue) for event in reported} == {(str(job.id), job.queue)}

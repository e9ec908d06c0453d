"""RETRY by hand, ojs-core §6.3 and contract §6: a discarded job gets another life."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_ojs.operations import expiry, fail, fetch, retry
from tests.factories import BOOM, HOUR, WORKER, active, age, claim, hourly, in_state, push, read

pytestmark = pytest.mark.django_db


def test_attempts_start_anew_the_error_is_cleared_and_the_history_stays() -> None:
    job = active(queue="a", retry=hourly(1))
    fail.requeue(job.id)
    fail.fail(claim(read(job.id)).id, BOOM)
    assert read(job.id).dead_letter is True
    again = retry.retry(job.id)
    assert (again.pk, again.state, again.attempt, again.returned) == (job.id, "available", 0, 0)
    assert (again.error, again.dead_letter, again.discard_reason) == (None, False, None)
    assert (again.started_at, again.finished_at, again.worker_id) == (None, None, None)
    rendered = again.envelope()
    assert [error["type"] for error in rendered["errors"]] == ["Boom"]
    assert not {"completed_at", "discarded_at", "error", "started_at"} & rendered.keys()


def test_all_its_attempts_are_there_again_and_the_history_goes_on() -> None:
    job = in_state("discarded", queue="a", retry=hourly(2, non_retryable_errors=["Boom"]))
    retry.retry(job.pk)
    for state in ("retryable", "discarded"):
        (again,) = fetch.fetch(["a"], worker_id=WORKER)
        again = read(again.id)
        assert fail.fail(job.pk, BOOM.__class__(type="Other", message="")).state == state
        age(job.pk, 2 * HOUR)
    errors = read(job.pk).envelope()["errors"]
    assert [(e["type"], e["attempt"]) for e in errors] == [("Boom", 1), ("Other", 1), ("Other", 2)]


def test_the_run_that_fences_claims_never_starts_again() -> None:
    job = in_state("discarded", queue="a")
    retry.retry(job.pk)
    (again,) = fetch.fetch(["a"])
    assert (again.attempt, again.run) == (1, 2)


def test_it_queues_up_at_the_end() -> None:
    job = in_state("discarded", queue="a")
    other = push(queue="a")
    age([job.pk, other.pk], 1)
    retry.retry(job.pk)
    assert [got.id for got in fetch.fetch(["a"], count=2)] == [other.pk, job.pk]


@pytest.mark.parametrize("absolute", [False, True])
def test_a_deadline_that_has_passed_is_dropped_and_no_longer_shown(absolute: bool) -> None:
    past = datetime(2001, 1, 1, tzinfo=UTC)
    deadline = (
        {"expires_at": past, "expires_at_text": "2001-01-01T00:00:00Z"}
        if absolute
        else {"expires_at": HOUR}
    )
    job = push(queue="a", tags=["kept"], **deadline)
    age(job.pk, 2 * HOUR)
    assert expiry.expire() == 1
    assert "expires_at" in read(job.pk).envelope()
    again = retry.retry(job.pk)
    assert (again.expires_at, again.tags) == (None, ["kept"])
    assert "expires_at" not in again.envelope()
    assert expiry.expire() == 0
    assert [got.id for got in fetch.fetch(["a"])] == [job.pk]


def test_a_deadline_that_is_still_ahead_is_kept() -> None:
    job = in_state("discarded", queue="a", expires_at=HOUR)
    deadline = read(job.pk).expires_at
    again = retry.retry(job.pk)
    assert again.expires_at == deadline
    assert again.envelope()["expires_at"] == job.envelope()["expires_at"]
    age(job.pk, 2 * HOUR)
    assert fetch.fetch(["a"]) == []
    assert (read(job.pk).state, read(job.pk).discard_reason) == ("discarded", "expired")

"""`enqueue_ttl` and `total_timeout` (ojs-timeouts §5), which share the column `expires_at`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.operations import ack, fail, fetch, promotion, retry
from django_ojs.operations.expiry import expire
from django_ojs.operations.fail import fail_batch, requeue
from django_ojs.operations.maintenance import timeouts
from django_ojs.spec import envelope
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.failure import Failure
from django_ojs.spec.timeouts import limit_of
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    WORKER,
    active,
    age,
    claim,
    hourly,
    in_state,
    push,
    push_many,
    read,
)

pytestmark = pytest.mark.django_db

LATE = 2 * MINUTE
NEVER = datetime(2090, 1, 1, tzinfo=UTC)


def deadline(job: Any) -> timedelta | None:
    """Return how long after it was stored a job expires, to the second."""
    if (stored := read(job.pk)).expires_at is None:
        return None
    return timedelta(seconds=round((stored.expires_at - stored.created_at).total_seconds()))


@pytest.mark.parametrize("state", ["available", "scheduled", "pending"])
def test_a_job_that_does_not_start_within_its_enqueue_ttl_is_discarded(state: str) -> None:
    job = in_state(state, enqueue_ttl=60)
    kept = in_state(state, enqueue_ttl=600)
    age([job.pk, kept.pk], LATE)
    assert fetch.fetch([job.queue], worker_id=WORKER, due=False) == []
    assert expire() == 1
    stored = read(job.pk)
    assert (stored.state, stored.discard_reason) == ("discarded", "expired")
    assert not stored.dead_letter
    assert stored.error["type"] == "enqueue_ttl_expired"
    # The seconds of a busy machine count as well.
    assert 110 < stored.error["details"].pop("elapsed_seconds") < 600
    assert stored.error["details"] == {"timeout_kind": "enqueue_ttl", "limit_seconds": 60}
    assert stored.envelope()["enqueue_ttl"] == 60
    assert read(kept.pk).state == state


def test_its_first_start_ends_the_enqueue_ttl() -> None:
    for end in (
        lambda job: fail.fail(job.id, BOOM),
        lambda job: requeue(job.id),
        lambda job: fail.postpone(job.id, BOOM, delay=MINUTE),
    ):
        job = active(enqueue_ttl=60, retry=hourly())
        end(job)
        age(job.id, 2 * HOUR)
        assert expire() == 0
        assert read(job.id).state in ("retryable", "available")
        assert read(job.id).expires_at is None
        assert read(job.id).envelope()["enqueue_ttl"] == 60
        promotion.promote()
        ack.ack(claim(read(job.id)).id)


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        ({"enqueue_ttl": 60}, 60, None),
        ({"enqueue_ttl": 60, "expires_at": HOUR}, 60, 3600),
        ({"enqueue_ttl": 7200, "expires_at": HOUR}, 3600, 3600),
        ({"enqueue_ttl": 60, "total_timeout": 90}, 60, 90),
        ({"enqueue_ttl": 60, "total_timeout": 90, "expires_at": HOUR}, 60, 90),
        ({"enqueue_ttl": 60, "total_timeout": 7200, "expires_at": HOUR}, 60, 3600),
        ({"total_timeout": 90}, 90, 90),
        ({"total_timeout": 90, "expires_at": HOUR}, 90, 90),
        ({"total_timeout": 7200, "expires_at": HOUR}, 3600, 3600),
    ],
)
def test_the_earliest_deadline_counts(
    values: dict[str, Any], before: int, after: int | None
) -> None:
    for number in (1, 3):
        jobs = push_many(number, **values)
        job = jobs[-1]
        assert deadline(job) == timedelta(seconds=before)
        assert job.expires_at == read(job.pk).expires_at
        for each in fetch.fetch([job.queue], worker_id=WORKER, count=number, due=False):
            assert each.expires_at == read(each.id).expires_at
        assert deadline(job) == (None if after is None else timedelta(seconds=after))


def test_an_absolute_deadline_comes_back_when_the_enqueue_ttl_has_ended() -> None:
    for text in ("2090-01-01T00:00:00Z", "2090-01-01T01:00:00.000+01:00", "2090-01-01t00:00:00z"):
        data = {"type": "a", "args": [], "expires_at": text, "enqueue_ttl": 60}
        job = push(**{k: v for k, v in vars_of(data).items() if v is not None})
        assert deadline(job) == MINUTE
        claim(job)
        assert read(job.pk).expires_at == NEVER


def vars_of(data: dict[str, Any]) -> dict[str, Any]:
    read_ = envelope.parse(data)
    names = ("type", "expires_at", "expires_at_text", "enqueue_ttl")
    return {name: getattr(read_, name) for name in names}


@pytest.mark.parametrize("state", ["available", "scheduled", "pending", "retryable"])
def test_a_job_that_waits_beyond_its_total_timeout_is_discarded(state: str) -> None:
    job = in_state(state, total_timeout=5400, retry=hourly())
    age(job.pk, HOUR)
    assert expire() == 0
    age(job.pk, HOUR)
    assert expire() == 1
    stored = read(job.pk)
    assert (stored.state, stored.discard_reason) == ("discarded", "expired")
    assert stored.error["type"] == "total_timeout"
    assert stored.error["details"]["timeout_kind"] == "total"


def test_a_job_that_is_given_back_after_its_total_timeout_does_not_start_again() -> None:
    job = active(total_timeout=60)
    age(job.id, LATE)
    requeue(job.id)
    assert fetch.fetch([job.queue], worker_id=WORKER, due=False) == []
    assert expire() == 1


def test_its_own_deadline_is_no_error() -> None:
    job = push(expires_at=MINUTE, enqueue_ttl=600, total_timeout=600)
    age(job.pk, LATE)
    assert expire() == 1
    assert (read(job.pk).discard_reason, read(job.pk).error) == ("expired", None)


def test_jobs_expire_with_an_error_each() -> None:
    jobs = [
        push(enqueue_ttl=10),
        push(enqueue_ttl=20),
        push(total_timeout=30),
        push(expires_at=HOUR),
    ]
    age([job.pk for job in jobs], 2 * HOUR)
    assert expire() == 4
    limits = [(read(job.pk).error or {}).get("details", {}).get("limit_seconds") for job in jobs]
    assert limits == [10, 20, 30, None]


@pytest.mark.parametrize("batch", [False, True])
def test_a_failure_is_not_retried_beyond_the_total_timeout(batch: bool) -> None:
    def failed(**values: Any) -> Job:
        job = active(retry=hourly(on_exhaustion=values.pop("mode", "dead_letter")), **values)
        if batch:
            fail_batch(WORKER, [(job, BOOM, fail.AttemptOutcome.FAILED)])
        else:
            fail.fail(job.id, BOOM)
        return read(job.id)

    too_short = failed(total_timeout=1800)
    assert (too_short.state, too_short.discard_reason) == ("discarded", "exhausted")
    assert too_short.error["type"] == "Boom"
    assert too_short.dead_letter
    assert not failed(total_timeout=1800, mode="discard").dead_letter
    assert failed(total_timeout=3700).state == "retryable"
    # The next run may take ten minutes, and would not end in time.
    assert failed(total_timeout=3700, timeout_ms=600_000).state == "discarded"
    assert failed(total_timeout=4300, timeout_ms=600_000).state == "retryable"


def test_a_run_ends_with_the_total_timeout() -> None:
    job = active(total_timeout=900, timeout_ms=600_000)
    default = timedelta(minutes=30)
    assert limit_of(job, default) == 10 * MINUTE
    Job.primary.filter(pk=job.id).update(created_at=F("created_at") - timedelta(seconds=800))
    assert limit_of(read(job.id), default).total_seconds() == pytest.approx(100, abs=60)
    Job.primary.filter(pk=job.id).update(created_at=F("created_at") - timedelta(seconds=800))
    assert limit_of(read(job.id), default) == timedelta(milliseconds=1)


def test_a_run_beyond_the_total_timeout_fails_and_is_not_retried() -> None:
    job = active(total_timeout=3600, retry=hourly())
    plain, other = active(retry=hourly()), active(total_timeout=7200, retry=hourly())
    beside = active(total_timeout=7200, expires_at=MINUTE, retry=hourly())
    everyone = [job.id, plain.id, other.id, beside.id]
    Job.primary.filter(pk__in=everyone).update(
        created_at=F("created_at") - HOUR - MINUTE, expires_at=F("expires_at") - HOUR - MINUTE
    )
    assert timeouts.enforce() == 1
    stored = read(job.id)
    assert (stored.state, stored.discard_reason) == ("discarded", "non_retryable")
    assert stored.error["type"] == "total_timeout"
    assert stored.error["details"]["limit_seconds"] == 3600
    assert {read(key).state for key in everyone[1:]} == {"active"}


@pytest.mark.parametrize("values", [{"enqueue_ttl": 60}, {"total_timeout": 60}])
def test_a_retry_by_hand_removes_what_has_passed(values: dict[str, Any]) -> None:
    job = push(**values)
    age(job.pk, LATE)
    expire()
    retry.retry(job.pk)
    assert expire() == 0
    assert claim(job).options == {}
    assert fail.fail(job.pk, BOOM).state == "retryable"


def test_python_takes_seconds_and_timedeltas() -> None:
    options = {"enqueue_ttl": MINUTE, "total_timeout": 120}
    job = ojs.enqueue("test.job", queue="python", **options).job()
    assert (job.options, deadline(job)) == ({"enqueue_ttl": 60, "total_timeout": 120}, MINUTE)
    with pytest.raises(InvalidRequest, match="whole number of seconds"):
        ojs.enqueue("test.job", enqueue_ttl=timedelta(milliseconds=1))


@pytest.mark.parametrize("name", ["enqueue_ttl", "total_timeout"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "PT5M", [], {}, 10**12])
def test_what_is_no_number_of_seconds_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=name):
        envelope.validate(envelope.parse({"type": "a", "args": [], name: value}))


def test_a_total_timeout_is_not_less_than_the_timeout() -> None:
    with pytest.raises(InvalidRequest, match="total_timeout must not be less than the timeout"):
        push(total_timeout=60, timeout_ms=60_001)
    push(total_timeout=60, timeout_ms=60_000)


def test_other_timeouts_are_kept_and_have_no_effect() -> None:
    data = {"type": "a", "args": [], "heartbeat_timeout": 1, "grace_period": 1}
    read_ = envelope.parse(data)
    job = push(extra=read_.extra)
    age(job.pk, LATE)
    assert expire() == 0
    assert {"heartbeat_timeout", "grace_period"} <= job.envelope().keys()


def test_the_error_of_a_run_says_which_timeout_ended_it() -> None:
    job = active(timeout_ms=1)
    age(job.id, LATE)
    assert timeouts.enforce() == 1
    assert read(job.id).error["type"] == Failure(type="timeout", message="").type

"""Timeouts that no worker kept (ojs-core §5.2): the database speaks up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.test import override_settings

from django_ojs.models import Job, Worker
from django_ojs.operations import fail
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.maintenance.timeouts import REMOTE_TIMEOUT_GRACE, TIMEOUT_GRACE
from django_ojs.spec.errors import ClaimLost
from tests.factories import HOUR, MINUTE, WORKER, WorkerFactory, active, age, hourly, read, steady

pytestmark = pytest.mark.django_db


@pytest.mark.requirement("CORE-5.2-11")
def test_a_job_that_ran_longer_than_its_timeout_fails_with_the_type_timeout() -> None:
    job = active(timeout_ms=60_000, retry=hourly(3))
    age(job.id, MINUTE + TIMEOUT_GRACE + timedelta(seconds=1))
    assert timeouts.enforce() == 1
    stored = read(job.id)
    assert (stored.state, stored.error["type"]) == ("retryable", "timeout")
    row = stored.attempts.get()
    assert (row.outcome, row.retry_delay_ms) == ("timeout", 3_600_000)


def test_it_goes_through_its_retry_policy() -> None:
    last = active(timeout_ms=60_000, retry=hourly(1))
    final = active(timeout_ms=60_000, retry=hourly(3, non_retryable_errors=["timeout"]))
    age([last.id, final.id], HOUR)
    assert timeouts.enforce() == 2
    assert [read(job.id).discard_reason for job in (last, final)] == ["exhausted", "non_retryable"]


def test_a_worker_that_enforces_timeouts_and_sends_heartbeats_does_it_by_its_own_clock() -> None:
    # That of the database may have been set on by an hour.
    WorkerFactory(enforces_timeouts=True)
    job = active(timeout_ms=60_000)
    age(job.id, HOUR)
    assert timeouts.enforce() == 0
    assert read(job.id).state == "active"


def test_a_worker_that_enforces_timeouts_has_a_moment_to_say_it_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In place of five seconds, which may go by on a busy machine.
    monkeypatch.setattr(timeouts, "TIMEOUT_GRACE", HOUR)
    WorkerFactory(enforces_timeouts=True)
    Worker.objects.update(seen_at=F("seen_at") - HOUR)
    job = active(timeout_ms=60_000)
    age(job.id, HOUR / 2)
    assert timeouts.enforce() == 0
    assert read(job.id).state == "active"
    age(job.id, HOUR / 2 + MINUTE)
    assert timeouts.enforce() == 1


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("worker_id", [WORKER, None])
def test_another_worker_has_none(registered: bool, worker_id: str | None) -> None:
    if registered:
        WorkerFactory(hostname="elsewhere")
        WorkerFactory(id="django", enforces_timeouts=True)
    job = active(worker_id, timeout_ms=60_000)
    age(job.id, MINUTE / 2)
    assert timeouts.enforce() == 0
    age(job.id, MINUTE / 2 + 2 * REMOTE_TIMEOUT_GRACE)
    assert timeouts.enforce() == 1
    assert read(job.id).error["type"] == "timeout"


def test_a_job_without_a_timeout_has_the_default() -> None:
    job = active(visibility_timeout_ms=36_000_000)
    age(job.id, 29 * MINUTE)
    assert timeouts.enforce() == 0
    with override_settings(OJS={"DEFAULT_TIMEOUT": 60}):
        assert timeouts.enforce() == 1


def test_a_long_timeout_is_longer_than_the_default() -> None:
    job = active(timeout_ms=7_200_000, visibility_timeout_ms=36_000_000)
    age(job.id, HOUR)
    assert timeouts.enforce() == 0


def test_a_job_that_ended_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = active(timeout_ms=1), active(timeout_ms=1)
    age([first.id, second.id], HOUR)
    real, rejected = fail.fail, []

    def reject_once(*args: object, **values: object) -> object:
        if not rejected:
            rejected.append(args)
            raise ClaimLost("gone")
        return real(*args, **values)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(timeouts, "fail", reject_once)
    assert timeouts.enforce() == 1
    assert sorted([read(first.id).state, read(second.id).state]) == ["active", "retryable"]


def test_the_run_after_the_one_that_was_too_long_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = active(timeout_ms=1)
    age(job.id, HOUR)
    real = fail.fail

    def fail_too_late(job_id: UUID, *args: Any, **values: Any) -> object:
        Job.primary.filter(pk=job_id).update(run=F("run") + 1)
        return real(job_id, *args, **values)

    monkeypatch.setattr(timeouts, "fail", fail_too_late)
    assert timeouts.enforce() == 0
    assert read(job.id).state == "active"


def test_a_step_is_bounded() -> None:
    keys = [active(timeout_ms=1).id for _ in range(3)]
    age(keys, HOUR)
    assert [timeouts.enforce(limit=2) for _ in range(3)] == [2, 1, 0]


def test_a_step_ends_after_its_time_and_says_that_there_may_be_more() -> None:
    jobs = [active(timeout_ms=1000) for _ in range(3)]
    age([job.id for job in jobs], HOUR)
    assert timeouts.enforce(limit=3, seconds=0) == 3
    assert [read(job.id).state for job in jobs].count("active") == 2
    assert timeouts.enforce_for_a_moment() == 0, "the workers could not report"
    with steady():
        assert timeouts.enforce_for_a_moment() in (2, timeouts.BATCH)

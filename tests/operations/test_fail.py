"""FAIL, ojs-core §7.4, one MUST after the other, and what the retry policy makes of a failure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import fail, fetch, promotion
from django_ojs.spec.failure import DeadLetter, Discard, Failure, Retry
from django_ojs.spec.retry_policy import RetryPolicy
from tests.factories import BOOM, HOUR, MINUTE, WORKER, active, age, held, hourly, jobs, read

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


def wait_of(job_id: Any) -> timedelta:
    """Return how long the job waits for its next attempt, by the database's own clock."""
    job = read(job_id)
    failed_at = job.attempts.latest("id").finished_at
    assert job.due_at is not None
    return job.due_at - failed_at


def about(expected: timedelta) -> Any:
    return pytest.approx(expected.total_seconds(), abs=0.9)


def fail_attempts(times: int, **values: Any) -> Any:
    """Let a job fail, and be due again, this often; return what is left of it."""
    job = active(queue="a", **values)
    for n in range(1, times + 1):
        fail.fail(job.id, Failure(type="Boom", message=f"failure {n}"))
        if n < times:
            age(job.id, 24 * HOUR)
            (job,) = fetch.fetch(["a"], worker_id=WORKER)
    return read(job.id)


@pytest.mark.requirement("CORE-5.3-9", "CORE-7.4-3", "CORE-8-1", "CORE-8.3-2")
def test_must_2_the_error_is_stored_in_the_job() -> None:
    failure = Failure(
        type="SmtpError", message="no route", backtrace=("a", "b"), details={"host": "h"}
    )
    job = active()
    fail.fail(job.id, failure)
    expected = {
        "type": "SmtpError",
        "message": "no route",
        "backtrace": ["a", "b"],
        "details": {"host": "h"},
    }
    assert read(job.id).error == expected
    assert read(job.id).envelope()["error"] == {**expected, "code": "SmtpError"}


@pytest.mark.requirement("CORE-7.4-4")
def test_must_3_with_attempts_left_it_becomes_retryable() -> None:
    job = active(retry=hourly(2))
    assert fail.fail(job.id, BOOM, claim=held(job)).state == "retryable"
    stored = read(job.id)
    assert (stored.attempt, stored.worker_id, stored.lease_until) == (1, None, None)
    assert not {"completed_at", "discarded_at"} & stored.envelope().keys()


@pytest.mark.parametrize("max_attempts", [0, 1])
def test_must_3_without_retries_the_first_failure_discards(max_attempts: int) -> None:
    job = active(retry=hourly(max_attempts))
    assert fail.fail(job.id, BOOM).state == "discarded"


@pytest.mark.requirement("CORE-7.4-4", "CORE-7.4-5")
@pytest.mark.parametrize("max_attempts", [2, 4])
def test_must_3_the_last_attempt_discards_and_none_before_it(max_attempts: int) -> None:
    almost = fail_attempts(max_attempts - 1, retry=hourly(max_attempts))
    assert (almost.state, almost.attempt) == ("retryable", max_attempts - 1)
    job = fail_attempts(max_attempts, retry=hourly(max_attempts))
    assert (job.state, job.attempt, job.discard_reason) == (
        "discarded",
        max_attempts,
        "exhausted",
    )


@pytest.mark.requirement("CORE-7.4-5", "CORE-8.3-3")
def test_must_3_a_non_retryable_error_discards_at_once() -> None:
    policy = hourly(9, non_retryable_errors=["Auth.*", "Boom"])
    for kind, state in [("Boom", "discarded"), ("Auth.Denied", "discarded"), ("Aut", "retryable")]:
        job = active(retry=policy)
        assert fail.fail(job.id, Failure(type=kind, message="")).state == state
        assert read(job.id).discard_reason == (None if state == "retryable" else "non_retryable")


@pytest.mark.requirement("CORE-7.4-6")
def test_must_4_the_next_attempt_is_calculated_and_named() -> None:
    job = active(retry=hourly(2))
    fail.fail(job.id, BOOM)
    assert wait_of(job.id).total_seconds() == about(HOUR)
    rendered = read(job.id).envelope()
    assert rendered["next_attempt_at"] > rendered["started_at"]


@pytest.mark.requirement("CORE-7.4-7")
def test_must_4_it_becomes_available_when_the_wait_is_over_and_not_before() -> None:
    job = active(queue="a", retry=hourly(2))
    fail.fail(job.id, BOOM)
    age(job.id, HOUR - MINUTE)
    assert promotion.promote() == 0
    age(job.id, 2 * MINUTE)
    assert promotion.promote() == 1
    stored = read(job.id)
    assert (stored.state, stored.attempt) == ("available", 1)
    assert "next_attempt_at" not in stored.envelope()
    assert stored.envelope()["error"]["type"] == "Boom"


@pytest.mark.parametrize(
    ("mode", "dead"), [("dead_letter", True), ("discard", False)], ids=["dead letter", "discard"]
)
def test_must_5_on_exhaustion_says_whether_it_is_a_dead_letter(mode: Any, dead: bool) -> None:
    job = active(retry=hourly(1, on_exhaustion=mode))
    fail.fail(job.id, BOOM)
    assert read(job.id).dead_letter is dead
    other = active(retry=hourly(5, on_exhaustion=mode, non_retryable_errors=["Boom"]))
    fail.fail(other.id, BOOM)
    assert read(other.id).dead_letter is dead


def test_a_discarded_job_carries_both_times_of_its_end() -> None:
    job = active(retry=hourly(1))
    rendered = fail.fail(job.id, BOOM).envelope()
    assert rendered["discarded_at"] == rendered["completed_at"]


@pytest.mark.parametrize(
    ("response", "state", "dead", "reason"),
    [
        (Discard("no"), "discarded", False, "discard"),
        (DeadLetter("no"), "discarded", True, "dead_letter"),
        (Retry("later"), "retryable", False, None),
    ],
    ids=["DISCARD", "DEAD_LETTER", "RETRY"],
)
def test_the_response_of_the_handler_goes_before_the_policy(
    response: Exception, state: str, dead: bool, reason: str | None
) -> None:
    # ojs-retry §7.2; each policy would have said the opposite.
    mode = "discard" if dead else "dead_letter"
    job = active(retry=hourly(5, on_exhaustion=mode))
    fail.fail(job.id, Failure.from_exception(response))
    stored = read(job.id)
    assert (stored.state, stored.dead_letter, stored.discard_reason) == (state, dead, reason)
    assert stored.error["code"] == response.code  # type: ignore[attr-defined]  # the three have it


def test_retry_from_the_handler_does_not_outlive_the_attempts() -> None:
    job = active(retry=hourly(1))
    assert fail.fail(job.id, Failure.from_exception(Retry("again", delay=5))).state == "discarded"


def test_the_wait_that_the_handler_asks_for_replaces_the_policys() -> None:
    job = active(retry=hourly(5))
    fail.fail(job.id, Failure.from_exception(Retry("later", delay=timedelta(minutes=7))))
    assert wait_of(job.id).total_seconds() == about(7 * MINUTE)


@pytest.mark.parametrize("retryable", [False, True, None])
def test_retryable_false_in_the_error_discards(retryable: bool | None) -> None:
    job = active(retry=hourly(5))
    fail.fail(job.id, Failure(type="X", message="", retryable=retryable))
    assert read(job.id).state == ("discarded" if retryable is False else "retryable")


@pytest.mark.parametrize(
    ("strategy", "waits"),
    [
        ("exponential", [60, 180, 540, 600]),
        ("linear", [60, 120, 180, 240]),
        ("constant", [60, 60, 60, 60]),
        ("polynomial", [60, 480, 600, 600]),
    ],
)
def test_the_waits_follow_the_strategy_up_to_the_cap(strategy: Any, waits: list[int]) -> None:
    policy = RetryPolicy(
        max_attempts=9,
        initial_interval=60,
        backoff_coefficient=3.0,
        max_interval=600,
        jitter=False,
        backoff_strategy=strategy,
    )
    for attempts, wait in enumerate(waits, 1):
        job = fail_attempts(attempts, retry=policy)
        assert wait_of(job.pk).total_seconds() == about(timedelta(seconds=wait))
        jobs().filter(queue="a").delete()


@pytest.mark.parametrize(
    ("chance", "wait"), [(0.0, 30), (0.5, 60), (0.999, 89.9)], ids=["least", "middle", "most"]
)
def test_jitter_moves_the_wait_by_half_in_both_directions(
    chance: float, wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: chance)
    job = active(retry=RetryPolicy(initial_interval=60, max_interval=3600, jitter=True))
    fail.fail(job.id, BOOM)
    assert wait_of(job.id).total_seconds() == about(timedelta(seconds=wait))


def test_jitter_never_passes_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.999)
    job = active(retry=RetryPolicy(initial_interval=60, max_interval=60, jitter=True))
    fail.fail(job.id, BOOM)
    assert wait_of(job.id).total_seconds() == about(MINUTE)


def test_the_history_has_an_entry_for_each_failure_in_their_order() -> None:
    job = fail_attempts(12, retry=hourly(12))
    errors = job.envelope()["errors"]
    assert [error["attempt"] for error in errors] == list(range(1, 13))
    assert [error["message"] for error in errors] == [f"failure {n}" for n in range(1, 13)]
    assert all(datetime.fromisoformat(error["timestamp"]).tzinfo for error in errors)
    assert [error.get("retry_delay_ms") for error in errors] == [3_600_000] * 11 + [None]


def test_the_attempt_row_says_who_ran_when_and_how_it_ended() -> None:
    job = active()
    fail.fail(job.id, BOOM, outcome=AttemptOutcome.TIMEOUT)
    row = read(job.id).attempts.get()
    assert (row.attempt, row.run, row.worker_id, row.outcome) == (1, 1, WORKER, "timeout")
    assert row.started_at == job.started_at
    # Not that it is later: the clock may be set back by a moment.
    assert abs(row.finished_at - row.started_at) < HOUR
    assert str(row) == f"attempt 1 of {job.id}: timeout"


def test_a_failure_of_one_job_is_no_business_of_another() -> None:
    job, other = active(), active()
    fail.fail(job.id, BOOM)
    assert (read(other.id).state, read(other.id).error) == ("active", None)
    assert not read(other.id).attempts.exists()


def test_a_wait_longer_than_the_calendar_of_the_database_is_not_an_error() -> None:
    job = active(retry=RetryPolicy(initial_interval="P1000Y", max_interval="P1000Y", jitter=False))
    assert fail.fail(job.id, BOOM).state == "retryable"
    assert wait_of(job.id) > timedelta(days=300_000) - SECOND


def test_runs_that_conflict_with_other_transactions_spend_no_attempt_ten_times_in_a_row() -> None:
    conflict = Failure(type="OperationalError", message="could not serialize access")
    job = active(queue="a", retry=RetryPolicy(max_attempts=2))
    for times in range(1, 2 * fail.MAX_CONFLICTS + 3):
        spent = job.spent
        ended = fail.fail_by_conflict(job.id, conflict, claim=held(job))
        is_one_too_many = times % (fail.MAX_CONFLICTS + 1) == 0
        if is_one_too_many and times > fail.MAX_CONFLICTS + 1:
            assert ended.state == "discarded"
            break
        assert ended.state == ("retryable" if is_one_too_many else "available")
        if is_one_too_many:
            age(job.id, 24 * HOUR)
            promotion.promote()
        (job,) = fetch.fetch(["a"], worker_id=WORKER)
        # The number of the run rises each time, and that of the attempts with a failure.
        assert job.run == times + 1
        assert job.spent == spent + is_one_too_many
    runs = list(read(job.id).attempts.order_by("id"))
    assert [run.outcome for run in runs] == (["returned"] * fail.MAX_CONFLICTS + ["failed"]) * 2
    assert "spends no attempt" in runs[0].error["message"]
    assert runs[-1].error["message"] == "could not serialize access"

"""`freeze` and `advance`: Django's clock and the database's move together."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

import django_ojs
from django_ojs import testing
from django_ojs.models import Job
from django_ojs.operations.fetch import fetch
from django_ojs.testing import Drained, TestContext
from tests.testapp.testing_jobs import now, send

MOMENT = datetime(2036, 2, 29, 12, tzinfo=UTC)  # The clock of MariaDB 10.11 ends in 2038.
HOUR = timedelta(hours=1)


@pytest.mark.requirement("TST-R004")
def test_a_scheduled_job_is_due_when_the_clock_says_so(ojs: TestContext) -> None:
    ojs.freeze(MOMENT)
    now.options(scheduled_at=timedelta(days=1)).enqueue()
    ojs.assert_enqueued(now, delay=timedelta(days=1))
    ojs.advance(timedelta(days=1) - timedelta(seconds=1))
    assert ojs.drain() == Drained()
    ojs.advance(timedelta(seconds=1))
    assert [job.state for job in ojs.enqueued()] == ["available"]
    assert ojs.drain() == Drained(completed=1)
    [job] = ojs.enqueued()
    assert job.result == "2036-03-01T12:00:00+00:00"
    assert (job.created_at, job.finished_at) == (MOMENT, MOMENT + timedelta(days=1))


def test_retries_and_deadlines_follow(ojs: TestContext) -> None:
    retry = django_ojs.RetryPolicy(initial_interval=HOUR, max_interval=HOUR, jitter=False)
    send.options(retry=retry).enqueue("ada")
    send.options(expires_at=2 * HOUR, scheduled_at=3 * HOUR).enqueue("late")
    ojs.fail_next(send, ValueError)
    ojs.freeze(timezone.now())
    assert ojs.drain() == Drained(retryable=1)
    ojs.advance(HOUR - timedelta(seconds=1))
    assert ojs.drain() == Drained()
    ojs.advance(timedelta(seconds=2))
    assert ojs.drain() == Drained(completed=1)
    ojs.advance(HOUR + timedelta(minutes=1))
    states = {job.args[0]: (job.state, job.discard_reason) for job in ojs.enqueued()}
    assert states == {"ada": ("completed", None), "late": ("discarded", "expired")}


def test_jobs_of_one_moment_keep_their_order(ojs: TestContext) -> None:
    ojs.freeze(MOMENT)
    for number in range(5):
        send.enqueue(str(number))
    ojs.drain("email", max_jobs=2)
    assert [job.args[0] for job in ojs.assert_completed(send)] == ["0", "1"]


def test_what_imported_now_before_follows_too(ojs: TestContext) -> None:
    imported = timezone.now
    ojs.freeze(MOMENT)
    assert imported() == timezone.now() == MOMENT
    assert User(username="ada").date_joined == MOMENT
    assert timezone.template_localtime(MOMENT, use_tz=True).tzinfo is not MOMENT.tzinfo


def test_what_is_no_moment_is_rejected(ojs: TestContext) -> None:
    with pytest.raises(TypeError, match=r"freeze\(\) needs a datetime, not '2030-01-01'"):
        ojs.freeze("2030-01-01")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"advance\(\) needs a timedelta, not 5"):
        ojs.advance(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a datetime with a time zone"):
        ojs.freeze(datetime(2040, 1, 1))  # noqa: DTZ001  # the mistake


def database_time() -> datetime:
    clocks = {
        "postgresql": "SELECT statement_timestamp()",
        "mysql": "SELECT CONCAT(UTC_TIMESTAMP(6), '+00:00')",
        "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')",
    }
    with connection.cursor() as cursor:
        cursor.execute(clocks[connection.vendor])
        [value] = cursor.fetchone()
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


@pytest.mark.mariadb
def test_a_moment_that_the_clock_of_the_server_does_not_know_is_rejected(ojs: TestContext) -> None:
    with pytest.raises(ValueError, match=r"2040-01-01 .* ends on 2038-01-19"):
        ojs.freeze(datetime(2040, 1, 1, tzinfo=UTC))
    assert abs(database_time() - datetime.now(UTC)) < timedelta(minutes=5)
    assert timezone.now() < MOMENT


def test_the_database_s_own_clock_follows_and_is_set_right_again(ojs: TestContext) -> None:
    real = timezone.now
    ojs.advance(HOUR)
    frozen = timezone.now()
    ojs.freeze(MOMENT)
    assert timezone.now() == database_time() == MOMENT
    send.enqueue("ada")
    assert Job.objects.annotate(now=Now()).get().now == MOMENT
    ojs.unfreeze()
    assert timezone.now is real
    assert abs(send.enqueue("eve").job().created_at - real()) < timedelta(minutes=5)
    assert abs(database_time() - real()) < timedelta(minutes=5)
    assert timedelta(minutes=50) < frozen - real() < timedelta(minutes=70)


@pytest.mark.sqlite
def test_a_statement_has_one_present_after_the_clock_was_stopped(ojs: TestContext) -> None:
    """Otherwise a lease is too long or too short by what passes between two reads of the clock."""
    ojs.freeze(MOMENT)
    ojs.unfreeze()
    ojs.freeze(MOMENT)
    ojs.unfreeze()
    connection.connection.create_function("pause", 0, lambda: time.sleep(0.05))
    present = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"
    seen = set()
    for _ in range(2):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {present}, pause(), {present} WHERE %s", [True])
            first, _, second = cursor.fetchone()
        assert first == second
        seen.add(first)
    assert len(seen) == 2


def test_two_relative_times_of_a_job_keep_their_distance_after_the_clock_ran(
    ojs: TestContext,
) -> None:
    ojs.freeze(MOMENT)
    ojs.unfreeze()
    for _ in range(200):
        job = send.options(scheduled_at=HOUR, expires_at=3 * HOUR).enqueue("ada").job()
        assert job.due_at is not None
        assert job.expires_at == job.due_at + 2 * HOUR


def test_a_lease_lapses(ojs: TestContext) -> None:
    send.enqueue("ada")
    assert fetch(["email"], worker_id="dead")
    ojs.advance(timedelta(days=1))
    assert [job.state for job in ojs.enqueued()] == ["available"]
    assert ojs.drain() == Drained(completed=1)
    assert [a.outcome for a in ojs.enqueued()[0].attempts.all()] == ["lapsed"]


def test_the_clock_of_a_context_ends_with_it(db: None) -> None:
    for _ in range(2):
        with testing.real() as context:
            context.freeze(MOMENT)
            send.enqueue("ada")
    assert timezone.now() < MOMENT
    assert database_time() < MOMENT


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_nothing_is_left(ojs: TestContext) -> None:
    ojs.freeze(MOMENT)
    now.enqueue()
    assert ojs.drain() == Drained(completed=1)
    ojs.unfreeze()
    assert database_time() < MOMENT
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regnamespace('ojs_testing')")
            assert cursor.fetchone() == (None,)


def test_a_broken_transaction_does_not_hide_the_failure_of_the_test(db: None) -> None:
    def break_it() -> None:
        with transaction.atomic(), testing.real() as context:
            context.freeze(MOMENT)
            connection.cursor().execute("SELECT no_such_column")

    with pytest.raises(DatabaseError, match="no_such_column"):
        break_it()
    assert database_time() < MOMENT


def test_the_clock_of_a_context_goes_on_after_one_within_it(db: None) -> None:
    later = MOMENT + timedelta(days=366)
    with testing.real() as outer:
        outer.freeze(MOMENT)
        with testing.real() as inner:
            inner.freeze(later)
            assert database_time() == timezone.now() == later
        assert database_time() == timezone.now() == MOMENT
        assert send.enqueue("ada").job().created_at == MOMENT
    assert database_time() < MOMENT


def test_a_block_that_is_rolled_back_does_not_move_the_clock(ojs: TestContext) -> None:
    with suppress(ZeroDivisionError), transaction.atomic():
        ojs.freeze(MOMENT)
        1 / 0  # noqa: B018 - it raises
    assert database_time() == timezone.now() == MOMENT
    with suppress(ZeroDivisionError), transaction.atomic():
        ojs.advance(HOUR)
        1 / 0  # noqa: B018 - it raises
    assert database_time() == timezone.now() == MOMENT + HOUR
    ojs.unfreeze()
    assert database_time() < MOMENT

"""A history that cannot be stored stops no job (ojs-execution-history §9.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_ojs import signals
from django_ojs.extensions.statistics import rollups
from django_ojs.models import Attempt, Job
from django_ojs.operations import ack, cancel, fail, fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import Failure
from tests.factories import BOOM, HOUR, WorkerFactory, active, age, hourly, push, read
from tests.http.api import Api
from tests.http.test_metrics import scrape, value
from tests.receivers import receiving

pytestmark = pytest.mark.django_db(transaction=True)

api = Api()

_REJECT = {
    "postgresql": """
        CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'the history is corrupt'; END $$;
        CREATE TRIGGER reject BEFORE INSERT ON ojs_attempt EXECUTE FUNCTION reject();
    """,
    "sqlite": """
        CREATE TRIGGER reject BEFORE INSERT ON ojs_attempt
        BEGIN SELECT RAISE(ABORT, 'the history is corrupt'); END
    """,
    "mysql": """
        CREATE TRIGGER reject BEFORE INSERT ON ojs_attempt FOR EACH ROW
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is corrupt'
    """,
}
_ACCEPT = {
    "postgresql": "DROP FUNCTION reject() CASCADE",
    "sqlite": "DROP TRIGGER reject",
    "mysql": "DROP TRIGGER reject",
}


@contextmanager
def without_history() -> Iterator[None]:
    """Let the database reject each attempt."""
    with connection.cursor() as cursor:
        cursor.execute(_REJECT[connection.vendor])
        try:
            yield
        finally:
            cursor.execute(_ACCEPT[connection.vendor])


@pytest.mark.requirement("EH-14")
def test_jobs_are_enqueued_claimed_and_ended_while_no_attempt_can_be_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with without_history():
        job = push(retry=hourly(2))
        (claimed,) = fetch.fetch([job.queue])
        fail.fail(claimed.id, BOOM)
        failed = read(job.pk)
        assert (failed.state, failed.error["message"]) == ("retryable", "it broke")
        age(job.pk, 2 * HOUR)
        fetch.fetch([job.queue])
        fail.fail(job.pk, BOOM)
        assert (read(job.pk).state, read(job.pk).attempt) == ("discarded", 2)
        completed, cancelled = active(), active()
        ack.ack(completed.id)
        cancel.cancel(cancelled.id)
        lost = active(worker_id=WorkerFactory(id="dead").pk)
        rescue.rescue(["dead"])
        states = [read(each.id).state for each in (completed, cancelled, lost)]
        assert states == ["completed", "cancelled", "available"]
    # Once a minute, not once for each job.
    (record,) = caplog.records
    assert "ojs_attempt" in record.getMessage()
    assert "corrupt" not in record.getMessage()
    assert not Attempt.primary.exists()
    again = active(retry=hourly(2))
    fail.fail(again.id, BOOM)
    assert Attempt.primary.filter(job_id=again.id).count() == 1


def test_the_transaction_of_a_caller_goes_on_too() -> None:
    failed, cancelled = active(retry=hourly(2)), active()
    with without_history(), transaction.atomic():
        before = push()
        fail.fail(failed.id, BOOM)
        cancel.cancel(cancelled.id)
        after = push()
    jobs = (before, failed, cancelled, after)
    states = [read(job.id).state for job in jobs]
    assert states == ["available", "retryable", "cancelled", "available"]


def test_what_a_receiver_does_after_the_commit_has_its_history() -> None:
    first, second = active(retry=hourly(2)), active(retry=hourly(2))

    def receive(job: Job, **values: object) -> None:
        if job.id == first.id:
            with connection.cursor() as cursor:
                cursor.execute(_ACCEPT[connection.vendor])
            fail.fail(second.id, BOOM)

    with receiving(receive, signals.job_failed):
        with connection.cursor() as cursor:
            cursor.execute(_REJECT[connection.vendor])
        fail.fail(first.id, BOOM)
    assert list(Attempt.primary.values_list("job_id", flat=True)) == [second.id]


@pytest.mark.requirement("EH-S06")
def test_what_was_not_stored_is_counted_and_the_rest_of_the_history_stays() -> None:
    def fail_again(worker_id: str) -> None:
        Job.primary.filter(state="retryable").update(due_at=F("created_at"))
        (claimed,) = fetch.fetch(["lost"], worker_id=worker_id)
        fail.fail(claimed.id, Failure(type="Boom", message=f"by {worker_id}"))

    rollups.accumulator.reset()
    key = push(queue="lost", retry=hourly(6)).pk
    fail_again("w-1")
    with without_history():
        fail_again("w-2")
        fail_again("w-3")
    fail_again("w-4")
    rollups.flush()
    assert value(scrape(), "ojs_history_write_failures_total", queue="lost") == 2
    events = api.get(f"jobs/{key}/history").ok()["events"]
    failed = [each["data"] for each in events if each["event_type"] == "job.attempt_failed"]
    assert [(each["attempt"], each["error"]) for each in failed] == [(1, "by w-1"), (4, "by w-4")]


def test_postponements_are_recorded_once_and_never_instead_of_a_failure() -> None:
    """Until a deployment ends, a job may be postponed every half minute."""
    job = push(queue="later", retry=hourly(9))
    missing = Failure(type="handler.not_found", message="no handler")

    def run(end: Callable[[UUID], Any]) -> None:
        Job.primary.filter(state="retryable").update(due_at=F("created_at"))
        (claimed,) = fetch.fetch(["later"])
        end(claimed.id)

    for error in (missing, missing, BOOM):
        run(lambda key, error=error: fail.postpone(key, error, delay=HOUR))
    run(lambda key: fail.fail(key, BOOM))
    for _ in range(2):
        run(lambda key: fail.postpone(key, BOOM, delay=HOUR))
    run(lambda key: fail.requeue(key, BOOM))
    run(lambda key: fail.postpone(key, BOOM, delay=HOUR))
    found = Attempt.primary.filter(job=job).order_by("run")
    assert [(each.run, each.outcome) for each in found] == [
        *((1, "returned"), (3, "returned"), (4, "failed")),
        *((5, "returned"), (7, "returned"), (8, "returned")),
    ]

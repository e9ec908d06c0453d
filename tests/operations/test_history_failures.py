"""A history that cannot be stored stops no job (ojs-execution-history §9.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F

from django_ojs import signals
from django_ojs.models import Attempt, AuditEntry, Job
from django_ojs.operations import ack, cancel, fail, fetch, retry
from django_ojs.operations.jobs import execution_history, history_rebuild
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import Failure
from django_ojs.storage.figures import rollups
from tests.factories import (
    BOOM,
    HOUR,
    active,
    age,
    claim,
    hourly,
    in_state,
    push,
    read,
    worker,
)
from tests.http.api import NOBODY, Api
from tests.http.test_metrics import scrape, value

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
        lost = active(worker_id=worker("dead").pk)
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

    signals.job_failed.connect(receive)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_REJECT[connection.vendor])
        fail.fail(first.id, BOOM)
    finally:
        signals.job_failed.disconnect(receive)
    assert list(Attempt.primary.values_list("job_id", flat=True)) == [second.id]


@pytest.mark.requirement("EH-S03", "EH-S06")
def test_what_was_not_stored_is_counted_and_rebuilt_from_the_job() -> None:
    def claim(worker_id: str) -> Any:
        Job.primary.filter(state="retryable").update(due_at=F("created_at"))
        (claimed,) = fetch.fetch(["lost"], worker_id=worker_id)
        return claimed

    def fail_again(worker_id: str) -> None:
        fail.fail(claim(worker_id).id, Failure(type="Boom", message=f"by {worker_id}"))

    def metric() -> float | None:
        rollups.flush()
        return value(scrape(), "ojs_history_write_failures_total", queue="lost")

    def history() -> Any:
        return api.get(f"jobs/{key}/history").ok()["events"]

    def rebuild() -> Any:
        return api.post(f"history/rebuild?job_id={key}").ok()

    rollups.accumulator.reset()
    key = push(queue="lost", retry=hourly(6)).pk
    fail_again("w-1")
    # A run that is returned before its start has no attempt, and has not failed.
    claimed = claim("w-2")
    rescue.give_back([(claimed.id, claimed.run)], worker_id="w-2")
    with without_history():
        fail_again("w-3")
        fail_again("w-4")
    assert metric() == 2
    fail_again("w-5")
    before = history()
    found = rebuild()
    assert (found["job_id"], found["events_reconstructed"]) == (str(key), 2)
    assert found["approximate"] is True
    assert found["gaps"][0] == "the end of 2 runs from 3 to 4 is estimated"
    events = history()
    added = [event for event in events if event.get("metadata") == {"reconstructed": True}]
    assert [event for event in events if event not in added] == before
    assert [event["data"]["attempt"] for event in added] == [3, 4]
    assert {event["event_type"] for event in added} == {"job.attempt_failed"}
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)
    # Its error and its start are those of the job, and a discard says when it ended.
    with without_history():
        fail_again("w-6")
        fail_again("w-7")
    assert read(key).state == "discarded"
    found = rebuild()
    assert found["events_reconstructed"] == 3
    started, failed, discarded = history()[-3:]
    assert started["event_type"] == "job.attempt_started"
    assert (failed["data"]["error"], failed["data"]["will_retry"]) == ("by w-7", False)
    assert failed["timestamp"] == discarded["timestamp"]
    assert read(key).envelope()["errors"][-1]["message"] == "by w-7"
    # There is no more to rebuild, and what is deleted on request does not come back.
    nothing = {"events_reconstructed": 0, "approximate": False, "gaps": []}
    assert rebuild() == {"job_id": str(key), **nothing}
    api.delete(f"jobs/{key}/history").ok()
    assert rebuild()["events_reconstructed"] == 0
    assert history() == []
    actions = AuditEntry.primary.filter(object_id=str(key)).order_by("pk")
    assert [each.action for each in actions] == ["job.history_rebuilt"] * 2 + [
        "job.history_deleted"
    ]
    api.post("history/rebuild").error(400, "invalid_request", field="job_id")
    api.post(f"history/rebuild?job_id={NOBODY}").error(404, "not_found")


def test_a_history_without_a_gap_is_left_as_it_is() -> None:
    running, done, stopped = active(), active(), active()
    ack.ack(done.id)
    cancel.cancel(stopped.id)
    again = in_state("discarded", retry=hourly(1))
    retry.retry(again.pk)
    waiting = push()
    for each in (running.id, done.id, stopped.id, again.pk, waiting.pk):
        assert history_rebuild.rebuild(each).events == 0


def test_what_is_rebuilt_is_what_was_lost_whatever_other_runs_were() -> None:
    def run(job: Job, worker_id: str) -> Any:
        Job.primary.filter(state="retryable").update(due_at=F("created_at"))
        (claimed,) = fetch.fetch([job.queue], worker_id=worker(worker_id).pk)
        return claimed

    def rebuilt(job: Job) -> list[tuple[int, str | None]]:
        found = history_rebuild.rebuild(job.pk)
        rows = Attempt.primary.filter(job_id=job.pk, outcome="rebuilt").order_by("run")
        assert history_rebuild.rebuild(job.pk).events == 0
        assert found.approximate is bool(rows)
        return [(each.run, each.error and each.error["type"]) for each in rows]

    def history(job: Job) -> list[tuple[int, str]]:
        return [(each.run, each.type) for each in execution_history.read(read(job.pk))]

    # Runs that spend no attempt, because other jobs may be the cause, are no lost failures.
    for queue in ("beside", "old"):
        beside = push(queue=queue, retry=hourly(9))
        with without_history():
            fail.fail(run(beside, "a").id, BOOM)
        claimed = run(beside, "b")
        claim(push(queue=queue), "b")
        rescue.rescue(["b"])
        run(beside, "c")
        fail.fail_beside_others(beside.pk, BOOM, others=1)
        assert read(beside.pk).spent == 1
        if queue == "old":
            # Of a row that does not say so, its message does.
            Attempt.primary.filter(job=beside).update(spent_attempt=None)
        assert rebuilt(beside) == [(1, None)]
    # What a handler says of its run is no record of that.
    says = push(queue="says", retry=hourly(9))
    said = Failure(type="Quiet", message="this run spends no attempt, says the handler")
    for message in (said, BOOM):
        fail.fail(run(says, "b").id, message)
    assert [each.spent_attempt for each in Attempt.primary.filter(job=says)] == [True, True]
    assert rebuilt(says) == []
    # A worker that died leaves no start of the run, as one that returned it.
    lapsed = push(queue="lapsed", retry=hourly(9))
    claimed = run(lapsed, "d")
    rescue.give_back([(claimed.id, claimed.run)], worker_id="d")
    run(lapsed, "e")
    with without_history():
        rescue.rescue(["e"])
    assert rebuilt(lapsed) == [(2, "worker_death")]
    assert history(lapsed) == [(0, "job.created"), (2, "job.attempt_failed")]
    # A job that is cancelled while it waits has not been cancelled in its latest run.
    waiting = push(queue="waiting", retry=hourly(9))
    with without_history():
        fail.fail(run(waiting, "g").id, BOOM)
    cancel.cancel(waiting.pk)
    assert rebuilt(waiting) == [(1, BOOM.type)]
    assert history(waiting) == [
        *((0, "job.created"), (1, "job.attempt_started"), (1, "job.attempt_failed")),
        (1, "job.cancelled"),
    ]
    stopped = push(queue="stopped", retry=hourly(9))
    fail.fail(run(stopped, "h").id, BOOM)
    run(stopped, "h")
    with without_history():
        cancel.cancel(stopped.pk)
    assert rebuilt(stopped) == []
    # A job that expires while it waits has not run until then.
    expired = push(queue="expired", retry=hourly(9), expires_at=HOUR)
    with without_history():
        fail.fail(run(expired, "f").id, BOOM)
    ended = read(expired.pk).started_at + 9 * HOUR
    Job.primary.filter(pk=expired.pk).update(
        state="discarded", discard_reason="expired", finished_at=ended
    )
    assert rebuilt(expired) == [(1, BOOM.type)]
    assert Attempt.primary.get(job_id=expired.pk).finished_at < ended


def test_rebuilt_runs_take_no_place_of_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_history, "MAX_RUNS", 2)
    monkeypatch.setattr(history_rebuild, "MAX_RUNS", 2)
    job = push(queue="long", retry=hourly(9))
    for number in range(1, 5):
        Job.primary.filter(state="retryable").update(due_at=F("created_at"))
        (claimed,) = fetch.fetch([job.queue])
        if number < 3:
            with without_history():
                fail.fail(claimed.id, BOOM)
        else:
            fail.fail(claimed.id, BOOM)
    before = execution_history.read(read(job.pk))
    assert history_rebuild.rebuild(job.pk).events == 2
    assert execution_history.read(read(job.pk)) == before
    attempts = api.get(f"jobs/{job.pk}").ok()["job"]["errors"]
    assert [each["attempt"] for each in attempts] == [3, 4]
    shown = StringIO()
    call_command("ojs", "show", str(job.pk), no_color=True, stdout=shown)
    table = shown.getvalue().partition("OUTCOME")[2].splitlines()[1:]
    assert [line.split()[0] for line in table if line.strip()[:1].isdigit()] == list("1234")


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
    assert [(each.run, each.outcome, each.spent_attempt) for each in found] == [
        *((1, "returned", False), (3, "returned", False), (4, "failed", True)),
        *((5, "returned", False), (7, "returned", False), (8, "returned", False)),
    ]
    # A gap that is no failure is not rebuilt.
    assert history_rebuild.rebuild(job.pk).events == 0

"""`drain`: real runs of a worker, inside the transaction of a test; and `perform`, `fail_next`."""

from __future__ import annotations

import logging

import pytest
from django.db import IntegrityError, connection
from django.test import override_settings

import django_ojs
from django_ojs import handlers, signals
from django_ojs.models import Job
from django_ojs.operations.fetch import fetch
from django_ojs.spec.failure import ResultRejected
from django_ojs.storage import ruled_claims
from django_ojs.testing import Drained, DrainTimeout, TestContext
from tests.factories import push_many
from tests.receivers import receiving
from tests.testapp import testing_jobs
from tests.testapp.models import Thing
from tests.testapp.testing_jobs import (
    asave,
    break_transaction,
    chain,
    forever,
    import_rows,
    save,
    save_and_return,
    save_atomically,
    send,
)


@override_settings(OJS={"POOLS": {"gpu": {"queues": ["images"], "exclusive": True}}})
def test_a_drain_runs_the_jobs_of_every_pool(ojs: TestContext) -> None:
    send.options(queue="images").enqueue("ada")
    assert ojs.drain() == Drained(completed=1)


@pytest.mark.requirement("TST-R002")
def test_jobs_run_through_all_operations(ojs: TestContext) -> None:
    send.enqueue("ada")
    asave.enqueue("async")
    save_atomically.enqueue("atomic")
    assert ojs.drain() == Drained(completed=3)
    assert [job.result for job in ojs.assert_completed(asave)] == ["async, attempt 1"]
    assert set(Thing.objects.values_list("name", flat=True)) == {"async", "atomic"}
    assert ojs.drain() == Drained()
    ojs.assert_performed(send, args=["ada"], count=1)
    ojs.refute_performed(save)


def test_a_result_that_cannot_be_stored_has_its_effects_once(ojs: TestContext) -> None:
    save_and_return.enqueue("once")
    assert ojs.drain(with_retries=True) == Drained(discarded=1)
    assert Thing.objects.filter(name="once").count() == 1
    (job,) = Job.objects.filter(type="testing.save_and_return")
    assert (job.attempt, job.discard_reason, job.dead_letter) == (1, "non_retryable", True)
    assert job.error["type"] == "result_rejected"
    assert "result.thing is a Thing: send its primary key" in job.error["message"]
    assert f"{testing_jobs.__file__}:" in job.error["message"]


def test_a_job_continues_at_its_checkpoint(ojs: TestContext) -> None:
    import_rows.enqueue(4)
    assert ojs.drain(with_retries=True) == Drained(retryable=1, completed=1)
    (job,) = ojs.assert_completed(import_rows)
    assert job.result == 3
    assert job.progress["progress"] == 1.0
    assert job.progress["data"] == {"message": "row 4 of 4"}


def test_a_job_that_is_performed_reports_and_saves(ojs: TestContext) -> None:
    with pytest.raises(ValueError, match="the connection is lost"):
        ojs.perform(import_rows, 4)


def test_the_bounds_of_a_drain(ojs: TestContext) -> None:
    send.options(priority=5).enqueue("first")
    for _ in range(2):
        send.enqueue("ada")
    save.enqueue("thing")
    assert ojs.drain("email", max_jobs=1) == Drained(completed=1)
    ojs.assert_performed(send, args=["first"], count=1)
    assert ojs.drain("email") == Drained(completed=2)
    ojs.refute_performed(save)


def test_a_job_that_enqueues_itself_is_named(ojs: TestContext) -> None:
    forever.enqueue()
    with pytest.raises(DrainTimeout, match=r"\d+ of testing.forever\). Does a job enqueue itself"):
        ojs.drain(timeout=0.2)


def test_what_a_job_enqueues_after_its_commit_runs_too(ojs: TestContext) -> None:
    chain.enqueue(2)
    assert ojs.drain() == Drained(completed=3)


def test_failures_follow_the_retry_policy(
    ojs: TestContext, caplog: pytest.LogCaptureFixture
) -> None:
    send.enqueue("ada")
    ojs.fail_next(send, ConnectionError("no server"), times=2)
    with caplog.at_level(logging.WARNING, "django_ojs.worker"):
        assert ojs.drain() == Drained(retryable=1)
    assert "no server" in caplog.text
    ojs.assert_failed(send)
    assert ojs.drain(with_retries=True) == Drained(discarded=1)
    [job] = ojs.enqueued()
    assert (job.attempt, job.error["type"]) == (2, "ConnectionError")


@pytest.mark.requirement("TST-R005")
def test_fail_all_never_ends(ojs: TestContext) -> None:
    send.enqueue("ada")
    ojs.fail_all(send, ValueError)
    assert ojs.drain(with_retries=True) == Drained(retryable=1, discarded=1)


@pytest.mark.requirement("TST-R005")
def test_a_retry_succeeds_after_the_injected_failure(ojs: TestContext) -> None:
    asave.enqueue("ada")
    ojs.fail_next("testing.asave", ValueError("once"))
    assert ojs.drain(with_retries=True) == Drained(retryable=1, completed=1)
    assert [job.attempt for job in ojs.assert_completed(asave)] == [2]


def test_scheduled_jobs_run_on_request_in_their_order(ojs: TestContext) -> None:
    for name, days in (("last", 2), ("first", 1)):
        asave.options(scheduled_at=f"+P{days}D").enqueue(name)
    assert ojs.drain() == Drained()
    assert ojs.drain(with_scheduled=True) == Drained(completed=2)
    assert [thing.name for thing in Thing.objects.order_by("pk")] == ["first", "last"]


def test_a_type_without_a_handler_is_postponed(ojs: TestContext) -> None:
    django_ojs.enqueue("elsewhere.run", [])
    assert ojs.drain(with_retries=True, with_scheduled=True) == Drained(without_handler=1)
    assert [job.state for job in ojs.enqueued()] == ["retryable"]


def test_a_job_whose_service_rejects_calls_spends_no_attempt(ojs: TestContext) -> None:
    @django_ojs.job("testing.busy", rate_limit={"key": "api", "concurrency": 1})
    def busy() -> None:
        raise django_ojs.RateLimitExceeded("busy", retry_after="120")

    try:
        busy.enqueue()
        assert ojs.drain() == Drained(retryable=1)
        (job,) = ojs.enqueued()
        assert (job.state, job.spent) == ("retryable", 0)
        assert (job.error or {})["type"] == "RateLimitExceeded"
    finally:
        handlers.registry.remove("testing.busy")


def test_jobs_that_their_limit_does_not_let_start_do_not_keep_the_others(
    ojs: TestContext,
) -> None:
    closed = {"key": "closed", "concurrency": 0}
    for on_limit in ("drop", "reschedule"):
        save.options(rate_limit=closed | {"on_limit": on_limit}).enqueue(on_limit)
    save.options(scheduled_at="+PT1H").enqueue("later")
    assert ojs.drain(with_scheduled=True).completed == 1
    assert ojs.drain(with_scheduled=True).completed == 0
    assert sorted(job.state for job in Job.objects.all()) == ["completed", "discarded", "scheduled"]


def test_a_drain_passes_what_a_claim_of_another_queue_left(ojs: TestContext) -> None:
    closed = {"key": "closed", "concurrency": 0, "on_limit": "drop"}
    push_many(2 * ruled_claims.CANDIDATES_AT_ONCE, queue="elsewhere", rate_limit=closed)
    assert fetch(["elsewhere"], pool=None) == []
    send.enqueue("ada")
    assert ojs.drain("email").completed == 1


def test_a_job_that_its_handler_cancels(ojs: TestContext) -> None:
    @django_ojs.job("testing.cancel")
    def cancel(ctx: django_ojs.JobContext) -> None:
        django_ojs.cancel(ctx.job.id)

    try:
        cancel.enqueue()
        assert ojs.drain() == Drained(cancelled=1)
    finally:
        handlers.registry.remove("testing.cancel")


def test_execution_middleware_runs(ojs: TestContext) -> None:
    with override_settings(OJS={"EXECUTION_MIDDLEWARE": ["tests.testing.test_drain.quote"]}):
        send.enqueue("ada")
        ojs.drain()
        assert ojs.perform(send, "eve") == "'eve'"
    assert [job.result for job in ojs.enqueued()] == ["'ada'"]


def quote(context: django_ojs.JobContext, proceed: object) -> str:
    """Quote the result."""
    return repr(proceed())  # type: ignore[operator]  # a middleware gets a callable


class TestReal:
    """What only rows can show."""

    def test_the_writes_of_a_failed_handler_stay_as_in_production(self, ojs: TestContext) -> None:
        save.enqueue("broken")
        save_atomically.enqueue("broken")
        assert ojs.drain() == Drained(retryable=2)
        assert Thing.objects.filter(name="broken").count() == 1

    def test_a_broken_transaction_is_rolled_back_to_before_the_job(self, ojs: TestContext) -> None:
        before = Thing.objects.create(name="before")
        break_transaction.enqueue()
        save.enqueue("after")
        assert ojs.drain() == Drained(discarded=1, completed=1)
        names = set(Thing.objects.values_list("name", flat=True)) - {"lost"}
        assert names == {before.name, "after"}
        if connection.vendor == "postgresql":  # SQLite's transaction goes on.
            assert not Thing.objects.filter(name="lost").exists()
        assert ojs.assert_failed(break_transaction)[0].dead_letter

    def test_signals_of_a_job_are_sent_and_the_test_s_callbacks_wait(
        self, ojs: TestContext
    ) -> None:
        sent: list[str] = []

        def receive(job: Job, **kwargs: object) -> None:
            sent.append(job.state)

        send.enqueue("ada")
        save_atomically.enqueue("atomic")
        waiting = len(connection.run_on_commit)
        with receiving(receive, signals.job_completed):
            assert ojs.drain() == Drained(completed=2)
        assert sent == ["completed", "completed"]
        assert len(connection.run_on_commit) == waiting

    def test_progress_is_stored(self, ojs: TestContext) -> None:
        asave.enqueue("ada")
        ojs.drain()
        [job] = ojs.enqueued()
        assert job.progress["progress"] == 0.5

    def test_the_history_has_the_failed_run(self, ojs: TestContext) -> None:
        send.enqueue("ada")
        ojs.fail_next(send, ValueError("once"))
        ojs.drain()
        [job] = ojs.enqueued()
        assert [(a.outcome, a.worker_id) for a in job.attempts.all()] == [
            ("failed", "django_ojs.testing")
        ]

    def test_a_paused_queue_is_not_drained(self, ojs: TestContext) -> None:
        send.enqueue("ada")
        send.options(scheduled_at="+P1D").enqueue("eve")
        django_ojs.pause_queue("email")
        assert ojs.drain(with_scheduled=True) == Drained()

    @pytest.mark.django_db(transaction=True)
    def test_outside_of_a_transaction(self, ojs: TestContext) -> None:
        # Its second run must not be due before the drain ends, as it may on a busy machine.
        save.options(retry={"initial_interval": "PT1M"}).enqueue("broken")
        save_atomically.enqueue("atomic")
        chain.enqueue(1)
        assert ojs.drain() == Drained(completed=3, retryable=1)
        assert set(Thing.objects.values_list("name", flat=True)) == {"broken", "atomic"}


class TestPerform:
    def test_the_result_is_returned_and_no_job_is_stored(self, ojs: TestContext) -> None:
        assert ojs.perform(send, "ada", template="receipt") == "ada"
        assert ojs.perform(asave.options(scheduled_at="+P1D"), "eve") == "eve, attempt 1"
        assert ojs.enqueued() == []

    def test_exceptions_are_raised_and_the_transaction_stays_usable(self, ojs: TestContext) -> None:
        with pytest.raises(django_ojs.OJSError):
            ojs.perform(send)
        ojs.fail_next(send, ConnectionError("no server"))
        with pytest.raises(ConnectionError, match="no server"):
            ojs.perform(send, "ada")
        with pytest.raises(Exception, match="no_such_column"):
            ojs.perform(break_transaction)
        assert Thing.objects.count() >= 0

    def test_what_is_no_handler_is_an_error(self, ojs_fake: TestContext) -> None:
        with pytest.raises(TypeError, match="needs a handler made by"):
            ojs_fake.perform("testing.send", "ada")  # type: ignore[arg-type]  # the mistake

    def test_a_result_that_cannot_be_stored_is_an_error(self, ojs_fake: TestContext) -> None:
        ojs_fake.fail_next(send, IntegrityError)
        with pytest.raises(IntegrityError):
            ojs_fake.perform(send, "ada")
        chain = {"EXECUTION_MIDDLEWARE": ["tests.testing.test_drain.a_set"]}
        with (
            override_settings(OJS=chain),
            pytest.raises(ResultRejected, match="result is a set"),
        ):
            ojs_fake.perform(send, "ada")


def a_set(context: django_ojs.JobContext, proceed: object) -> set[str]:
    """Return what JSON cannot carry."""
    return {"ada"}

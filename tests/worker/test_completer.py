"""The completer stores every outcome, whatever the database does meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import DataError, InterfaceError, OperationalError, transaction

from django_ojs import signals
from django_ojs.extension import Change, Hooks
from django_ojs.models import Job
from django_ojs.operations import ack, cancel, fail, queues
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import RowLocked
from django_ojs.spec.failure import Discard, Failure, RateLimitExceeded, Retry
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.spec.states import Trigger
from django_ojs.storage import backoff, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.worker import completer as completers
from django_ojs.worker.completer import Completer
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from django_ojs.worker.job_log import JobLog
from tests import factories
from tests.other_session import open_transaction
from tests.test_extension import Other, installed
from tests.worker.parts import run_of
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True)


class Bench:
    """A completer, and runs that have just ended."""

    def __init__(self) -> None:
        self.in_flight, self.job_log, self.freed = JobsInFlight(), JobLog(), []
        self.room: list[str] = []
        self.completer = Completer(
            factories.WORKER, self.in_flight, self.job_log, self.freed.append, self.room.extend
        )

    def run(self, job: Claimed | None = None) -> Run:
        run = run_of(lambda: None, job=job or factories.active())
        self.in_flight.add([run])
        run.begin()
        return run

    def ended(self, job: Claimed | None = None) -> Run:
        run = self.run(job)
        run.end()
        return run

    def is_written(self) -> None:
        eventually(lambda: not len(self.in_flight), "all is written")


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert bench.completer.close(60)


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_the_end_of_a_run_of_a_limited_queue_makes_room_once_it_is_stored(
    bench: Bench, error: Exception | None
) -> None:
    queues.configure("limited", {"concurrency": 1})
    for queue in ("limited", "plain"):
        run = bench.run(factories.active(queue=queue))
        run.end()
        bench.completer.handler_ended(run, None, error, False)
        bench.is_written()
    eventually(lambda: bench.room == ["limited"], "the worker is told of the room")


def fails(times: int, error: Exception, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Let an operation fail a number of times before it does its work."""
    left = [times]

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error
        return operation(*args, **kwargs)

    return wrapper


def test_a_result_is_written_and_the_slot_is_free_before_that(bench: Bench) -> None:
    run = bench.ended()
    bench.completer.handler_ended(run, {"n": 1}, None, False)
    assert (bench.in_flight.busy, len(bench.freed)) == (0, 1)
    bench.is_written()
    job = factories.read(run.job.id)
    assert (job.state, job.result) == ("completed", {"n": 1})
    assert bench.job_log.completed_count == 1


def test_what_a_handler_raised_goes_through_the_retry_policy(bench: Bench) -> None:
    again, no_more = bench.ended(), bench.ended()
    bench.completer.handler_ended(again, None, ValueError("boom"), False)
    bench.completer.handler_ended(no_more, None, Discard("not wanted"), False)
    bench.is_written()
    job = factories.read(again.job.id)
    assert (job.state, job.error["type"], job.error["message"]) == (
        "retryable",
        "ValueError",
        "boom",
    )
    assert factories.read(no_more.job.id).state == "discarded"
    assert bench.job_log.failed_count == 2


class Faulty(Exception):
    """It wraps the error of a service, and has no other attributes."""

    def __getattr__(self, name: str) -> Any:
        return {"status": 503}[name]


class Busy(Retry):
    def __init__(self) -> None:
        """Call no other `__init__`."""


@pytest.mark.parametrize("error", [Faulty("no"), Busy()], ids=["no attribute", "no __init__"])
def test_a_run_has_an_outcome_whatever_class_of_exception_it_raised(
    bench: Bench, error: Exception
) -> None:
    # Otherwise its worker would extend its claim for as long as it lives.
    run = bench.ended()
    bench.completer.handler_ended(run, None, error, False)
    bench.is_written()
    job = factories.read(run.job.id)
    assert (job.state, job.error["type"]) == ("retryable", type(error).__name__)


def test_backtraces_are_left_out_where_the_settings_say_so(bench: Bench, settings: Any) -> None:
    def raised() -> ValueError:
        try:
            raise ValueError
        except ValueError as error:
            return error

    first = bench.ended()
    bench.completer.handler_ended(first, None, raised(), False)
    bench.is_written()
    settings.OJS = {"BACKTRACES": False}
    second = bench.ended()
    bench.completer.handler_ended(second, None, raised(), False)
    bench.is_written()
    assert "test_completer.py" in factories.read(first.job.id).error["backtrace"][-1]
    assert "backtrace" not in factories.read(second.job.id).error


@pytest.mark.parametrize("error", [OperationalError("a secret"), InterfaceError("a secret")])
def test_outcomes_are_kept_while_the_database_is_away(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    monkeypatch.setattr(backoff, "FIRST", 0.01)
    monkeypatch.setattr(ack, "ack_batch", fails(2, error, ack.ack_batch))
    monkeypatch.setattr(fail, "fail", fails(2, error, fail.fail))
    monkeypatch.setattr(fail, "fail_batch", fails(2, error, fail.fail_batch))
    monkeypatch.setattr(fail, "requeue", fails(2, error, fail.requeue))
    monkeypatch.setattr(fail, "postpone_batch", fails(2, error, fail.postpone_batch))
    monkeypatch.setattr(rescue, "give_back", fails(2, error, rescue.give_back))
    done, failed, other, late, stopped, strange, unstarted = (bench.ended() for _ in range(7))
    trouble = Failure(type="trouble", message="")
    bench.completer.handler_ended(done, "kept", None, False)
    # Two together, and one by itself, because what pauses a key is never stored with others.
    for run, error in ((failed, ValueError()), (other, KeyError()), (late, RateLimitExceeded())):
        bench.completer.handler_ended(run, None, error, False)
    bench.completer.requeue(stopped, trouble)
    bench.completer.hold([strange], trouble)
    bench.completer.give_back([unstarted])
    bench.is_written()
    states = {
        done: "completed",
        failed: "retryable",
        other: "retryable",
        late: "retryable",
        stopped: "available",
        strange: "retryable",
        unstarted: "available",
    }
    assert {run: factories.read(run.job.id).state for run in states} == states
    assert [factories.read(run.job.id).spent for run in states] == [1, 1, 1, 0, 0, 0, 0]
    assert caplog.text.count("The database does not respond") == 1
    assert "a secret" not in caplog.text


def test_one_outcome_that_the_database_rejects_does_not_take_the_others_along(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [bench.ended() for _ in range(3)]
    rejected = runs[1].job.id
    # Its lease would last for half an hour; it fails by its policy at once.
    real = ack.ack_batch

    def batch(worker_id: str, finished: list[Any], *known: Any) -> Any:
        if rejected in [key for key, _, _ in finished]:
            raise DataError
        return real(worker_id, finished, *known)

    monkeypatch.setattr(ack, "ack_batch", batch)
    for run in runs:
        bench.completer.handler_ended(run, None, None, False)
    bench.is_written()
    states = [factories.read(run.job.id).state for run in runs]
    # Its effects are there: another attempt would repeat them.
    assert states == ["completed", "discarded", "completed"]
    assert factories.read(rejected).error["type"] == "result_rejected"
    assert __file__ in factories.read(rejected).error["message"]
    assert "could not be stored" in caplog.text


def test_a_run_without_memory_beside_others_spends_no_attempt_until_it_runs_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    other, job = bench.run(), factories.active(queue="a", retry=factories.hourly(1))
    for lost in range(1, ISOLATED_AFTER + 1):
        bench.completer.handler_ended(bench.ended(job), None, MemoryError(), False)
        eventually(lambda: len(bench.in_flight) == 1, "it is written")
        stored = factories.read(job.id)
        assert (stored.state, stored.spent, stored.lost_with_others) == ("available", 0, lost)
        assert "spends no attempt" in stored.attempts.last().error["message"]
        job = factories.claim(stored)
    assert "without spending an attempt" in caplog.text
    # As often as that, and not for ever, where no process runs it alone.
    bench.completer.handler_ended(bench.ended(job), None, MemoryError(), False)
    eventually(lambda: len(bench.in_flight) == 1, "it is written")
    assert factories.read(job.id).state == "discarded"
    bench.completer.handler_ended(_ended(other), None, None, False)


def test_a_run_without_memory_that_is_alone_fails_by_its_policy(bench: Bench) -> None:
    job = factories.active()
    bench.completer.handler_ended(bench.ended(job), None, MemoryError(), False)
    bench.is_written()
    stored = factories.read(job.id)
    assert (stored.state, stored.spent, stored.error["type"]) == ("retryable", 1, "MemoryError")


def _ended(run: Run) -> Run:
    assert run.end()
    return run


def test_a_fault_in_writing_one_outcome_does_not_end_the_writing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Whether they are stored together or not.
    for name in ("fail", "fail_batch"):
        monkeypatch.setattr(fail, name, fails(1, KeyError("unforeseen"), getattr(fail, name)))
    for _ in range(2):
        bench.completer.handler_ended(bench.ended(), None, ValueError(), False)
    bench.is_written()
    assert Job.objects.filter(state="retryable").count() == 1
    assert "could not be stored" in caplog.text


def test_a_completion_whose_reply_is_lost_with_the_connection_is_no_lost_claim(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backoff, "FIRST", 0.01)
    caplog.set_level(logging.INFO, "django_ojs")
    real, received, lost = ack.ack_batch, list[UUID](), [OperationalError()]

    def stores(*args: Any) -> set[UUID]:
        stored = real(*args)
        if lost:
            raise lost.pop()
        return stored

    def receiver(job: Job, **_: Any) -> None:
        received.append(job.pk)

    monkeypatch.setattr(ack, "ack_batch", stores)
    # The connection is lost again in what follows: for each run in the check of its job, and once
    # in what follows the completion.
    check = fails(2, OperationalError(), Completer._completed)
    monkeypatch.setattr(Completer, "_completed", lambda *args: check(*args))
    follow_up = fails(1, OperationalError(), transitions.follow_up_ack)
    monkeypatch.setattr(transitions, "follow_up_ack", follow_up)
    done, atomic = bench.ended(), bench.ended()
    # The handler of the other one gets the error of its own COMMIT.
    ack.complete(atomic.job.id)
    signals.job_completed.connect(receiver)
    try:
        bench.completer.handler_ended(done, None, None, False)
        bench.completer.handler_ended(atomic, None, OperationalError(), False)
        bench.is_written()
        jobs = {done.job.id, atomic.job.id}
        eventually(lambda: jobs <= {*received}, "what follows the completions is done")
    finally:
        signals.job_completed.disconnect(receiver)
    for run in (done, atomic):
        assert f"{run.job.id} completed in" in caplog.text
    assert bench.job_log.completed_count == 2
    assert "its claim is gone" not in caplog.text


def test_a_run_that_the_heartbeat_takes_for_lost_is_settled_by_the_state_of_its_job(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_ojs")
    # The reply to the COMMIT of its handler was still on the way.
    atomic, cancelled = bench.run(), bench.run()
    ack.complete(atomic.job.id)
    cancel.cancel(cancelled.job.id)
    for run in (atomic, cancelled):
        bench.completer.settle_lost(run)
    bench.is_written()
    assert f"{atomic.job.id} completed in" in caplog.text
    assert f"{cancelled.job.id}: its claim is gone" in caplog.text
    assert bench.job_log.completed_count == 1


@pytest.mark.parametrize("error", [None, ValueError()])
def test_an_outcome_of_a_job_that_is_no_longer_this_runs_changes_nothing(
    bench: Bench, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled, taken_over, gone = (bench.ended() for _ in range(3))
    cancel.cancel(cancelled.job.id)
    factories.age(taken_over.job.id, timedelta(hours=1))
    rescue.lapse()
    factories.claim(factories.read(taken_over.job.id))
    Job.objects.filter(pk=gone.job.id).delete()
    before = [factories.snapshot(run.job.id) for run in (cancelled, taken_over)]
    for run in (cancelled, taken_over, gone):
        bench.completer.handler_ended(run, "late", error, False)
    bench.is_written()
    assert [factories.snapshot(run.job.id) for run in (cancelled, taken_over)] == before
    assert caplog.text.count("its claim is gone") == 3
    assert bench.job_log.completed_count == bench.job_log.failed_count == 0


def test_the_signal_of_a_completion_is_sent_for_plain_and_for_atomic_handlers(
    bench: Bench,
) -> None:
    received: list[tuple[Any, str]] = []

    def receiver(job: Job, **_: Any) -> None:
        received.append((job.pk, job.state))

    plain, atomic, lost = (bench.ended() for _ in range(3))
    ack.complete(atomic.job.id)
    cancel.cancel(lost.job.id)
    signals.job_completed.connect(receiver)
    try:
        for run in (plain, lost):
            bench.completer.handler_ended(run, None, None, False)
        bench.completer.handler_ended(atomic, None, None, True)
        bench.is_written()
    finally:
        signals.job_completed.disconnect(receiver)
    assert sorted(received) == sorted((run.job.id, "completed") for run in (plain, atomic))


def test_many_completions_go_in_few_statements(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = ack.ack_batch

    def batch(worker_id: str, finished: list[Any], *known: Any) -> Any:
        sizes.append(len(finished))
        return real(worker_id, finished, *known)

    monkeypatch.setattr(ack, "ack_batch", batch)
    runs = [bench.ended(factories.claim(job)) for job in factories.push_many(40, queue="batch")]
    for run in runs:
        bench.completer.handler_ended(run, None, None, False)
    bench.is_written()
    assert sum(sizes) == 40
    assert len(sizes) <= 3


@pytest.mark.parametrize("trigger", [Trigger.ACK, Trigger.FAIL])
def test_an_extension_that_needs_a_locked_row_for_one_job_delays_only_that_one(
    bench: Bench, trigger: Trigger
) -> None:
    waits, first, *runs = [bench.ended() for _ in range(5)]
    started, go_on, is_free = threading.Event(), threading.Event(), threading.Event()

    def hook(change: Change) -> None:
        if waits.job.id in change.before:
            # The others are a group, because the completer is here when they end.
            started.set()
            assert go_on.wait(BOUND)
        if first.job.id in change.before and not is_free.is_set():
            raise RowLocked.of_job(first.job.id)

    error = ValueError("x") if trigger is Trigger.FAIL else None
    with installed(Other(Hooks(changed={trigger: hook}), "needy")):
        bench.completer.handler_ended(waits, None, error, False)
        assert started.wait(BOUND)
        for run in (first, *runs):
            bench.completer.handler_ended(run, None, error, False)
        go_on.set()
        eventually(lambda: len(bench.in_flight) == 1, "the others are written")
        assert factories.read(first.job.id).state == "active"
        is_free.set()
        bench.is_written()
    wanted = "completed" if error is None else "retryable"
    assert {factories.read(run.job.id).state for run in (waits, first, *runs)} == {wanted}


def test_failures_are_stored_together_and_one_that_is_rejected_does_not_take_the_others_along(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(completers, "MAX_FAILURES", 10)
    groups: list[int] = []
    singly: list[UUID] = []
    begun, go_on = threading.Event(), threading.Event()
    real, real_batch = fail.fail, fail.fail_batch

    def one(job_id: UUID, failure: Failure, **how: Any) -> Job:
        singly.append(job_id)
        begun.set()
        assert go_on.wait(BOUND)
        if job_id == rejected:
            raise DataError
        return real(job_id, failure, **how)

    def batch(worker_id: str, failed: list[Any]) -> Any:
        groups.append(len(failed))
        if rejected in [job.id for job, _, _ in failed]:
            real_batch(worker_id, failed[:1])
            raise DataError
        return real_batch(worker_id, failed)

    def reject_together(worker_id: str, failed: list[Any]) -> Any:
        with transaction.atomic():
            return batch(worker_id, failed)

    monkeypatch.setattr(fail, "fail", one)
    monkeypatch.setattr(fail, "fail_batch", reject_together)
    first = bench.ended()
    claimed = [factories.claim(job) for job in factories.push_many(25, queue="down")]
    runs = [bench.ended(job) for job in claimed]
    rejected = runs[12].job.id
    cancel.cancel(runs[3].job.id)
    bench.completer.handler_ended(first, None, ValueError(), False)
    assert begun.wait(BOUND)
    for run in runs:
        bench.completer.handler_ended(run, None, ConnectionError("down"), False)
    go_on.set()
    bench.is_written()
    assert groups == [10, 10, 5]
    assert singly == [first.job.id, *(run.job.id for run in runs[10:20])]
    states = {run.job.id: factories.read(run.job.id).state for run in runs}
    assert (states.pop(runs[3].job.id), states.pop(rejected)) == ("cancelled", "active")
    assert set(states.values()) == {"retryable"}
    assert {len(factories.snapshot(key)["attempts"]) for key in states} == {1}
    assert bench.job_log.failed_count == 24
    assert caplog.text.count("its claim is gone") == 1
    assert caplog.text.count("failed in") == 24


def test_a_group_of_failures_has_a_bounded_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completers, "MAX_FAILURE_CHARACTERS", 5_000)
    together: list[int] = []
    real = fail.fail_batch

    def batch(worker_id: str, failed: list[Any]) -> Any:
        together.append(sum(len(failure.message) for _, failure, _ in failed))
        return real(worker_id, failed)

    monkeypatch.setattr(fail, "fail_batch", batch)
    for job in factories.push_many(20, queue="long"):
        run = bench.ended(factories.claim(job))
        bench.completer.handler_ended(run, None, ValueError("x" * 1_000), False)
    bench.is_written()
    assert all(characters <= 5_000 for characters in together)
    assert Job.objects.filter(state="retryable").count() == 20


def test_completions_and_what_is_given_back_do_not_wait_for_all_failures_before_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completers, "CHANGES_WINDOW", 0.0)
    monkeypatch.setattr(completers, "MAX_FAILURES", 2)
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def noted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            order.append(name)
            begun.set()
            assert go_on.wait(BOUND)
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    noted(ack, "ack_batch"), noted(rescue, "give_back")
    noted(fail, "fail"), noted(fail, "fail_batch")
    failed, done, waits = [bench.ended() for _ in range(5)], bench.ended(), bench.run()
    bench.completer.handler_ended(failed[0], None, ValueError("x"), False)
    assert begun.wait(BOUND)
    for run in failed[1:]:
        bench.completer.handler_ended(run, None, ValueError("x"), False)
    bench.completer.handler_ended(done, None, None, False)
    bench.completer.give_back([waits])
    go_on.set()
    bench.is_written()
    assert order == ["fail", "ack_batch", "give_back", "fail_batch", "fail_batch"]
    states = [factories.read(run.job.id).state for run in (*failed, done, waits)]
    assert states == ["retryable"] * 5 + ["completed", "available"]


def test_closing_writes_what_is_left(bench: Bench) -> None:
    for _ in range(5):
        bench.completer.handler_ended(bench.ended(), None, None, False)
    assert bench.completer.close(60)
    assert Job.objects.filter(state="completed").count() == 5


def test_closing_does_not_wait_for_a_database_that_stays_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = [True]

    def batch(worker_id: str, finished: list[Any], *known: Any) -> set[Any]:
        if away[0]:
            raise OperationalError
        return {key for key, _, _ in finished}

    monkeypatch.setattr(backoff, "FIRST", 0.01)
    monkeypatch.setattr(ack, "ack_batch", batch)
    caplog.set_level(logging.CRITICAL)
    bench.completer.handler_ended(bench.ended(), None, None, False)
    assert not bench.completer.close(0.1)
    away[0] = False
    assert bench.completer.close(60)


@pytest.mark.postgresql
@pytest.mark.mariadb
def test_an_outcome_that_is_tried_again_while_the_completer_closes_is_said_to_be_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = bench.ended()
    stored = ack.ack_batch
    is_tried_again, go_on = threading.Event(), threading.Event()

    def held_up(*args: Any) -> Any:
        is_tried_again.set()
        assert go_on.wait(BOUND)
        return stored(*args)

    with open_transaction(lambda: Job.objects.select_for_update().get(pk=run.job.id)) as end:
        bench.completer.handler_ended(run, None, None, False)
        eventually(lambda: "cannot be stored" in caplog.text, "its row is locked")
        monkeypatch.setattr(ack, "ack_batch", held_up)
        assert is_tried_again.wait(BOUND)
        assert not bench.completer.close(0.1)
        go_on.set()
        end()
    assert "It is lost, because this process ends" in caplog.text
    bench.is_written()
    assert not bench.completer._locked


def test_a_run_that_was_taken_meanwhile_keeps_its_place_until_it_is_written(bench: Bench) -> None:
    # Its lease is extended by the beats until the database knows what became of it.
    run = bench.run()
    assert run.revoke(Phase.RUNNING)
    assert len(bench.in_flight) == 1
    bench.completer.fail(run, Failure(type="timeout", message=""))
    bench.is_written()
    assert factories.read(run.job.id).error["type"] == "timeout"

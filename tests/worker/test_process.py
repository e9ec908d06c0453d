"""A whole worker process, run in this one: with `once`, or stopped by the test."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

import django_ojs as ojs
from django_ojs import hooks, signals
from django_ojs.extension import Hooks
from django_ojs.extensions.workflows.extension import WorkflowsExtension
from django_ojs.models import Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import fail as fails
from django_ojs.operations import queues
from django_ojs.storage import next_starts, ruled_claims
from django_ojs.worker import claimer, handler_call
from django_ojs.worker import heartbeat as heartbeats
from django_ojs.worker import process as processes
from django_ojs.worker.claim_sizer import MAX_BATCH, ClaimSizer
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.in_flight import Phase
from django_ojs.worker.process import Exit, WorkerProcess
from django_ojs.worker.sibling_claims import SiblingClaims
from django_ojs.worker.supervisor import SIGNALS, run_process
from tests import factories
from tests.test_extension import Other, installed
from tests.testapp import testing_jobs
from tests.testapp import worker_jobs as handlers
from tests.testapp.models import Mark
from tests.worker.acceptance.ledger import ALIASES, becomes, release, started, stored
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=ALIASES)


def configured(**values: Any) -> WorkerConfig:
    return WorkerConfig(
        **{
            "poll_interval": timedelta(milliseconds=50),
            "heartbeat_interval": timedelta(milliseconds=100),
            "threads": 2,
            **values,
        }
    )


@contextmanager
def working(siblings: SiblingClaims | None = None, **values: Any) -> Iterator[WorkerProcess]:
    """Run a worker process beside the test, in a thread."""
    process = WorkerProcess(configured(**values), siblings=siblings)
    ended: list[Exit] = []
    thread = threading.Thread(target=lambda: ended.append(process.run()))
    thread.start()
    try:
        yield process
    finally:
        process.on_signal(Directive.TERMINATE)
        process._lifecycle.stop_at_once()
        thread.join(BOUND)
    assert ended == [Exit.OK]


def test_once_runs_what_is_there_and_ends() -> None:
    jobs = [stored(handlers.note.enqueue()) for _ in range(5)]
    due = stored(handlers.note.options(scheduled_at=timedelta(hours=1)).enqueue())
    later = stored(handlers.note.options(scheduled_at=timedelta(hours=1)).enqueue())
    factories.age(due.pk, timedelta(hours=2))
    process = WorkerProcess(configured(once=True))
    assert process.run() is Exit.OK
    assert {becomes(job, "completed").worker_id for job in [*jobs, due]} == {process.id}
    assert becomes(later, "scheduled")
    assert (process.job_log.completed_count, process.job_log.failed_count) == (6, 0)
    assert not Worker.objects.exists()


def test_a_process_says_when_it_begins_and_ends() -> None:
    said: list[tuple[str, str, str]] = []

    def begins(sender: Any, worker_id: str, **kwargs: Any) -> None:
        said.append(("begins", worker_id, becomes(job, "available").state))
        raise ValueError("The others, and the worker, go on.")

    def ends(sender: Any, worker_id: str, **kwargs: Any) -> None:
        said.append(("ends", worker_id, becomes(job, "completed").state))

    job = stored(handlers.note.enqueue())
    signals.worker_process_started.connect(begins, sender=Worker)
    signals.worker_process_stopping.connect(ends, sender=Worker)
    try:
        process = WorkerProcess(configured(once=True))
        assert process.run() is Exit.OK
    finally:
        signals.worker_process_started.disconnect(begins, sender=Worker)
        signals.worker_process_stopping.disconnect(ends, sender=Worker)
    assert said == [("begins", process.id, "available"), ("ends", process.id, "completed")]


@pytest.mark.requirement("EH-15")
def test_what_a_handler_enqueues_has_its_job_as_parent() -> None:
    root = stored(testing_jobs.family.enqueue())
    assert WorkerProcess(configured(once=True)).run() is Exit.OK
    begun = Job.objects.exclude(pk=root.pk).exclude(type="testing.chain", args=[0])
    # One alone, one after it, two of a batch that are alike, and two steps of a workflow.
    assert sorted(begun.values_list("type", "parent_id")) == [
        (f"testing.{name}", root.pk) for name in ("chain", "collect", "save", "send", "send")
    ]
    assert {job.options["root_id"] for job in Job.objects.exclude(pk=root.pk)} == {str(root.pk)}


def test_once_with_nothing_to_do_ends_too() -> None:
    assert WorkerProcess(configured(once=True)).run() is Exit.OK


def test_the_first_queue_is_emptied_before_the_second_is_looked_at() -> None:
    for number in range(4):
        handlers.note.options(queue=("low", "high")[number % 2]).enqueue()
    WorkerProcess(configured(once=True, queues=("high", "low"), threads=1)).run()
    queues = dict(Job.objects.values_list("pk", "queue"))
    ran = Mark.objects.using("other").order_by("id").values_list("job_id", flat=True)
    assert [queues[key] for key in ran] == ["high", "high", "low", "low"]


def test_the_end_of_a_job_starts_the_next_one_of_a_limited_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only what the end of a job does can start the next one.
    monkeypatch.setattr(next_starts, "RETRY_AFTER", 3600.0)
    queues.configure("limited", {"concurrency": 1})
    jobs = [stored(handlers.note.options(queue="limited").enqueue()) for _ in range(3)]
    with working(queues=("limited",), poll_interval=timedelta(hours=1)):
        for job in jobs:
            becomes(job, "completed")


def test_once_passes_thousands_of_jobs_that_it_drops_and_runs_those_behind() -> None:
    closed = {"key": "closed", "concurrency": 0, "on_limit": "drop"}
    factories.push_many(1000, queue="limited", rate_limit=closed)
    last = handlers.note.options(queue="limited", rate_limit={"key": "open", "concurrency": 1})
    job = stored(last.enqueue())
    assert WorkerProcess(configured(once=True, queues=("limited",))).run() is Exit.OK
    assert becomes(job, "completed")
    assert Job.objects.filter(discard_reason="rate_limited").count() == 1000


def test_once_ends_when_it_has_dropped_all_jobs_of_a_queue_that_it_did_not_name() -> None:
    closed = {"key": "closed", "concurrency": 0, "on_limit": "drop"}
    factories.push_many(ruled_claims.CANDIDATES_AT_ONCE + 1, queue="limited", rate_limit=closed)
    assert WorkerProcess(configured(once=True, queues=("*",))).run() is Exit.OK
    assert not Job.objects.exclude(discard_reason="rate_limited").exists()


def test_a_type_without_a_handler_is_held_and_the_others_go_on() -> None:
    stranger = stored(ojs.enqueue("nobody.knows"))
    known = stored(handlers.note.enqueue())
    WorkerProcess(configured(once=True, threads=1)).run()
    assert becomes(known, "completed")
    assert becomes(stranger, "retryable").spent == 0
    assert (stranger.due_at - stranger.started_at) > timedelta(seconds=20)


def test_it_ends_to_be_replaced_after_its_number_of_jobs() -> None:
    jobs = [stored(handlers.note.enqueue()) for _ in range(5)]
    process = WorkerProcess(configured(max_jobs=3))
    assert process.run() is Exit.REPLACE
    states = sorted(Job.objects.filter(pk__in=[j.pk for j in jobs]).values_list("state", flat=True))
    assert states == ["available"] * 2 + ["completed"] * 3
    assert not Worker.objects.exists()


def test_it_ends_to_be_replaced_when_it_has_grown_too_large() -> None:
    job = stored(handlers.note.enqueue())
    assert WorkerProcess(configured(max_rss_mb=1)).run() is Exit.REPLACE
    assert becomes(job, "completed")


def test_it_ends_to_be_replaced_when_it_has_grown_too_large_without_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = iter([1.0])
    monkeypatch.setattr(processes, "_peak_mb", lambda: next(peaks, 1000.0))
    assert WorkerProcess(configured(max_rss_mb=500)).run() is Exit.REPLACE


def test_it_is_not_replaced_again_and_again_if_it_is_too_large_from_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds, real = threading.Semaphore(0), WorkerProcess._wait

    def wait(process: WorkerProcess) -> None:
        rounds.release()
        real(process)

    monkeypatch.setattr(WorkerProcess, "_wait", wait)
    with working(max_rss_mb=1) as process:
        assert all(rounds.acquire(timeout=BOUND) for _ in range(3))
        assert not process._replace
    assert "before its first job, and --max-rss is 1" in caplog.text


@pytest.mark.interrupts
def test_it_ends_to_be_replaced_when_a_thread_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "STUCK_AFTER", 0.0)
    deaf = stored(handlers.deaf.options(timeout=1.0, retry={"max_attempts": 1}).enqueue(6.0))
    process = WorkerProcess(configured(threads=1))
    assert process.run() is Exit.REPLACE
    assert becomes(deaf, "discarded").error["type"] == "timeout"


def test_jobs_that_wait_behind_a_coroutine_that_does_not_end_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The job behind it is claimed before the process stops claiming.
    monkeypatch.setattr(heartbeats, "STUCK_AFTER", BOUND)
    deaf = stored(handlers.deaf_async.options(timeout=1.0, retry={"max_attempts": 1}).enqueue())
    process, ended = WorkerProcess(configured(threads=1)), list[Exit]()
    thread = threading.Thread(target=lambda: ended.append(process.run()))
    thread.start()
    try:
        assert becomes(deaf, "discarded").error["type"] == "timeout"
        behind = stored(handlers.wait_async.enqueue())
        becomes(behind, "active")
        monkeypatch.setattr(heartbeats, "STUCK_AFTER", 0.0)
        assert becomes(behind, "available").returned == 1
        thread.join(BOUND)
        assert ended == [Exit.REPLACE]
    finally:
        release(deaf)
        process._lifecycle.stop_at_once()
        thread.join(BOUND)


def test_what_it_holds_when_it_is_stopped_is_done_or_given_back(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "RELEASE": "2026.11.2"}
    slow = [stored(handlers.wait.enqueue()) for _ in range(2)]
    behind = stored(handlers.note.enqueue())
    with working(grace=timedelta(seconds=60)) as process:
        for job in slow:
            started(job)
        registered = Worker.objects.get()
        assert handlers.note.type in registered.job_types
        assert registered.release == "2026.11.2"
        process.on_signal(Directive.TERMINATE)
        eventually(lambda: Worker.objects.filter(state="terminate").exists(), "it reports it")
        release(slow[0])
        becomes(slow[0], "completed")
    assert becomes(slow[1], "available").spent == 0
    assert becomes(behind, "available").spent == 0


@pytest.mark.interrupts
def test_a_handler_that_takes_a_lock_when_the_process_stops_at_once_is_stopped_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes = [True]
    monkeypatch.setattr(handler_call, "_takes_lock", lambda thread_id: bool(takes and takes.pop()))
    job = stored(handlers.wait.enqueue())
    try:
        with working() as process:
            started(job)
            (run,) = process._in_flight.in_phase(Phase.RUNNING)
        assert run.is_told
    finally:
        release(job)
    eventually(lambda: not (run.thread and run.thread.is_alive()), "its thread ends")


def test_it_says_what_it_waits_for_while_it_drains(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "DRAIN_LOG_INTERVAL", 0.0)
    caplog.set_level(logging.INFO, "django_ojs")
    job = stored(handlers.wait.enqueue())
    with working(grace=timedelta(seconds=60)) as process:
        started(job)
        process.on_signal(Directive.TERMINATE)
        eventually(lambda: "waiting for 1 running job; another TERM" in caplog.text, "it says so")


def test_it_claims_nothing_before_the_database_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody would notice the death of a worker that has no row.
    known: list[bool] = []
    real = claimer.fetch

    def fetch(*args: Any, worker_id: str, **kwargs: Any) -> Any:
        known.append(Worker.objects.filter(pk=worker_id).exists())
        return real(*args, worker_id=worker_id, **kwargs)

    failures = [OperationalError(), OperationalError()]
    beat = heartbeats.beat.beat

    def away(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return beat(*args, **kwargs)

    monkeypatch.setattr(claimer, "fetch", fetch)
    monkeypatch.setattr(heartbeats.beat, "beat", away)
    job = stored(handlers.note.enqueue())
    with working():
        becomes(job, "completed")
    assert failures == []
    assert known
    assert all(known)


def test_it_claims_as_soon_as_a_heartbeat_is_stored_however_long_its_poll_interval_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, failures = heartbeats.beat.beat, [OperationalError(), OperationalError()]

    def beat(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(heartbeats.beat, "beat", beat)
    # Nothing else wakes it: it hears of this job by no notification.
    job = stored(handlers.note.enqueue())
    with working(poll_interval=timedelta(hours=1)):
        becomes(job, "completed")


def before_failures(monkeypatch: pytest.MonkeyPatch, may_store: Callable[[], bool]) -> None:
    """Call this before failures are stored, one or many."""

    def held_up(operation: Callable[..., Any]) -> Callable[..., Any]:
        def store(*args: Any, **kwargs: Any) -> Any:
            assert may_store()
            return operation(*args, **kwargs)

        return store

    for name in ("fail", "fail_batch"):
        monkeypatch.setattr(fails, name, held_up(getattr(fails, name)))


def test_it_claims_no_more_while_the_outcomes_of_many_jobs_are_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Jobs that fail at once end faster than they are stored.
    monkeypatch.setattr(claimer, "MAX_UNSTORED", 10)
    open_again, waits = threading.Event(), []
    real_wait = WorkerProcess._wait

    def wait(process: WorkerProcess) -> None:
        if process._in_flight.unstored >= 10 and not process._in_flight.busy:
            waits.append(1)
        real_wait(process)

    before_failures(monkeypatch, lambda: open_again.wait(BOUND))
    monkeypatch.setattr(WorkerProcess, "_wait", wait)
    jobs = 2 * MAX_BATCH
    ojs.enqueue_batch([handlers.throw.s("KeyError") for _ in range(jobs)])
    with working() as process:
        try:
            eventually(lambda: len(waits) > 20, "it waits until outcomes are stored")
            # At most one claim more than the bound.
            assert Job.objects.filter(state="active").count() < 10 + MAX_BATCH
            assert Job.objects.filter(state="available").exists()
        finally:
            open_again.set()
        eventually(lambda: process.job_log.failed_count == jobs, "all have run")


@pytest.mark.parametrize("is_away", [False, True])
def test_when_it_is_stopped_it_stores_outcomes_for_as_long_as_its_grace_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_away: bool
) -> None:
    monkeypatch.setattr(processes, "FINAL_WRITE_TIMEOUT", 0.0)
    monkeypatch.setattr(processes, "DRAIN_LOG_INTERVAL", 0.0)
    caplog.set_level(logging.INFO, "django_ojs")
    begun, go_on = threading.Event(), threading.Event()

    def may_store() -> bool:
        begun.set()
        if is_away and not go_on.is_set():
            raise OperationalError("connection refused")
        return go_on.wait(BOUND)

    before_failures(monkeypatch, may_store)
    ojs.enqueue_batch([handlers.throw.s("KeyError") for _ in range(5)])
    with working(grace=timedelta(seconds=600)) as process:
        try:
            eventually(lambda: begun.is_set() and process._in_flight.unstored == 5, "all ended")
            if is_away:
                eventually(lambda: process._completer.is_away, "it knows")
            process.on_signal(Directive.TERMINATE)
            if is_away:
                # Nothing can be stored: it does not wait for its grace to end.
                eventually(lambda: "stopped: 0 completed, 0 failed" in caplog.text, "it ends")
            else:
                eventually(lambda: "waiting for the outcomes of 5 jobs" in caplog.text, "it waits")
        finally:
            go_on.set()
        if not is_away:
            eventually(lambda: "stopped: 0 completed, 5 failed" in caplog.text, "it ends")
        eventually(lambda: process.job_log.failed_count == 5, "all is stored")


def test_the_log_names_each_job_and_never_its_arguments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "django_ojs")
    secret = "4111-1111-1111-1111"
    done = stored(ojs.enqueue("testapp.echo", [secret]))
    failed = stored(handlers.transfer.options(retry={"max_attempts": 1}).enqueue(secret, "raise"))
    stored(ojs.enqueue("nobody.knows", [secret], meta={"card": secret}))
    WorkerProcess(configured(once=True)).run()
    assert f"testapp.echo {done.pk} completed in " in caplog.text
    assert f"worker.transfer {failed.pk} failed in " in caplog.text
    assert "ValueError: the transfer failed (dead letter after attempt 1)" in caplog.text
    assert secret not in caplog.text
    assert not any(secret in repr(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("type_", ["worker.transfer", "worker.transfer_async"])
def test_an_error_is_logged_with_its_traceback_from_the_handler_on(
    caplog: pytest.LogCaptureFixture, type_: str
) -> None:
    stored(ojs.enqueue(type_, ["ada", "raise"], retry={"max_attempts": 1}))
    WorkerProcess(configured(once=True)).run()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    kind, error, traceback = record.exc_info
    assert (kind, str(error)) == (ValueError, "the transfer failed")
    assert traceback is not None
    assert traceback.tb_frame.f_code.co_name == type_.partition(".")[2]
    assert 'raise ValueError("the transfer failed")' in logging.Formatter().format(record)


def test_a_process_handles_the_signals_of_the_protocol_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    process = WorkerProcess(configured(once=True))
    received: list[Directive] = []
    process.on_signal = received.append

    def run() -> Exit:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT):
            signal.raise_signal(number)
        raise RuntimeError

    monkeypatch.setattr(process, "run", run)
    with pytest.raises(RuntimeError):
        run_process(process)
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
    assert received == [
        Directive.TERMINATE,
        Directive.TERMINATE,
        Directive.QUIET,
        Directive.RUNNING,
    ]


def test_once_does_not_end_before_a_claim_has_found_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All slots are busy when it would claim, and none is when it looks whether to end."""
    jobs = [stored(handlers.note.enqueue()) for _ in range(5)]
    real, busy = ClaimSizer.claim_size, [True] * 3
    monkeypatch.setattr(
        ClaimSizer, "claim_size", lambda sizer, now: 0 if busy and busy.pop() else real(sizer, now)
    )
    assert WorkerProcess(configured(once=True, threads=1)).run() is Exit.OK
    assert all(becomes(job, "completed") for job in jobs)


def test_once_runs_the_step_that_was_enqueued_between_its_claim_and_its_look_at_workflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enqueued: list[Job] = []

    def advance() -> int:
        # As the thread that advances workflows: it commits when the claim has found no job.
        if not enqueued:
            enqueued.append(stored(handlers.note.enqueue()))
        return 0

    monkeypatch.setattr(hooks, "next_jobs", advance)
    assert WorkerProcess(configured(once=True)).run() is Exit.OK
    assert becomes(enqueued[0], "completed")


@pytest.mark.parametrize("kind", ["plain", "failing", "atomic"])
def test_a_worker_starts_the_steps_after_a_job_that_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # What else would advance the workflow.
    monkeypatch.setattr(WorkflowsExtension, "due_steps", lambda self: ())
    monkeypatch.setattr(WorkflowsExtension, "helping_steps", lambda self, behind: ())
    first = {
        "plain": handlers.note.s(),
        "failing": handlers.throw.s("ValueError"),
        "atomic": handlers.transfer.s("anna"),
    }[kind]
    enqueued = ojs.chain(first, handlers.note.s()).enqueue()
    with working():
        eventually(lambda: enqueued.workflow().state != "running", "the workflow has ended")
    assert enqueued.workflow().state == ("failed" if kind == "failing" else "completed")


class Beside:
    """What works beside a worker."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("once", [False, True])
def test_what_works_beside_a_worker_is_closed_with_it_and_is_not_made_for_once(once: bool) -> None:
    made: list[Beside] = []

    def threads(worker_id: str) -> Beside:
        made.append(Beside(worker_id))
        return made[-1]

    with installed(Other(Hooks(worker_threads=threads))):
        job = stored(handlers.note.enqueue())
        if once:
            assert WorkerProcess(configured(once=True)).run() is Exit.OK
            assert made == []
            return
        with working() as process:
            becomes(job, "completed")
            assert [(each.worker_id, each.closed.is_set()) for each in made] == [
                (process.id, False)
            ]
    assert made[0].closed.is_set()


def test_once_goes_on_when_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job = stored(handlers.note.enqueue())
    real, errors = claimer.fetch, [OperationalError("The server closed the connection.")]

    def fetch(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(claimer, "fetch", fetch)
    assert WorkerProcess(configured(once=True)).run() is Exit.OK
    assert becomes(job, "completed")

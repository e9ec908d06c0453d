"""The heartbeat: beats, their responses, and the timeouts of the runs."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection

from django_ojs.extension import Hooks
from django_ojs.models import Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import ack, beat, cancel
from django_ojs.operations.beat import Registration
from django_ojs.operations.workers.rescue import DeadWorkers
from django_ojs.spec.errors import Conflict, RowLocked
from django_ojs.spec.failure import Failure
from django_ojs.spec.published import EventType
from django_ojs.storage.dialects.server import Session
from django_ojs.worker import heartbeat as heartbeats
from django_ojs.worker.executor import Executor
from django_ojs.worker.heartbeat import Heartbeat
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.listener import Listener
from tests import factories
from tests.test_extension import Other, installed
from tests.worker.parts import Gate, Outcomes, run_of
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True)

ME = factories.WORKER


class Bench:
    """A heartbeat between parts that record their calls."""

    def __init__(self) -> None:
        self.in_flight, self.job_log = JobsInFlight(), JobLog()
        self.directed: list[Directive] = []
        self.slots: list[int] = []
        self.stuck = threading.Event()
        self.failures: list[tuple[Run, Failure, str]] = []
        self.lost: list[Run] = []
        self.heartbeat: Heartbeat | None = None

    def fail(self, run: Run, failure: Failure, *, outcome: str, seconds: float) -> None:
        self.failures.append((run, failure, outcome))
        self.in_flight.remove([run])

    def settle_lost(self, run: Run) -> None:
        self.lost.append(run)

    def start(self, interval: float = 0.05) -> Heartbeat:
        self.heartbeat = Heartbeat(
            ME,
            self.in_flight,
            self,
            self.job_log,
            interval=timedelta(seconds=interval),
            registration=Registration(
                hostname="here", pid=7, queues=("a", "b"), started_at=datetime.now(UTC)
            ),
            on_directive=self.directed.append,
            on_slots=self.slots.append,
            on_stuck_thread=self.stuck.set,
        )
        return self.heartbeat

    def holds(self, function: Callable[..., Any] = lambda: None, **values: Any) -> Run:
        run = run_of(function, job=factories.active(worker_id=ME), **values)
        self.in_flight.add([run])
        return run


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    if bench.heartbeat is not None:
        bench.heartbeat.close()


@pytest.fixture
def executor(outcomes: Outcomes) -> Iterator[Executor]:
    executor = Executor(2, outcomes)
    yield executor
    executor.close()


def test_a_worker_may_claim_only_while_its_heartbeats_are_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Others take it for dead, and its thread may find no connection for long.
    away, real = threading.Event(), heartbeats.beat.beat

    def beat(*args: Any, **kwargs: Any) -> Any:
        if away.is_set():
            raise OperationalError
        return real(*args, **kwargs)

    monkeypatch.setattr(heartbeats.beat, "beat", beat)
    heartbeat = bench.start()
    assert heartbeat.registered
    away.set()
    eventually(lambda: not heartbeat.registered, "a heartbeat was not stored")
    away.clear()
    eventually(lambda: heartbeat.registered, "a heartbeat is stored again")


@pytest.mark.parametrize("error", [LookupError("no"), Conflict("no"), RowLocked("no")])
def test_an_extension_that_undoes_a_heartbeat_does_not_end_the_worker(
    bench: Bench, error: Exception
) -> None:
    refuses = threading.Event()
    refuses.set()

    def published(events: Any) -> None:
        if refuses.is_set():
            raise error

    types = frozenset({EventType.WORKER_HEARTBEAT})
    with installed(Other(Hooks(published=published, published_types=types), "breaks")):
        heartbeat = bench.start()
        assert not heartbeat.registered
        refuses.clear()
        eventually(lambda: heartbeat.registered, "a heartbeat is stored")
        refuses.set()
        eventually(lambda: not heartbeat.registered, "a heartbeat was not stored")
        refuses.clear()
        eventually(lambda: heartbeat.registered, "a heartbeat is stored again")
        heartbeat.close()


@pytest.mark.postgresql
def test_while_the_listener_has_no_connection_the_heartbeats_send_no_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_attach, attach_session, real = threading.Event(), beat.attach_session, beat.beat
    may_attach.set()
    stored: list[Session | None] = []

    def beat_as_if_rarely(*args: Any, session: Session | None, **kwargs: Any) -> Any:
        # On a busy machine a heartbeat may be late by more than three of the real intervals.
        rarely = {**kwargs, "interval": timedelta(minutes=5)}
        response = real(*args, session=session, **rarely)
        stored.append(session)
        return response

    def attach_when_connected(worker_id: str) -> Session | None:
        assert may_attach.wait(BOUND)
        return attach_session(worker_id)

    monkeypatch.setattr(heartbeats.beat, "beat", beat_as_if_rarely)
    monkeypatch.setattr(heartbeats.beat, "attach_session", attach_when_connected)
    mine, heartbeat = Worker.objects.filter(pk=ME), bench.start()
    listener = Listener(["a"], lambda *_: None, heartbeat, lambda: None)
    try:
        ended, _ = eventually(lambda: heartbeat.session, "the session is known")
        may_attach.clear()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [ended])
        eventually(lambda: heartbeat.session is None, "the listener knows that it has ended")
        # The first heartbeat that ends from now on may still have been sent with the session.
        before = len(stored)
        eventually(lambda: len(stored) > before + 1, "a heartbeat was sent since")
        assert stored[-1] is None
        dead = DeadWorkers()
        assert [dead.take_back() for _ in range(3)] == [0, 0, 0]
        assert mine.exists()
        may_attach.set()
        eventually(lambda: mine.get().session_pid not in (None, ended), "it has another one")
    finally:
        may_attach.set()
        listener.close()


@pytest.mark.postgresql
def test_a_session_that_has_ended_is_removed_at_once_however_distant_the_next_heartbeat_is(
    bench: Bench,
) -> None:
    heartbeat = bench.start(3600.0)
    assert heartbeat.attach_session()
    eventually(lambda: heartbeat._is_idle and not heartbeat._is_session_new, "it was sent")
    heartbeat.detach_session()
    eventually(lambda: Worker.objects.get().session_pid is None, "it is removed")


@pytest.mark.postgresql
def test_after_a_heartbeat_that_failed_the_session_is_attached_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The heartbeats may reach another server before the listener notices that its own is gone.
    beats: list[Session | None] = []
    real, failures = beat.beat, [1]

    def fail_once(*args: Any, session: Session | None, **kwargs: Any) -> Any:
        if session is not None and failures:
            failures.pop()
            raise OperationalError
        beats.append(session)
        return real(*args, session=session, **kwargs)

    monkeypatch.setattr(heartbeats.beat, "beat", fail_once)
    listener = Listener(["a"], lambda *_: None, bench.start(), lambda: None)
    try:
        eventually(lambda: not failures, "a heartbeat failed")
        eventually(lambda: beats[-1] is not None, "the session is sent again")
        eventually(
            lambda: Worker.objects.filter(pk=ME, session_pid__isnull=False).exists(),
            "the session is known again",
        )
    finally:
        listener.close()


@pytest.mark.requirement("CORE-7.5-2")
def test_it_registers_before_anything_else_and_goes_on_beating(bench: Bench) -> None:
    heartbeat = bench.start()
    assert heartbeat.registered
    worker = Worker.objects.get()
    assert (worker.pk, worker.hostname, worker.pid, worker.queues) == (ME, "here", 7, ["a", "b"])
    assert worker.dead_after_ms == 150
    eventually(lambda: Worker.objects.get().seen_at > worker.seen_at, "it beats again")


def test_it_reports_its_state_and_its_jobs_in_flight(bench: Bench) -> None:
    bench.holds()
    # At once: the next heartbeat would be late.
    heartbeat = bench.start(interval=600)
    heartbeat.state = Directive.QUIET
    eventually(
        lambda: Worker.objects.filter(state="quiet", active_jobs=1).exists(), "both are reported"
    )


def test_a_worker_that_was_forgotten_registers_again(bench: Bench) -> None:
    bench.start()
    Worker.objects.all().delete()
    eventually(lambda: Worker.objects.filter(hostname="here").exists(), "it is registered")


def test_it_passes_on_the_directive_of_the_response(bench: Bench) -> None:
    bench.start()
    beat.direct(ME, Directive.QUIET)
    eventually(lambda: bench.directed, "it is directed")
    assert set(bench.directed) == {Directive.QUIET}


def test_it_passes_on_the_slots_that_were_chosen_and_reports_them(bench: Bench) -> None:
    bench.start()
    Worker.objects.filter(pk=ME).update(wanted_slots=5)
    eventually(
        lambda: Worker.objects.filter(pk=ME, concurrency=5, wanted_slots=None).exists(),
        "they are reported",
    )
    assert set(bench.slots) == {5}


def test_a_lease_is_extended_when_a_third_of_it_is_gone(bench: Bench) -> None:
    fresh, aging = bench.holds(), bench.holds()
    aging.extended_at -= 60 * 10
    leases = [factories.read(run.job.id).lease_until for run in (fresh, aging)]
    bench.start(interval=60)
    after = [factories.read(run.job.id).lease_until for run in (fresh, aging)]
    assert after[0] == leases[0]
    assert after[1] > leases[1]


def test_a_lease_shorter_than_the_interval_is_extended_between_two_beats(bench: Bench) -> None:
    heartbeat = bench.start(interval=3600)
    (worker,) = Worker.objects.all()
    run = run_of(lambda: None, job=factories.active(worker_id=ME, visibility_timeout_ms=3_000))
    bench.in_flight.add([run])
    heartbeat.notice_jobs()
    for _ in range(2):
        lease = factories.read(run.job.id).lease_until
        eventually(lambda lease=lease: factories.read(run.job.id).lease_until > lease, "extended")  # type: ignore[misc]  # mypy has no inference for a default
    assert Worker.objects.get().beat_at > worker.beat_at


def test_a_lease_that_could_not_be_extended_is_tried_again_soon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stranger holds the lock of one of them: only the other one is extended.
    asked: list[list[UUID]] = []
    said: list[bool] = []

    def respond(*args: Any, extend: Any, is_behind: bool, **kwargs: Any) -> beat.BeatResponse:
        locked = frozenset(extend[:1] if not asked else ())
        asked.append(extend)
        said.append(is_behind)
        extended = len(extend) - len(locked)
        return beat.BeatResponse(state=Directive.RUNNING, jobs_extended=extended, locked=locked)

    monkeypatch.setattr(beat, "beat", respond)
    runs = [bench.holds() for _ in range(2)]
    for run in runs:
        run.extended_at -= 60 * 60
    bench.start(interval=3600)
    eventually(lambda: len(asked) > 1, "the locked one is extended")
    assert runs[0].job.id in asked[1]
    assert all(run.extension_due > run.claimed_at for run in runs)
    # Until it could try again, its leases do not end.
    assert said[:2] == [False, True]


def test_a_database_that_is_away_changes_nothing_and_is_logged_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failed = beat.beat, []

    def away(*args: Any, **kwargs: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise OperationalError
        return real(*args, **kwargs)

    monkeypatch.setattr(beat, "beat", away)
    run = bench.holds()
    heartbeat = bench.start()
    assert not heartbeat.registered
    eventually(lambda: heartbeat.registered, "it registers once it can")
    assert caplog.text.count("The database does not respond") == 1
    assert run.phase is Phase.WAITING
    assert bench.directed == []


@pytest.mark.interrupts
def test_a_cancelled_job_is_taken_from_its_handler(
    bench: Bench, executor: Executor, outcomes: Outcomes
) -> None:
    gate = Gate()
    run, other = bench.holds(gate), bench.holds(gate)
    executor.submit([run, other])
    gate.has_started()
    gate.has_started()
    bench.start()
    cancel.cancel(run.job.id)
    eventually(lambda: run.phase is Phase.REVOKED, "it is taken")
    # Its context learns of it directly afterwards, in another thread.
    eventually(lambda: run.context.cancelled, "the handler is told")
    eventually(lambda: gate.running == 1, "its handler is stopped, the other goes on")
    assert (bench.in_flight.busy, bench.in_flight.all()) == (1, [other])
    assert bench.lost == [run]
    gate.open()
    assert outcomes.next().run is other


@pytest.mark.interrupts
def test_a_job_that_is_lost_before_its_turn_does_not_run(bench: Bench) -> None:
    run = bench.holds()
    bench.start()
    cancel.cancel(run.job.id)
    eventually(lambda: run.phase is Phase.REVOKED, "it is taken")
    assert not run.begin()
    assert (bench.in_flight.busy, len(bench.in_flight)) == (0, 0)


def test_a_job_whose_outcome_was_just_stored_is_not_taken_for_lost(bench: Bench) -> None:
    run = bench.holds()
    run.begin()
    run.end()
    ack.ack(run.job.id)
    bench.start()
    (worker,) = Worker.objects.all()
    eventually(lambda: Worker.objects.get().seen_at > worker.seen_at, "it beats again")
    assert (run.phase, run.context.cancelled) == (Phase.DONE, False)


def test_a_run_that_has_committed_its_own_completion_is_not_stopped(bench: Bench) -> None:
    run = bench.holds()
    run.begin()
    ack.ack(run.job.id)
    run.note_commit()  # Functions of on_commit run now.
    bench.start()
    (worker,) = Worker.objects.all()
    eventually(lambda: Worker.objects.get().seen_at > worker.seen_at, "it beats again")
    assert (run.phase, run.context.cancelled) == (Phase.RUNNING, False)


@pytest.mark.interrupts
def test_a_run_that_is_overdue_fails_with_timeout_and_is_interrupted(
    bench: Bench, executor: Executor
) -> None:
    gate = Gate()
    run, patient = bench.holds(gate, timeout=0.1), bench.holds(gate)
    executor.submit([run, patient])
    gate.has_started()
    gate.has_started()
    bench.start()
    eventually(lambda: gate.running == 1, "its handler is stopped")
    ((failed, failure, outcome),) = bench.failures
    assert (failed, failure.type, outcome) == (run, "timeout", "timeout")
    assert (run.context.cancelled, patient.context.cancelled) == (True, False)
    assert bench.in_flight.busy == 1
    gate.open()


@pytest.mark.interrupts
def test_a_run_that_is_stopped_for_the_total_timeout_fails_with_that_type(
    bench: Bench, executor: Executor
) -> None:
    gate = Gate()
    run = run_of(gate, job=factories.active(worker_id=ME, total_timeout=60), timeout=0.1)
    bench.in_flight.add([run])
    executor.submit([run])
    gate.has_started()
    bench.start()
    eventually(lambda: bench.failures, "the run is overdue")
    assert bench.failures[0][1].type == "total_timeout"


@pytest.mark.interrupts
def test_a_thread_that_does_not_end_is_reported_and_one_that_ends_is_not(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, release = Gate(), threading.Event()
    hears, deaf = bench.holds(gate, timeout=0.1), bench.holds(lambda: release.wait(BOUND))
    bench.start()
    try:
        executor.submit([hears])
        eventually(lambda: len(bench.failures) == 1, "it times out")
        eventually(lambda: not (hears.thread and hears.thread.is_alive()), "its thread ends")
        # From now on any interrupted thread that is alive counts as stuck.
        monkeypatch.setattr(heartbeats, "STUCK_AFTER", 0.0)
        assert not bench.stuck.wait(0.5)
        deaf.timeout = 0.1
        executor.submit([deaf])
        assert bench.stuck.wait(BOUND)
    finally:
        release.set()


def acquire_and_release(log: logging.Handler) -> None:
    log.acquire()
    try:
        pass
    finally:
        log.release()


def handle(log: logging.Handler) -> None:
    log.handle(logging.makeLogRecord({}))


@pytest.mark.interrupts
@pytest.mark.parametrize("how", [acquire_and_release, handle])
def test_a_handler_that_is_stopped_while_it_waits_to_log_leaves_no_lock_behind(
    bench: Bench,
    executor: Executor,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[logging.Handler], None],
) -> None:
    gate, log, waits = Gate(), logging.Handler(), threading.Event()
    monkeypatch.setattr(log, "emit", lambda record: None)

    def logs() -> None:
        waits.set()
        how(log)
        gate()

    run = bench.holds(logs)
    bench.start()
    log.acquire()  # Another thread writes, and takes long.
    try:
        executor.submit([run])
        assert waits.wait(BOUND)
        # Since Python 3.13, `handle` takes the lock itself.
        waiting = (logging.Handler.acquire.__code__, logging.Handler.handle.__code__)
        frames = sys._current_frames
        eventually(lambda: frames()[run.thread_id or 0].f_code in waiting, "it waits for the lock")
        run.timeout = 0.1
        eventually(lambda: len(bench.failures) == 1, "it times out")
    finally:
        log.release()
    eventually(lambda: not (run.thread and run.thread.is_alive()), "its thread ends")
    assert log.lock is not None
    assert log.lock.acquire(blocking=False)


def test_a_coroutine_that_does_not_end_is_reported_and_one_that_ends_is_not(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    async def deaf() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async def waits() -> None:
        await asyncio.sleep(BOUND)

    hears, stays = bench.holds(waits, timeout=0.1), bench.holds(deaf)
    heartbeat = bench.start()
    try:
        executor.submit([hears])
        eventually(lambda: len(bench.failures) == 1, "it times out")
        eventually(lambda: hears.thread is None, "its task ends")
        # From now on any interrupted coroutine that has not ended counts as stuck.
        monkeypatch.setattr(heartbeats, "STUCK_AFTER", 0.0)
        eventually(lambda: heartbeat.interrupted == [], "this is noticed")
        assert not bench.stuck.is_set()
        stays.timeout = 0.1
        executor.submit([stays])
        assert bench.stuck.wait(BOUND)
    finally:
        release.set()


@pytest.mark.interrupts
def test_a_job_that_comes_between_two_distant_heartbeats_is_stopped_at_its_timeout(
    bench: Bench, executor: Executor
) -> None:
    # Without a job the thread waits for its next heartbeat.
    heartbeat = bench.start(3600.0)
    eventually(lambda: heartbeat._is_idle, "it waits")
    gate = Gate()
    run = bench.holds(gate, timeout=0.1)
    executor.submit([run])
    heartbeat.notice_jobs()
    # Not that its handler has begun: on a busy machine it may be stopped before.
    eventually(lambda: bench.failures, "the run is overdue")
    assert bench.failures[0][1].type == "timeout"


@pytest.mark.postgresql
def test_a_new_session_is_sent_at_once_however_distant_the_next_heartbeat_is(bench: Bench) -> None:
    heartbeat = bench.start(3600.0)
    eventually(lambda: heartbeat._is_idle, "it waits")
    assert heartbeat.attach_session()
    Worker.objects.update(session_pid=None)  # As a heartbeat that was under way.
    heartbeat._is_session_new = True
    heartbeat._wake.set()
    eventually(lambda: Worker.objects.get().session_pid, "it is sent again")


@pytest.mark.interrupts
def test_a_stuck_thread_is_reported_though_no_job_is_in_flight_and_no_heartbeat_is_due(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "STUCK_AFTER", 0.0)
    release = threading.Event()
    try:
        executor.submit([bench.holds(lambda: release.wait(BOUND), timeout=0.1)])
        bench.start(3600.0)
        assert bench.stuck.wait(BOUND)
    finally:
        release.set()


def test_an_idle_worker_renews_what_it_registered(bench: Bench) -> None:
    bench.start()
    Worker.objects.update(hostname="written once", active_jobs=7)
    eventually(lambda: Worker.objects.get().active_jobs == 0, "it sends heartbeats")
    assert Worker.objects.get().hostname == "written once"

"""What the supervisor makes of the processes that it watches; no process is started."""

from __future__ import annotations

import errno
import signal
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_ojs.spec import ids
from django_ojs.spec.isolation import Isolation
from django_ojs.worker import supervisor as supervisors
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.process import Exit
from django_ojs.worker.process_status import MAX_ISOLATED, ProcessStatus
from django_ojs.worker.supervisor import END_TIMEOUT, Child, Supervisor
from tests.worker.waiting import BOUND


class Bench:
    """A supervisor without processes, and the signals that it would send."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stall_timeout: int = 10) -> None:
        self.now, self.sent = 1000.0, []
        monkeypatch.setattr(supervisors, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.supervisor = Supervisor(WorkerConfig(stall_timeout=timedelta(seconds=stall_timeout)))
        monkeypatch.setattr(self.supervisor, "_rescue", lambda child, code=None: None)
        monkeypatch.setattr(
            self.supervisor, "_kill", lambda child, number: self.sent.append((child.pid, number))
        )

    def child(self, *, runs_alone: bool = False) -> Child:
        child = Child(
            pid=len(self.supervisor._children) + 1,
            worker_id="worker-a",
            started=self.now,
            status=ProcessStatus(),
            runs_alone=runs_alone,
        )
        self.supervisor._children[child.pid] = child
        return child

    def check_after(self, seconds: float) -> None:
        self.now += seconds
        self.supervisor._check_children()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def beat(child: Child) -> None:
    """Show one sign that the process runs Python code."""
    child.status._memory[0] = (child.status._memory[0] + 1) % 256


def test_a_process_that_is_silent_for_the_whole_bound_is_killed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    silent, busy = bench.child(), bench.child()
    key = ids.uuid7()
    silent.status.started(key, 1)
    for _ in range(9):
        beat(busy)
        bench.check_after(1)
    assert bench.sent == []
    beat(busy)
    bench.check_after(1)
    assert bench.sent == [(silent.pid, signal.SIGKILL)]
    assert "has run no Python code for 10 s" in caplog.text
    assert str(key) in caplog.text


def test_without_a_bound_no_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, stall_timeout=0)
    bench.child()
    for _ in range(100):
        bench.check_after(1)
    assert bench.sent == []


def test_a_machine_that_was_suspended_is_no_silence(bench: Bench) -> None:
    bench.child()
    bench.check_after(3600)
    bench.check_after(5)
    assert bench.sent == []


def test_a_process_that_was_stopped_is_not_silent(bench: Bench) -> None:
    child = bench.child()
    child.is_stopped = True
    for _ in range(30):
        bench.check_after(1)
    assert bench.sent == []
    child.is_stopped = False
    bench.check_after(1)
    assert bench.sent == []


def test_under_debug_a_silent_process_is_killed_only_to_stop(
    bench: Bench, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # The debugger of an editor stops all threads of a process at a breakpoint.
    settings.DEBUG = True
    child = bench.child()
    for _ in range(30):
        bench.check_after(1)
    assert bench.sent == []
    assert caplog.text.count("It is not killed while DEBUG is on") == 1
    bench.supervisor._stopping = True
    bench.check_after(1)
    assert bench.sent == [(child.pid, signal.SIGKILL)]


def test_a_process_that_died_of_its_first_job_is_replaced_at_once(bench: Bench) -> None:
    child = bench.child()
    child.status.started(ids.uuid7(), 1)
    bench.supervisor._ended(child, -signal.SIGSEGV)
    assert bench.supervisor._next_start <= bench.now


def test_a_process_that_died_before_any_job_is_replaced_later_each_time(bench: Bench) -> None:
    delays = []
    for _ in range(8):
        bench.supervisor._ended(bench.child(), 1)
        delays.append(bench.supervisor._next_start - bench.now)
    assert delays == [0.5, 1, 2, 4, 8, 15, 15, 15]


@pytest.mark.parametrize("code", [Exit.OK, Exit.REPLACE, -signal.SIGKILL])
def test_the_end_of_a_process_that_ran_a_job_alone_ends_no_other(bench: Bench, code: int) -> None:
    child = bench.child(runs_alone=True)
    child.status.note_isolated(2)
    bench.supervisor._ended(child, code)
    assert bench.supervisor._wanted == 1
    assert bench.supervisor._next_start == 0.0
    # More such jobs wait. After a death the other processes find them, so that no loop is hot.
    assert bench.supervisor._isolated_waiting == (2 if code > 0 else 0)


def test_a_process_that_cannot_be_started_is_tried_again_and_ends_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, "no process IDs are left")

    monkeypatch.setattr(supervisors.os, "fork", fork)
    other = bench.child()
    bench.supervisor._wanted = 2
    for pause in (0.5, 1.0):
        bench.supervisor._start_missing()
        assert f"(no process IDs are left); it is tried again in {pause} s" in caplog.text
        assert bench.supervisor._next_start == bench.now + pause
        bench.now += pause
    assert bench.supervisor._children == {other.pid: other}
    assert bench.sent == []
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(supervisors.SIGNALS)


def test_as_many_processes_start_as_jobs_wait_that_run_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[Isolation] = []

    def fork(config: WorkerConfig) -> None:
        assert (config.threads, config.max_jobs) == (1, 1)
        forked.append(config.isolation)
        bench.child(runs_alone=True)

    monkeypatch.setattr(bench.supervisor, "_fork", fork)
    shared = bench.child()
    shared.status.note_isolated(3)
    bench.check_after(1)
    bench.supervisor._start_missing()
    assert forked == [Isolation.ALONE] * 3
    shared.status.note_isolated(MAX_ISOLATED)
    bench.check_after(1)
    bench.supervisor._start_missing()
    assert forked == [Isolation.ALONE] * MAX_ISOLATED
    # Noted once, not for ever.
    bench.check_after(1)
    bench.supervisor._start_missing()
    assert len(forked) == MAX_ISOLATED


def test_after_a_process_that_found_no_job_to_run_alone_the_next_one_starts_later_each_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A limit may keep the job that waits.
    forked: list[Child] = []
    monkeypatch.setattr(
        bench.supervisor, "_fork", lambda *_: forked.append(bench.child(runs_alone=True))
    )
    shared = bench.child()

    def starts() -> bool:
        shared.status.note_isolated(1)
        bench.check_after(0)
        before = len(forked)
        bench.supervisor._start_missing()
        return len(forked) > before

    def ends() -> None:
        del bench.supervisor._children[forked[-1].pid]
        bench.supervisor._ended(forked[-1], Exit.OK)

    for pause in (0.5, 1.0, 2.0):
        assert starts()
        ends()
        bench.now += pause / 2
        assert not starts()
        bench.now += pause / 2
    assert starts()
    forked[-1].status.started(ids.uuid7(), 1)
    ends()
    assert starts()


def test_the_last_process_that_stops_ends_those_that_run_a_job_alone(bench: Bench) -> None:
    alone, last = bench.child(runs_alone=True), bench.child()
    del bench.supervisor._children[last.pid]
    bench.supervisor._ended(last, Exit.OK)
    bench.supervisor._forward_signals()
    assert bench.sent == [(alone.pid, signal.SIGTERM)]
    assert bench.supervisor._stopping


def test_a_process_that_leaves_is_replaced_before_it_ends_and_one_more_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[Child] = []
    monkeypatch.setattr(bench.supervisor, "_fork", lambda *_: forked.append(bench.child()))
    first = bench.child()
    bench.supervisor._start_missing()
    assert forked == []
    first.status.note_leaving()
    bench.supervisor._start_missing()
    bench.supervisor._start_missing()
    assert len(forked) == 1
    # That one leaves as well: memory for as many as are configured, twice, is all there may be.
    forked[0].status.note_leaving()
    bench.supervisor._start_missing()
    assert len(forked) == 1
    del bench.supervisor._children[first.pid]
    bench.supervisor._ended(first, Exit.REPLACE)
    bench.supervisor._start_missing()
    assert len(forked) == 2


def test_a_worker_whose_processes_leave_is_ready_when_others_are(bench: Bench) -> None:
    first = bench.child()
    first.status.note_ready(BOUND)
    assert bench.supervisor._is_ready()
    first.status.note_leaving()
    assert not bench.supervisor._is_ready()
    bench.child().status.note_ready(BOUND)
    assert bench.supervisor._is_ready()


@pytest.mark.parametrize("requests", [1, 2], ids=["after the grace period", "asked again"])
def test_a_process_that_does_not_end_in_time_is_killed(bench: Bench, requests: int) -> None:
    # It may wait for a database that never answers, where no exception reaches it.
    child, grace = bench.child(), 25.0
    bench.supervisor._receive(signal.SIGTERM, None)
    bench.supervisor._forward_signals()
    if requests == 2:
        bench.supervisor._stop_requests.is_second = lambda: True  # type: ignore[method-assign]
        bench.supervisor._receive(signal.SIGTERM, None)
        bench.supervisor._forward_signals()
        assert child.status.must_stop_at_once
        grace = 0.0
    assert bench.sent == [(child.pid, signal.SIGTERM)] * requests
    child.is_stopped = True
    bench.check_after(grace + END_TIMEOUT - 1)
    assert bench.sent == [(child.pid, signal.SIGTERM)] * requests
    bench.check_after(1)
    assert bench.sent[requests:] == [(child.pid, signal.SIGKILL)]


@pytest.mark.parametrize("stops", [False, True])
def test_a_rescue_that_the_database_does_not_respond_to_is_not_waited_for(
    stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, is_ended, goes_on = Supervisor(WorkerConfig()), threading.Event(), threading.Event()

    def rescue(child: Child, code: int | None) -> None:
        assert is_ended.wait(BOUND)
        goes_on.set()

    monkeypatch.setattr(supervisor, "_rescue_now", rescue)
    monkeypatch.setattr(supervisors, "RESCUE_TIMEOUT", 0.0)
    monkeypatch.setattr(supervisors.database, "watched", lambda: [None])
    monkeypatch.setattr(supervisors.database, "end", lambda link: is_ended.set())
    if stops:
        supervisor._stop()
        supervisor._kill_at = 0.0
    supervisor._rescue(SimpleNamespace())
    # While it stops, it ends without an answer. Otherwise it forks again: no thread is left.
    assert goes_on.is_set() == (not stops)
    is_ended.set()
    assert goes_on.wait(BOUND)
    supervisor._wake.close()

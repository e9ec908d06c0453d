"""What a process shows its supervisor, also when it is dead."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from django_ojs.spec import ids
from django_ojs.worker import process_status
from django_ojs.worker.process_status import MAX_ISOLATED, ProcessStatus
from tests.forks import fork
from tests.worker.waiting import BOUND, eventually


def in_child(status: ProcessStatus, *runs: tuple[str, object]) -> None:
    """Let a child process note this and end on the spot."""

    def note() -> None:
        for what, values in runs:
            getattr(status, what)(*values)  # type: ignore[misc]  # names and values of the test

    os.waitpid(fork(note), 0)


def test_the_jobs_that_a_dead_process_had_started_are_known() -> None:
    status = ProcessStatus()
    first, second, third = ids.uuid7(), ids.uuid7(), ids.uuid7()
    assert (status.running(), status.has_run) == (set(), False)
    in_child(
        status,
        ("started", (first, 1)),
        ("started", (second, 7)),
        ("ended", ([(first, 1)],)),
        ("started", (third, 2)),
        ("ended", ([(first, 1)],)),
    )
    assert status.running() == {(second, 7), (third, 2)}
    assert status.has_run
    status.close()


def test_with_more_jobs_than_the_table_has_room_for_none_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_status, "CAPACITY", 2)
    status = ProcessStatus()
    keys = [ids.uuid7() for _ in range(3)]
    for key in keys[:2]:
        status.started(key, 1)
    assert status.running() == {(key, 1) for key in keys[:2]}
    status.started(keys[2], 1)
    assert status.running() is None


def test_an_entry_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_status, "CAPACITY", 4)
    status = ProcessStatus()
    for number in range(100):
        key = ids.uuid7()
        status.started(key, number)
        assert status.running() == {(key, number)}
        status.ended([(key, number)])
    assert status.running() == set()


def test_threads_that_start_jobs_at_once_have_entries_of_their_own() -> None:
    status = ProcessStatus()
    keys = [ids.uuid7() for _ in range(400)]

    def start(part: int) -> None:
        for key in keys[part::4]:
            status.started(key, part)

    threads = [threading.Thread(target=start, args=[part]) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert status.running() == {(key, number % 4) for number, key in enumerate(keys)}


def test_a_heartbeat_counts_for_a_while() -> None:
    told: list[None] = []
    status = ProcessStatus(lambda: told.append(None))
    assert not status.is_ready
    in_child(status, ("note_ready", (BOUND,)))
    assert status.is_ready
    status.note_ready(0.0)
    assert not status.is_ready
    # The supervisor is woken when the process becomes ready, and not by each heartbeat.
    assert not told
    status.note_ready(BOUND)
    status.note_ready(BOUND)
    assert len(told) == 1


def test_an_isolated_job_is_noted_once() -> None:
    status = ProcessStatus()
    assert not status.take_isolated()
    in_child(status, ("note_isolated", (MAX_ISOLATED,)))
    assert status.take_isolated() == MAX_ISOLATED
    assert not status.take_isolated()


def test_the_pulse_goes_on_while_python_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_status, "PULSE_INTERVAL", 0.01)
    status = ProcessStatus()
    assert status.pulses == 0

    def pulse() -> None:
        status.start_pulse()
        signal.pause()

    pid = fork(pulse)
    try:
        eventually(lambda: status.pulses >= 3, "it beats three times")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

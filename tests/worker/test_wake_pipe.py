"""The pipe that ends the wait of the supervisor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from django_ojs.worker.signal_handlers import signal_handlers
from django_ojs.worker.wakes import WakePipe
from tests.forks import fork

#: Seconds of a wait that must end before; far more than any machine takes for what ends it.
LONG = 60.0


@pytest.fixture
def pipe() -> Iterator[WakePipe]:
    pipe = WakePipe()
    yield pipe
    pipe.close()


def ended_early(pipe: WakePipe) -> bool:
    began = time.monotonic()
    pipe.wait(LONG)
    return time.monotonic() - began < LONG


def test_it_ends_the_next_wait_and_no_other(pipe: WakePipe) -> None:
    pipe.wake()
    pipe.wake()
    assert ended_early(pipe)
    began = time.monotonic()
    pipe.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_it_ends_the_wait_from_another_thread(pipe: WakePipe) -> None:
    threading.Timer(0.05, pipe.wake).start()
    assert ended_early(pipe)


def test_a_child_ends_the_wait_of_its_parent(pipe: WakePipe) -> None:
    pid = fork(pipe.wake)
    assert ended_early(pipe)
    os.waitpid(pid, 0)


def test_the_end_of_a_child_ends_the_wait_if_the_signal_has_a_handler(pipe: WakePipe) -> None:
    with signal_handlers({signal.SIGCHLD: lambda *_: None}), pipe.woken_by_signals():
        pid = fork()
        assert ended_early(pipe)
        os.waitpid(pid, 0)


def test_a_full_pipe_does_not_block_who_writes(pipe: WakePipe) -> None:
    for _ in range(100_000):
        pipe.wake()
    assert ended_early(pipe)


def test_signals_write_to_it_only_inside_of_the_block(pipe: WakePipe) -> None:
    with pipe.woken_by_signals():
        pass
    assert signal.set_wakeup_fd(-1) == -1


def test_it_is_closed_with_its_owner() -> None:
    pipe = WakePipe()
    ends = pipe._read, pipe._write
    del pipe
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)

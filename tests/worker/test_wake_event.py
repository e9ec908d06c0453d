"""The bell that wakes a waiting thread, signals included."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_ojs.worker.wake_event import Bell


def test_it_rings_once_however_often_it_is_rung() -> None:
    bell = Bell()
    assert not bell.wait(0)
    for _ in range(3):
        bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)


def test_a_thread_that_waits_is_woken_by_another() -> None:
    bell, heard = Bell(), []
    thread = threading.Thread(target=lambda: heard.append(bell.wait(20)))
    thread.start()
    bell.ring()
    thread.join(20)
    assert heard == [True]


@contextmanager
def interrupted_by(handler: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR2, handler)
    main = threading.get_ident()
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGUSR2))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGUSR2, before)


def test_a_signal_handler_may_ring_it_in_the_middle_of_the_wait() -> None:
    bell = Bell()
    with interrupted_by(lambda *_: bell.ring()):
        assert bell.wait(20)


@pytest.mark.timeout(20)
def test_a_wait_that_is_interrupted_after_its_time_is_up_ends() -> None:
    # As when the process is stopped, and goes on much later.
    bell = Bell()
    with interrupted_by(lambda *_: time.sleep(0.5)):
        assert not bell.wait(0.3)

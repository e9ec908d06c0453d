"""The event that wakes a waiting thread, signals included."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django_ojs.worker.wakes import WakeEvent
from tests.worker.waiting import BOUND


def test_setting_it_several_times_ends_one_wait() -> None:
    event = WakeEvent()
    assert not event.wait(0)
    for _ in range(3):
        event.set()
    assert event.wait(0)
    assert not event.wait(0)


def test_a_thread_that_waits_is_woken_by_another() -> None:
    event, results = WakeEvent(), []
    thread = threading.Thread(target=lambda: results.append(event.wait(BOUND)))
    thread.start()
    event.set()
    thread.join(BOUND)
    assert results == [True]


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


def test_a_signal_handler_may_set_it_during_the_wait() -> None:
    event = WakeEvent()
    with interrupted_by(lambda *_: event.set()):
        assert event.wait(BOUND)


def test_a_wait_that_is_interrupted_after_its_time_is_up_ends() -> None:
    # As when the process is stopped, and goes on much later.
    event = WakeEvent()
    with interrupted_by(lambda *_: time.sleep(0.5)):
        assert not event.wait(0.3)

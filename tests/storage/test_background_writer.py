"""A thread that writes what was collected: when it starts, when it writes, and when it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from django_ojs.extensions.statistics import rollups
from django_ojs.storage import background_writer
from django_ojs.storage.background_writer import BackgroundWriter
from tests.figures import note
from tests.worker.waiting import BOUND, eventually

Make = Callable[..., BackgroundWriter]
NAME = "a-writer"


def threads(name: str = NAME) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Build writers of which the process knows nothing after the test."""
    monkeypatch.setattr(background_writer, "_writers", made := [])

    def build(write: Callable[[], object], **times: float) -> BackgroundWriter:
        return BackgroundWriter(NAME, write, forget=lambda: None, **times)

    yield build
    background_writer.close_all(BOUND)
    assert len(made) == 1
    assert not threads()


def test_requests_before_a_write_are_one_write_and_then_the_thread_ends(make: Make) -> None:
    begun, written = threading.Event(), []
    writer = make(lambda: (begun.wait(BOUND), written.append(None)), interval=0.05)
    writer.request()
    eventually(lambda: writer._due is None, "the first write has begun")
    for _ in range(5):
        writer.request()
    assert len(threads()) == 1
    begun.set()
    eventually(lambda: not threads(), "the thread ends")
    assert len(written) == 2


def test_a_cancelled_request_is_not_written_and_a_later_one_has_its_own_delay(make: Make) -> None:
    written: list[None] = []
    writer = make(lambda: written.append(None), delay=3600)
    writer.request()
    first = writer._due
    writer.cancel()
    writer.request()
    assert first is not None
    assert writer._due is not None
    assert writer._due > first
    assert len(threads()) == 1
    writer.cancel()
    writer.close(BOUND)
    assert not written


def test_the_end_of_a_process_does_not_wait_for_the_delay(make: Make) -> None:
    written: list[None] = []
    make(lambda: written.append(None), delay=3600).request()
    background_writer.close_all()
    assert len(written) == 1


def test_the_end_of_a_process_does_not_wait_for_a_write_that_hangs(make: Make) -> None:
    released = threading.Event()
    writer = make(lambda: released.wait(BOUND))
    writer.request()
    background_writer.close_all(timeout=0.01)
    assert threads()
    released.set()
    eventually(lambda: not threads(), "the thread ends")


def test_a_write_that_fails_is_logged_and_the_next_one_is_tried(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[None] = []

    def write() -> None:
        written.append(None)
        raise RuntimeError("secret")

    writer = make(write, linger=BOUND)
    for number in (1, 2):
        writer.request()
        eventually(lambda: len(written) == number, "it was tried")  # noqa: B023 - called here
    writer.close(BOUND)
    with caplog.at_level(logging.ERROR):
        assert [record.message for record in caplog.records] == [f"{NAME} could not write."] * 2


def test_a_thread_that_cannot_start_is_no_error_of_the_caller(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    written: list[None] = []
    writer = make(lambda: written.append(None))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", reject)
        writer.request()
    assert not threads()
    writer.request()
    eventually(lambda: written, "the next request starts one")


@pytest.mark.django_db(transaction=True)
def test_a_test_run_has_no_thread_for_figures() -> None:
    note(rollups.ENQUEUED, "q", "t")
    assert not threads("ojs-figures")

"""What was refused, told even where the caller's transaction is rolled back.

A thread of its own, with its own connection, keeps the events: what a caller's transaction wrote
would vanish with it. Refusals come by the thousand; those of a tenth of a second are one event.
"""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager

from django.db import Error, connections

from django_ojs.models import Job
from django_ojs.operations.backpressure.bounds import retry_after
from django_ojs.operations.events import publish
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.events import EventType
from django_ojs.storage import bounds, database
from django_ojs.storage.figures import rollups

logger = logging.getLogger("django_ojs")

_EVERY = 0.1
#: After this many seconds without a refusal the thread and its connection go.
_LINGER = 1.0

_lock = threading.Lock()
_refused: dict[tuple[str, str], dict[str, Hashable]] = {}
_numbers: dict[tuple[str, str], int] = {}
_news, _closing = threading.Event(), threading.Event()
_thread: threading.Thread | None = None


def note(queue: str, type: str, *, depth: int, bound: int, number: int = 1) -> None:
    """Note that jobs of a type were refused."""
    global _thread
    rollups.note(rollups.REJECTED, queue, type, number=number)
    with _lock:
        _numbers[queue, type] = _numbers.get((queue, type), 0) + number
        _refused[queue, type] = {"depth": depth, "bound": bound}
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name="ojs-rejections", daemon=True)
            _thread.start()
    _news.set()


def refused(full: QueueFull, asked: Collection[Envelope] | Collection[Job]) -> None:
    """Note that a queue had no room for its part of these jobs, and say when there may be some."""
    types = Counter(job.type for job in asked if job.queue == full.queue)
    full.details["retry_after"] = retry_after(full.queue, types.total())
    for type, number in types.items():
        note(full.queue, type, depth=full.depth, bound=full.bound, number=number)


@contextmanager
def told(asked: Collection[Job]) -> Iterator[None]:
    """Note the refusal of jobs that are stored already: an activation, or a retry by hand.

    They ask for room as a new job does, and are counted as one (backpressure §10).
    """
    try:
        yield
    except QueueFull as full:
        refused(full, asked)
        raise


def flush() -> int:
    """Keep the events of what was refused since the last time. Return how many."""
    with _lock:
        refused, numbers = dict(_refused), dict(_numbers)
        _refused.clear()
        _numbers.clear()
    if not refused:
        return 0

    def operation() -> None:
        for (queue, type), data in refused.items():
            publish.queue_event(
                EventType.BACKPRESSURE_REJECTED,
                queue,
                **data,
                job_type=type,
                count=numbers[queue, type],
            )
        for queue in {queue for queue, _ in refused}:
            bounds.note_pressure(queue, full=True)

    try:
        database.in_write_transaction(operation)
        for queue in {queue for queue, _ in refused}:
            # Who was refused for want of a ticket finds one the next time.
            bounds.renew_tickets(queue)
    except Error as error:
        logger.warning(
            "The refusals of the last moments were not kept (%s).", error.__class__.__name__
        )
        return 0
    return len(refused)


def settle(timeout: float = 20.0) -> None:
    """Wait until all is kept, and the thread and its connection are gone: for tests and exits."""
    thread = _thread
    if thread is not None and thread is not threading.current_thread():
        _closing.set()
        _news.set()
        thread.join(timeout)
        _closing.clear()
    flush()


def _work() -> None:
    try:
        while _news.wait(_LINGER):
            _news.clear()
            flush()
            # What comes within the next moment goes with one event.
            if _closing.wait(_EVERY):
                break
    finally:
        connections.close_all()

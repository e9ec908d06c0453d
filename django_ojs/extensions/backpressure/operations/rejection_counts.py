"""Rejected jobs, recorded even where the caller's transaction is rolled back.

A thread with its own connection writes the events: the rollback of a caller's transaction would
delete them. There may be thousands of rejections, so those of a queue and type within a tenth of a
second are one event.
"""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Hashable
from typing import Final

from django.db import Error

from django_ojs.extension import Count
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import episodes
from django_ojs.hooks import count, publish
from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.published import EventType, of_queue
from django_ojs.storage import database
from django_ojs.storage.background_writer import BackgroundWriter

logger = logging.getLogger("django_ojs")

#: The rejections within this many seconds are one event.
_INTERVAL: Final = 0.1
#: After this many seconds without a rejection the thread and its connection end.
_LINGER: Final = 1.0

#: A queue, a type, and the part of the queue that was full, or None if it was the queue itself.
Key = tuple[str, str, tuple[str, str] | None]


class RejectionRecorder:
    """Counts rejected jobs by queue and type, and writes their events in a thread."""

    def __init__(self) -> None:
        self._begin()
        self._writer = BackgroundWriter(
            "ojs-rejections", self.flush, forget=self._begin, interval=_INTERVAL, linger=_LINGER
        )

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._bounds: dict[Key, dict[str, Hashable]] = {}
        self._numbers: Counter[Key] = Counter()

    def reject(self, full: QueueFull, jobs: Collection[Envelope] | Collection[Job]) -> None:
        """Count the jobs that their full queue rejected, and set the error's `retry_after`."""
        types = Counter(job.type for job in jobs if job.queue == full.queue)
        if full.retryable:
            # This is imported here, because a site whose queues are never full does not need it.
            from django_ojs.extensions.backpressure.operations import retry_after

            full.details["retry_after"] = retry_after.rates.retry_after(full.queue, types.total())
        count(Count.REJECTED, {(full.queue, type): number for type, number in types.items()})
        bound = {"depth": full.depth, "bound": full.bound, **full.part_details}
        with self._lock:
            for type, number in types.items():
                key = full.queue, type, full.part
                self._numbers[key] += number
                self._bounds[key] = bound
        if types:
            self._writer.request()

    def flush(self) -> int:
        """Write the events of the rejections since the last call. Return how many."""
        with self._lock:
            rejected, numbers = dict(self._bounds), dict(self._numbers)
            self._bounds.clear()
            self._numbers.clear()
        if not rejected:
            return 0
        # If only a part of a queue is full, the queue itself still has room.
        queues = {queue for queue, _, part in rejected if part is None}

        def operation() -> None:
            for (queue, type, part), data in rejected.items():
                publish(
                    EventType.BACKPRESSURE_REJECTED,
                    of_queue,
                    queue,
                    **data,
                    job_type=type,
                    count=numbers[queue, type, part],
                )
            for queue in queues:
                episodes.rejected(queue)

        try:
            database.in_write_transaction(operation)
            for queue in queues:
                # An enqueue that was rejected because there was no ticket finds one the next time.
                bounds.renew_tickets(queue)
        except Error as error:
            logger.warning(
                "The rejections of the last moments were not recorded (%s).",
                error.__class__.__name__,
            )
            return 0
        return len(rejected)

    def reset(self, timeout: float = 20.0) -> None:
        """Write the remaining events, end the thread and its connection."""
        self._writer.close(timeout)
        self.flush()


recorder: Final = RejectionRecorder()

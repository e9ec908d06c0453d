"""Draining queues (ojs-queue-config §5.1) accept no jobs, and workers finish the jobs in them."""

from collections.abc import Iterable

from django_ojs.spec.errors import QueuePaused
from django_ojs.storage import queue_configs


def check(queues: Iterable[str]) -> None:
    """Reject new jobs of a queue that drains. Raises QueuePaused.

    A queue that another process has drained within the last second may still accept jobs.
    """
    if found := queue_configs.latest().draining.intersection(queues):
        raise rejection(min(found))


def rejection(queue: str) -> QueuePaused:
    """Return the error of a queue that accepts no jobs."""
    return QueuePaused(
        f"queue {queue} is draining: it accepts no jobs",
        details={"queue": queue},
        hint="Enqueue to another queue, or resume this one.",
    )

"""The pressure of the bounded queues: events when it crosses the warning threshold.

`Queue.warned_at` says whether a queue is above it. Whichever process changes that column publishes
the event (backpressure §10.1), so warnings and clearances of a queue alternate. Three places
compare it with the load: an enqueue under the queue lock, which crosses the threshold upwards; the
maintenance of a worker; and, where no worker runs, a thread of the processes that change queues.
"""

import logging
import time
from functools import partial
from typing import Final

from django.db import Error
from django.db.models.functions import Now

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import episodes
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.hooks import publish
from django_ojs.models import Lease
from django_ojs.spec.published import EventType, of_queue
from django_ojs.spec.queue_config import Backpressure
from django_ojs.storage import database, queue_configs
from django_ojs.storage.background_writer import BackgroundWriter
from django_ojs.storage.queue_configs import config_and_warned

logger = logging.getLogger("django_ojs")

#: Seconds from a change of a queue to the check, if no worker runs.
_DELAY: Final = 1.0
#: Seconds for which a process makes no checks, because a worker makes them, no queue has a bound or
#: an error occurred.
_STAND_DOWN: Final = 10.0


def check_all() -> int:
    """Check each bounded queue once, and return how many crossed their threshold."""
    return sum(_check(queue) for queue in bounds.bounded()) if bounds.are_any() else 0


def restore_bounds() -> int:
    """Write missing rows of bounds, and end warnings about bounds that no longer exist.

    Return how many there were.
    """
    missing = bounds.missing()
    for queue in missing:
        database.in_write_transaction(partial(_restore, queue))
    return len(missing) + sum(_check(queue) for queue in bounds.warned_without_bound())


def _restore(queue: str) -> None:
    # Another process may be doing the same.
    if database.dialect().lock_subject(database.connection(), f"bound of {queue}", wait=False):
        bounds.rebound(queue)


def cross(queue: str, bound: Backpressure, found: Load) -> bool:
    """Store whether a queue is above its threshold. Publish that and return True if it is new."""
    is_above = found.is_above(bound)
    depth, most = found.nearest(bound) if bounds.is_bounded(bound) else (found.jobs, 0)

    def operation() -> bool:
        if not bounds.set_warned(queue, is_above):
            return False
        crossed = EventType.BACKPRESSURE_WARNING if is_above else EventType.BACKPRESSURE_CLEARED
        publish(crossed, of_queue, queue, depth=depth, bound=most)
        return True

    crossed = database.in_write_transaction(operation)
    if crossed:
        queue_configs.changed()
    return crossed


def cross_after_commit(queue: str, bound: Backpressure, found: Load) -> None:
    """Call `cross` for an enqueue that has committed, so that no error may reach its caller."""
    try:
        cross(queue, bound, found)
    except Error as error:
        logger.warning(
            "The pressure of queue %s was not recorded (%s).", queue, error.__class__.__name__
        )


def _check(queue: str) -> int:
    config, warned = config_and_warned(queue)
    bound = config.backpressure
    found = bounds.load(queue)
    is_above = found.is_above(bound)
    if bounds.is_bounded(bound) and not is_above:
        bounds.renew_tickets(queue, wait=False)
    database.in_write_transaction(lambda: episodes.check(queue, bound, found))
    return int(is_above != warned and cross(queue, bound, found))


class Watch:
    """Checks all bounded queues a second after something changed them, if no worker does it."""

    def __init__(self) -> None:
        self._idle_until = 0.0
        self._writer = BackgroundWriter(
            "ojs-pressure",
            self.check,
            forget=self._begin,
            delay=_DELAY,
            linger=2 * _DELAY,
            runs_in_tests=False,
        )

    def _begin(self) -> None:
        self._idle_until = 0.0

    def request(self) -> None:
        """Check soon, in a thread. The caller executes no statement."""
        if time.monotonic() >= self._idle_until:
            self._writer.request()

    def check(self) -> None:
        """Check now, unless a worker does it."""
        try:
            if not _worker_does_it() and bounds.are_any():
                check_all()
                return
        except Error as error:
            logger.warning(
                "The pressure of the queues was not checked (%s).", error.__class__.__name__
            )
        self._idle_until = time.monotonic() + _STAND_DOWN


def _worker_does_it() -> bool:
    return Lease.primary.filter(name=Lease.MAINTENANCE, until__gt=Now()).exists()


watch: Final = Watch()

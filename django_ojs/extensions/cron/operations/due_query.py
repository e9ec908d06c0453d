"""Whether to fire cron jobs: a query that usually finds nothing, twice a second in a process."""

import time
from datetime import timedelta

from django_ojs.extensions.cron.operations.tick import fire_due
from django_ojs.storage import database, in_memory_state, raw_queries

#: Seconds between two queries of a process. Shorter than the interval of its maintenance.
INTERVAL = 0.4


class LastQuery:
    """When this process queried last, and found nothing due."""

    def __init__(self) -> None:
        self.at = float("-inf")

    def repeat(self, interval: float) -> bool:
        """Count a query as made now. Return False if the last one is not that many seconds ago."""
        now = time.monotonic()
        if now - self.at < interval:
            return False
        self.at = now
        return True

    def reset(self) -> None:
        """Query again the next time."""
        self.at = float("-inf")


last_query = in_memory_state.register(LastQuery())


def due_condition(since: timedelta = timedelta(0)) -> str:
    """Whether a cron job is due for so long, or a run of one is held, in SQL."""
    return database.dialect().condition("cron_is_due", since=since.total_seconds())


def fire_if_due(since: timedelta = timedelta(0)) -> int:
    """Enqueue the jobs of cron jobs that are due, for so long. Return how many.

    A FETCH over HTTP calls this as well, and there may be very many: all of them together query
    once in an interval.
    """
    if not last_query.repeat(INTERVAL):
        return 0
    if not raw_queries.holds(due_condition(since)):
        return 0
    fired = fire_due()
    if fired:
        last_query.reset()  # There may be more.
    return fired

"""Whether to fire cron jobs: each process asks twice a second, and usually finds none."""

from datetime import timedelta

from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.extensions.cron.operations.tick import fire_due
from django_ojs.storage import in_memory_state, raw_queries
from django_ojs.storage.last_query import LastQuery

#: Seconds between two queries of a process. It is shorter than the interval of its maintenance.
INTERVAL = 0.4


last_query = in_memory_state.register(LastQuery())


def due_condition(since: timedelta = timedelta(0)) -> str:
    """Return the SQL condition that a cron job has been due for `since`, or a run is held."""
    due = raw_queries.is_older(CronJob, "due_at", "due_at IS NOT NULL", since)
    held = raw_queries.condition(CronRun, f"phase = '{CronRunPhase.HELD.value}'")
    return f"({due} OR {held})"


def fire_if_due(since: timedelta = timedelta(0)) -> int:
    """Enqueue the jobs of cron jobs that have been due for `since`. Return how many.

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

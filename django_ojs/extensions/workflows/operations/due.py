"""Whether to advance workflows: each process asks twice a second, and usually finds none."""

from django_ojs.extensions.workflows import storage as workflows
from django_ojs.extensions.workflows.operations.advance import advance_due
from django_ojs.storage import in_memory_state
from django_ojs.storage.last_query import LastQuery

#: Seconds between two queries of a process. It is shorter than the interval of its maintenance.
INTERVAL = 0.4


last_query = in_memory_state.register(LastQuery())


def due_condition() -> str:
    """Return the SQL condition that a job of a workflow has ended, or a step may start."""
    return workflows.due_condition()


def advance_if_due() -> int:
    """Advance the workflows of which a job has ended, whatever has ended it. Return how many.

    A FETCH over HTTP calls this as well, and there may be very many: all of them together query
    once in an interval.
    """
    return advance_due() if last_query.repeat(INTERVAL) else 0

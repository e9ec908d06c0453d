"""One pass over the jobs that are due: promotion and expiry."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django_ojs.operations.expiry import expire, expired_condition
from django_ojs.operations.promotion import due_condition, promote, promote_by_queue
from django_ojs.storage import database, raw_queries
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects.rows import DueQueue

#: How many queues one step considers while there is a backlog. The next step continues with the
#: queues after them.
QUEUES_AT_ONCE: Final = 1_000


class DueCheck:
    """Promotion and expiry as steps that share one query, which usually finds nothing.

    With `since`, they do nothing until a job has been due, or expired, for that long.
    """

    def __init__(self, *, since: timedelta = timedelta(0)) -> None:
        self._since = since
        self._expired = False
        self._after = ""

    @property
    def conditions(self) -> list[str]:
        """The conditions of its query: that there are due jobs, and that there are expired ones."""
        return [due_condition(self._since), expired_condition(self._since)]

    def promote(self, queues: Sequence[str] | None = None, which_hold: Sequence[bool] = ()) -> int:
        """Query for due and for expired jobs, and promote the due ones. Return how many.

        A caller that has queried the `conditions` already passes which of them hold.

        If more are due than fit in one batch, each of `queues`, or of all queues, gets a share of a
        second batch, so that a burst in one queue does not delay the others.
        """
        due, self._expired = which_hold or raw_queries.which_hold(self.conditions)
        if not due:
            return 0
        count = promote()
        if count >= BATCH:
            count += promote_by_queue(self._next_queues() if queues is None else queues)
        return count

    def expire(self) -> int:
        """Discard the jobs that the query found expired. Return how many."""
        return expire() if self._expired else 0

    def _next_queues(self) -> list[str]:
        values = {"after": self._after, "limit": QUEUES_AT_ONCE}
        found = database.dialect().read(database.connection(), DueQueue, values)
        self._after = found[-1].queue if len(found) == QUEUES_AT_ONCE else ""
        return [each.queue for each in found if each.is_due]

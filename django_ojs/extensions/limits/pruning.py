"""Deletes the starts of queues that no rate needs: the rate is gone, or all starts are old."""

from typing import Final

from django_ojs.extensions.limits import claims_by_queue
from django_ojs.extensions.limits.models import LimitedQueue
from django_ojs.storage import database

#: How many queues one step reads.
WALK: Final = 100


class StartsPruner:
    """Goes through the queues with starts, a bounded number in each step."""

    def __init__(self) -> None:
        self._after = ""

    def prune(self) -> int:
        """Continue with the next queues, or start again. Return how many were read."""
        rows = LimitedQueue.primary.filter(queue__gt=self._after).order_by("queue")
        queues = list(rows.values_list("queue", flat=True)[:WALK])
        self._after = queues[-1] if len(queues) == WALK else ""
        for queue in queues:
            if not _are_needed(queue):
                _delete(queue)
        return len(queues)


@database.write_transaction
def _delete(queue: str) -> None:
    database.dialect().read_committed(database.connection())
    # Claims add starts under this lock.
    if claims_by_queue.try_lock(queue) and not _are_needed(queue):
        LimitedQueue.primary.filter(queue=queue).delete()


def _are_needed(queue: str) -> bool:
    used = claims_by_queue.use(queue)
    if used is None or not (used.limit.windows or used.limit.throttles):
        return False
    return not used.starts.are_over(used.now)

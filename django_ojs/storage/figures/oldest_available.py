"""The oldest available job of each queue, for many queues in one statement."""

from collections.abc import Collection
from datetime import datetime

from django_ojs.storage import database


def oldest(queues: Collection[str]) -> dict[str, datetime]:
    """Return the time at which the oldest available job of each queue became available.

    Queues without available jobs are left out.
    """
    if not queues:
        return {}
    found = database.dialect().oldest_by_queue(database.connection(), queues)
    return {queue: since for queue, since in found if since is not None}

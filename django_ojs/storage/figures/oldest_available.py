"""The oldest available job of each queue, for many queues in one statement."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from django_ojs.storage import database, sums
from django_ojs.storage.dialects import sql_files

_OLDEST_BY_QUEUE: Final = sql_files.load("common", "oldest_by_queue", names="{names}")


@sums.summed(sums.by_name(min))
def oldest(queues: Collection[str]) -> dict[str, datetime]:
    """Return the time at which the oldest available job of each queue became available.

    Queues without one are left out.
    """
    if not queues:
        return {}
    read = database.dialect().time
    names = ", ".join(["(%s)"] * len(queues))
    with database.connection().cursor() as cursor:
        cursor.execute(_OLDEST_BY_QUEUE.format(names=names), list(queues))
        found = {queue: read(since) for queue, since in cursor.fetchall()}
    return {queue: since for queue, since in found.items() if since is not None}

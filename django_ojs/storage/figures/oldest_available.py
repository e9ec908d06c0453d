"""Since when the job has waited that waits longest, for many queues in one statement.

The index that jobs are claimed by has the oldest of each priority first. So it is one look a queue
and priority, however many jobs wait.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from django_ojs.storage import database

_LEVELS = """
WITH RECURSIVE level (queue, priority) AS (
    SELECT name, (SELECT max(priority) FROM ojs_job
                  WHERE queue = name AND state = 'available')
    FROM ojs_queue WHERE name IN ({names})
    UNION ALL
    SELECT level.queue, (SELECT max(job.priority) FROM ojs_job AS job
                         WHERE job.queue = level.queue AND job.state = 'available'
                           AND job.priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT level.queue, min((SELECT min(job.enqueued_at) FROM ojs_job AS job
                         WHERE job.queue = level.queue AND job.state = 'available'
                           AND job.priority = level.priority))
FROM level WHERE level.priority IS NOT NULL GROUP BY level.queue
"""


def oldest(queues: Collection[str]) -> dict[str, datetime]:
    """Return since when the oldest available job of each queue waits; queues without are left out.

    Queues that have no row are not looked at.
    """
    if not queues:
        return {}
    names = ", ".join(["%s"] * len(queues))
    with database.connection().cursor() as cursor:
        cursor.execute(_LEVELS.format(names=names), list(queues))
        return {queue: _moment(since) for queue, since in cursor.fetchall() if since is not None}


def _moment(value: datetime | str) -> datetime:
    # SQLite keeps times as text, in UTC.
    return (
        value if isinstance(value, datetime) else datetime.fromisoformat(value).replace(tzinfo=UTC)
    )

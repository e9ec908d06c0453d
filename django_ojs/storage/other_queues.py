"""The waiting jobs of other queues that store them in the database, read from their tables.

The packages need not be installed. Their rows are locked until the transaction ends, so that their
workers cannot start the same jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime
from functools import partial
from typing import Any, Final

from django.utils import timezone

from django_ojs.spec import json
from django_ojs.storage import database

Arguments = tuple[list[Any], dict[str, Any]]

#: Rows that one transaction moves.
BATCH: Final = 200


class UnreadableArguments(Exception):
    """The arguments in a row do not have the form that their package gives them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingJob:
    """A job that another queue has not started. `function` is the name that the queue calls it by.

    `arguments` reads the positional arguments and the keywords, and raises an OJSError for other
    than JSON, and UnreadableArguments. `due_at` is None for a job that is due. `reason` says why it
    cannot be moved.
    """

    key: Any
    function: str
    arguments: Callable[[], Arguments]
    queue: str
    priority: int
    due_at: datetime | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherQueue:
    """Where another queue has its jobs, and how they are read.

    `waiting` is the condition for jobs that were not started, and `removal` the statement after
    which no worker starts one.
    """

    table: str
    waiting: str
    removal: str
    read: Callable[[Mapping[str, Any]], WaitingJob]

    def exists(self) -> bool:
        """Whether the database of the jobs has the table."""
        return self.table in database.connection().introspection.table_names()

    def lock_waiting(self, after: Any = None) -> list[WaitingJob]:
        """Return the next waiting jobs by key, locked until the current transaction ends."""
        connection = database.connection()
        later = "" if after is None else "AND id > %s"
        lock = "FOR UPDATE SKIP LOCKED" if connection.features.has_select_for_update else ""
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT * FROM {self.table} WHERE {self.waiting} {later} "
                f"ORDER BY id LIMIT {BATCH} {lock}",
                [] if after is None else [after],
            )
            names = [column[0] for column in cursor.description]
            return [self.read(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

    def remove(self, keys: Sequence[Any]) -> None:
        """Take jobs from the other queue, in the current transaction."""
        with database.connection().cursor() as cursor:
            cursor.executemany(self.removal, [[key] for key in keys])


def _due(value: datetime | None) -> datetime | None:
    if value is None:
        return None
    # SQLite has no timezones: Django stores UTC there.
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return moment if moment > timezone.now() else None


def _read(text: str) -> Any:
    return json.loads(text)


def _keywords(text: str) -> Arguments:
    match _read(text):
        case dict() as kwargs:
            return [], kwargs
    raise UnreadableArguments


def _procrastinate(row: Mapping[str, Any]) -> WaitingJob:
    return WaitingJob(
        key=row["id"],
        function=row["task_name"],
        arguments=partial(_keywords, row["args"]),
        queue=row["queue_name"],
        priority=row["priority"],
        due_at=_due(row["scheduled_at"]),
    )


def _background_tasks(row: Mapping[str, Any]) -> WaitingJob:
    return WaitingJob(
        key=row["id"],
        function=row["task_name"],
        arguments=partial(_pair, row["task_params"]),
        queue=row["queue"] or "",
        priority=row["priority"],
        due_at=_due(row["run_at"]),
        reason="it repeats: declare it with @ojs.cron" if row["repeat"] else "",
    )


def _pair(text: str) -> Arguments:
    match _read(text):
        case [list() as args, dict() as kwargs]:
            return args, kwargs
    raise UnreadableArguments


def _tasks_db(row: Mapping[str, Any]) -> WaitingJob:
    due = _due(row["run_after"])
    return WaitingJob(
        key=row["id"],
        function=row["task_path"],
        arguments=partial(_named, row["args_kwargs"]),
        queue=row["queue_name"],
        priority=row["priority"],
        # A task without `run_after` has the year 9999.
        due_at=None if due is None or due.year == MAXYEAR else due,
    )


def _named(text: str) -> Arguments:
    match _read(text):
        case {"args": list() as args, "kwargs": dict() as kwargs}:
            return args, kwargs
    raise UnreadableArguments


#: By the name of the package.
OTHER_QUEUES: Final = {
    "django-background-tasks": OtherQueue(
        table="background_task",
        waiting="locked_at IS NULL AND failed_at IS NULL",
        removal="DELETE FROM background_task WHERE id = %s",
        read=_background_tasks,
    ),
    "django-tasks-db": OtherQueue(
        table="django_tasks_database_dbtaskresult",
        waiting="status = 'READY'",
        removal="DELETE FROM django_tasks_database_dbtaskresult WHERE id = %s",
        read=_tasks_db,
    ),
    "procrastinate": OtherQueue(
        table="procrastinate_jobs",
        waiting="status = 'todo'",
        # Its trigger writes the event of the end.
        removal="UPDATE procrastinate_jobs SET status = 'cancelled' WHERE id = %s",
        read=_procrastinate,
    ),
}

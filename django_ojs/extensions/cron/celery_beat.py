"""The tables of django_celery_beat, read as they are: its app need not be installed any more."""

from dataclasses import dataclass
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, connections

Row = dict[str, Any]

_TASKS: Final = "django_celery_beat_periodictask"
_SCHEDULES: Final = {
    "interval": "django_celery_beat_intervalschedule",
    "crontab": "django_celery_beat_crontabschedule",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BeatTables:
    """The periodic tasks, and their schedules by kind and id."""

    tasks: list[Row]
    schedules: dict[str, dict[int, Row]]


def read() -> BeatTables | None:
    """Return what the tables in the default database have, or None if they are missing."""
    connection = connections[DEFAULT_DB_ALIAS]
    if not {_TASKS, *_SCHEDULES.values()} <= set(connection.introspection.table_names()):
        return None
    return BeatTables(
        tasks=sorted(_rows(_TASKS), key=lambda row: str(row["name"])),
        schedules={
            kind: {row["id"]: row for row in _rows(table)} for kind, table in _SCHEDULES.items()
        },
    )


def _rows(table: str) -> list[Row]:
    # All columns are selected, because some of them came with later versions.
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

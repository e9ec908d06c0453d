"""Rows into tables, as fast as each database takes them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import connections, transaction

from django_ojs.storage import database
from example_project.load.rows import Row


def store(table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Store rows of one table, in the caller's transaction."""
    connection = connections[database.alias()]
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                copy.write("".join(_line(row) for row in rows))
            return
        placeholders = ", ".join(["%s"] * len(columns))
        cursor.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({placeholders})", [_bound(row) for row in rows]
        )


def _line(row: Row) -> str:
    return "\t".join([_text(value) for value in row]) + "\n"


def _text(value: object) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value).replace("\\", "\\\\")


def _bound(row: Row) -> list[Any]:
    # SQLite stores ids without hyphens, and times in UTC without a zone, in milliseconds.
    return [
        value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        if isinstance(value, datetime)
        else value.replace("-", "")
        if index == 0 and isinstance(value, str)
        else value
        for index, value in enumerate(row)
    ]


def settle() -> None:
    """Leave the tables as maintenance and autovacuum leave them after a while."""
    from django_ojs.storage.figures import counts

    counts.fold()
    connection = connections[database.alias()]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for table in ("ojs_job", "ojs_attempt", "ojs_rollup", "ojs_count"):
                cursor.execute(f"VACUUM (ANALYZE) {table}")


def atomic() -> Any:
    """Open a transaction where the jobs are."""
    return transaction.atomic(using=database.alias())


__all__ = ["atomic", "settle", "store"]

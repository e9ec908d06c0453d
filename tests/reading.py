"""Requests that only read, in a transaction in which the database rejects whatever writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, connection, transaction

#: Refuse writes, for the current savepoint or until the second is executed.
_STATEMENTS = {
    "postgresql": ("SET TRANSACTION READ ONLY", None),
    "sqlite": ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
}


@contextmanager
def read_only() -> Iterator[list[str]]:
    """Let the database reject what writes; the list has the statements that it rejected.

    What is done in the meantime is rolled back.
    """
    begin, end = _STATEMENTS[connection.vendor]
    rejected: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except Error as error:
            if "read-only" in str(error) or "readonly" in str(error):
                rejected.append(sql)
            raise

    savepoint = transaction.savepoint()
    with connection.cursor() as cursor:
        cursor.execute(begin)
    try:
        with connection.execute_wrapper(note):
            yield rejected
    finally:
        with connection.cursor() as cursor:
            if end is not None:
                cursor.execute(end)
        transaction.savepoint_rollback(savepoint)

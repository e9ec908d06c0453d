"""Requests that only read, in a transaction in which the database rejects whatever writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, OperationalError, connection

#: Refuse writes, for the current savepoint or until the second is executed. A transaction that has
#: begun cannot become read-only on MariaDB: what writes is rejected before the server has it.
_STATEMENTS = {
    "postgresql": ("SET TRANSACTION READ ONLY", None),
    "sqlite": ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
    "mysql": (None, None),
}
_MARIADB_WRITES = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
_MARIADB_READ_ONLY = 1792


#: The one table that may be written by who only looks: since when something has been wrong, and
#: when it ended, is known without any worker only if those keep it who see it. A failed write
#: leaves the answer as it is.
INCIDENTS = "ojs_incident"

#: The table that a statement writes.
_TABLE = re.compile(r'^(?:INSERT(?: OR)?(?: IGNORE)? INTO|UPDATE|DELETE FROM) ["`](\w+)["`]')


@contextmanager
def read_only(*, keeps_incidents: bool = False) -> Iterator[list[str]]:
    """Let the database reject what writes; the list has the statements that it rejected.

    `keeps_incidents`: those of the incidents are rejected too, and are not in it. What is done in
    the meantime is rolled back.
    """
    begin, end = _STATEMENTS[connection.vendor]
    rejected: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            if connection.vendor == "mysql" and _MARIADB_WRITES.match(sql):
                raise OperationalError(_MARIADB_READ_ONLY, "in a read-only transaction")
            return execute(sql, params, many, context)
        except Error as error:
            is_kept = keeps_incidents and _TABLE.findall(sql)[:1] == [INCIDENTS]
            if not is_kept and ("read-only" in str(error) or "readonly" in str(error)):
                rejected.append(sql)
            raise

    savepoint = connection.savepoint()
    with connection.cursor() as cursor:
        if begin is not None:
            cursor.execute(begin)
    try:
        with connection.execute_wrapper(note):
            yield rejected
    finally:
        with connection.cursor() as cursor:
            if end is not None:
                cursor.execute(end)
        connection.savepoint_rollback(savepoint)

"""Positions: the order in which readers see rows that concurrent transactions append to a table.

An id is assigned before the commit, so a reader that followed the ids would miss a row whose
transaction commits late. Positions are assigned to committed rows only, by one transaction at a
time: a row that a reader has not seen yet always gets a higher one than those it has seen. This
holds even in a database that has lost its last rows, as long as its clock is not set back.
"""

import time
from pathlib import Path
from typing import Final

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from django_ojs.storage import database
from django_ojs.storage.statements import Statements

#: The statements about events and positions. `{table}` and `{rows}` are filled in later.
STATEMENTS: Final = Statements(
    Path(__file__).parent / "statements",
    **{name: f"{{{name}}}" for name in ("table", "rows", "greatest", "microseconds")},
)

#: The greater of two values, and the microseconds since 1970, in SQL.
_POSITIONS: Final = {
    "postgresql": {
        "greatest": "GREATEST",
        "microseconds": "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint",
    },
    "sqlite": {
        "greatest": "max",
        # A time is as exact as the clock of SQLite: to the millisecond.
        "microseconds": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000",
    },
}

#: Rows that get their positions in one transaction.
ASSIGNED_AT_ONCE: Final = 1000

#: Seconds to wait for the lock. Its holder needs some milliseconds, unless it is stopped.
LOCK_TIMEOUT: Final = 0.2


def unpositioned(model: type[Model]) -> str:
    """Return the SQL of one committed row that has no position, if there is any."""
    return STATEMENTS.text("row_without_position").format(table=model._meta.db_table)


def assign(model: type[Model], using: str, limit: int = ASSIGNED_AT_ONCE) -> int:
    """Assign positions to committed rows that have none, in the order of ids. Return how many.

    Without such rows it takes no lock. A session that may only read assigns none. Neither does a
    caller's transaction: it would hold the lock until its end, and other readers would get nothing
    new. If another process holds the lock, that process or the next call assigns the positions.
    """
    connection = database.connection(using)
    dialect = database.dialect_of(connection)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(unpositioned(model))
        if cursor.fetchone() is None:
            return 0
    if database.is_in_transaction(connection) or not dialect.can_write(connection):
        return 0

    def operation() -> int:
        # Under REPEATABLE READ, a position could be assigned twice.
        dialect.read_committed(connection)
        if not _try_lock(connection, table):
            return 0
        # A separate statement, so that it sees rows committed during the wait for the lock.
        return _assign(connection, table, limit)

    try:
        return database.in_write_transaction(operation, using)
    except OperationalError as error:
        if dialect.is_contention_error(error):
            return 0
        raise


def _assign(connection: BaseDatabaseWrapper, table: str, limit: int) -> int:
    dialect = database.dialect_of(connection)
    statement = STATEMENTS.text("assign_positions", dialect)
    parts, values = _POSITIONS.get(dialect.name), [limit]
    if parts is None:  # In MariaDB, another statement finds the rows: see unplaced.sql.
        unplaced = STATEMENTS.text("unplaced", dialect).format(table=table)
        found = dialect.rows(connection, unplaced, [limit])
        if not found:
            return 0
        rows = "SELECT %s AS id, %s AS position" + " UNION ALL SELECT %s, %s" * (len(found) - 1)
        parts = {"rows": rows}
        values = [each for n, (key, last) in enumerate(found, 1) for each in (key, last + n)]
    with connection.cursor() as cursor:
        cursor.execute(statement.format(table=table, **parts), values)
        return int(cursor.rowcount)


def _try_lock(connection: BaseDatabaseWrapper, table: str) -> bool:
    """Lock the positions of a table. Return False if that takes more than LOCK_TIMEOUT."""
    dialect = database.dialect_of(connection)
    until = time.monotonic() + LOCK_TIMEOUT
    while not dialect.lock_subject(connection, table, wait=False):
        if time.monotonic() >= until:
            return False
        time.sleep(0.005)
    return True

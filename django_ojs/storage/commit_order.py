"""Positions: the order in which readers see rows that concurrent transactions append to a table.

An id is assigned before the commit, so a reader that followed the ids would miss a row whose
transaction commits late. Positions are assigned to committed rows only, by one transaction at a
time: a row that is committed later always has a higher one.
"""

from typing import Final

from django.db import IntegrityError, OperationalError
from django.db.models import Model

from django_ojs.storage import database
from django_ojs.storage.dialects import sql_files

_ASSIGN_POSITIONS: Final = sql_files.load("common", "assign_positions", table="{table}")


def assign(model: type[Model], using: str, limit: int) -> int:
    """Assign positions to committed rows that have none, in the order of ids. Return how many.

    Without such rows it takes no lock. A session that may only read assigns none.
    """
    connection, dialect = database.connection(using), database.dialect(using)
    rows = model._default_manager.using(using).filter(position=None)
    # Not `exists()`: with the order the planner takes the index, which is usually empty.
    if rows.order_by("pk").values_list("pk", flat=True).first() is None:
        return 0
    if not dialect.can_write(connection):
        return 0
    table = model._meta.db_table

    def operation() -> int:
        dialect.lock_subject(connection, table)
        # A separate statement, so that it sees rows committed during the wait for the lock.
        with connection.cursor() as cursor:
            cursor.execute(_ASSIGN_POSITIONS.format(table=table), [limit])
            return int(cursor.rowcount)

    try:
        return database.in_write_transaction(operation, using)
    except IntegrityError:
        # Under REPEATABLE READ it does not see that, and assigns a position twice. The transaction
        # is rolled back, and nothing is lost: another process has assigned it, or the next call
        # does.
        return 0
    except OperationalError as error:
        if dialect.is_contention_error(error):
            return 0
        raise

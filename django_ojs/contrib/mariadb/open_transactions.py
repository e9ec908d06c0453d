"""Whether a handler has left a transaction open, which mysqlclient does not show.

The server knows it, but to ask costs a round trip. So it is asked only after a statement that may
have begun a transaction, such as BEGIN, or without autocommit: most jobs execute none of these.
"""

import re
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.contrib.mariadb import wrappers

#: Statements that begin no transaction which outlasts them, where autocommit is on.
_BEGINS_NONE: Final = re.compile(
    r"[\s(]*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|SAVEPOINT|RELEASE|ROLLBACK\s+TO)\b",
    re.IGNORECASE,
)
#: The driver's connections on which another statement was executed.
_may_be_open: Final[WeakSet[Any]] = WeakSet()


def install(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Note a new connection's statements that may begin a transaction (connection_created)."""
    wrappers.install(connection, _run)
    # After a reconnection, the wrapper has also seen the setup of the session, which begins none.
    if connection.connection is not None:
        _may_be_open.discard(connection.connection)


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an open connection is in a transaction; True if the server cannot say."""
    wrapper: Any = connection
    link = wrapper.connection
    if connection.in_atomic_block:
        return True
    if not link.open or (connection.autocommit and link not in _may_be_open):
        return False
    try:
        with link.cursor() as cursor:
            cursor.execute("SELECT @@in_transaction")
            found = bool(cursor.fetchone()[0])
    except wrapper.Database.Error:
        # The transaction may have been rolled back: its job must not be completed.
        return True
    if not found:
        _may_be_open.discard(link)
    return found


def _run(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    text = str(sql)
    # After a semicolon, there may be any statement.
    if ";" in text or not _BEGINS_NONE.match(text):
        _may_be_open.add(context["connection"].connection)
    return execute(sql, params, many, context)

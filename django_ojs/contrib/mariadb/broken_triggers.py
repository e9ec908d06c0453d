"""Changes that MariaDB rejects because it has read the triggers of a table in part (1064).

The server reads the triggers of a table each time it opens the table anew. When the statement for
which it does so is ended during that, by KILL, by a time limit, or by a transaction of another node
of a cluster, it takes the end for a syntax error, and keeps the error with the open table. Every
change through this table fails, in all sessions, until it is closed. FLUSH TABLES closes the tables
that no statement uses now, and waits for no transaction. Then the statement runs again in the
same transaction: the server has undone only the statement.
"""

import logging
import random
import re
import time
from collections.abc import Callable
from typing import Any, Final

from django.db import DatabaseError, OperationalError, ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.contrib.mariadb import wrappers

#: Closes the tables that no statement uses, on this server alone: without LOCAL, all nodes of a
#: cluster do so.
_CLOSE_TABLES: Final = "FLUSH LOCAL TABLES"
#: What differs on another server behind the same name.
_THIS_SERVER: Final = "SELECT @@hostname, @@port, @@datadir"
_PARSE_ERROR: Final = 1064
_DEADLOCK: Final = 1213
#: "Trigger 'ojs_job_…' has an error in its body: '…'", in the language of the server.
_BROKEN: Final = re.compile(r"'ojs_job_\w+'[^']*: '")
#: The message has no name if the statement was ended before the name was read. The trigger belongs
#: to django_ojs only if the statement changes its tables: a site may have a broken one of its own.
_BROKEN_UNNAMED: Final = re.compile(r"trigger has an error in its body")
#: A table that was in use is still open. How often to try, and the longest pause before a try.
_REPETITIONS: Final = 5
_PAUSE: Final = 0.05
_CONNECT_SECONDS: Final = 4
#: The reason is also what the logs of workers say (see `storage.database`).
REASON: Final = (
    "MariaDB has read triggers in part, and rejects each change of the table: "
    "run FLUSH LOCAL TABLES on this server, and grant RELOAD to its user"
)

_logger = logging.getLogger("django_ojs.storage")


class BrokenTriggers(OperationalError):
    """The table has to be closed by an operator who may do that."""


def install(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Let a new connection run such statements again (signal connection_created)."""
    wrappers.install(connection, _run)


def _run(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    try:
        return execute(sql, params, many, context)
    except ProgrammingError as error:
        broken = error
    for _ in range(_REPETITIONS):
        # If there are several statements, some may have been run.
        if many or not _is_broken(broken, sql):
            raise broken
        try:
            is_closed = _close_tables(context["connection"], execute, context)
        except DatabaseError as error:
            if error.args[:1] == (_DEADLOCK,):
                raise  # The transaction lost to a transaction of another node, and is repeated.
            raise BrokenTriggers(_PARSE_ERROR, REASON) from error
        if not is_closed:
            break
        _logger.warning("MariaDB had read a table's triggers in part, so its tables were closed.")
        try:
            return execute(sql, params, many, context)
        except ProgrammingError as error:
            broken = error
        time.sleep(random.uniform(0, _PAUSE))
    raise BrokenTriggers(_PARSE_ERROR, REASON) from broken


def _is_broken(error: ProgrammingError, sql: str) -> bool:
    if error.args[:1] != (_PARSE_ERROR,):
        return False
    said = str(error.args[1])
    return bool(_BROKEN.search(said) or (_BROKEN_UNNAMED.search(said) and wrappers.is_change(sql)))


def _close_tables(
    connection: BaseDatabaseWrapper, execute: Callable[..., Any], context: dict[str, Any]
) -> bool:
    """Let the server close the tables that no statement uses; False if it cannot be reached."""
    if connection.get_autocommit() and not connection.in_atomic_block:
        execute(_CLOSE_TABLES, None, False, context)
        return True
    # FLUSH would commit the transaction, so another connection is used. If there are several hosts,
    # it has to go to the same one.
    execute(_THIS_SERVER, None, False, context)
    wanted = context["cursor"].fetchone()
    hosts = str(connection.settings_dict["HOST"]).split(",")
    for n in range(len(hosts)):
        other = connection.copy()
        other.settings_dict["HOST"] = ",".join([*hosts[n:], *hosts[:n]])
        other.settings_dict["OPTIONS"].setdefault("connect_timeout", _CONNECT_SECONDS)
        try:
            with other.cursor() as cursor:
                cursor.execute(_THIS_SERVER)
                if cursor.fetchone() == wanted:
                    cursor.execute(_CLOSE_TABLES)
                    return True
        finally:
            other.close()
    return False

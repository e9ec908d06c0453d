"""What a handler changes in the session of a connection that the worker keeps for the next job.

The next job must not find its settings, role, advisory locks, temporary tables or variables of
row-level security. So a connection is closed after a job with a statement that changes its session.
The statements are read, because asking or resetting the server would cost each job a round trip.
Django, the project and the worker set up a new connection as they always do.
"""

import re
import threading
from collections.abc import Callable
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ojs.storage.dialects import execute_wrappers

#: The names of the threads whose connections the worker keeps from job to job.
THREADS: Final = ("ojs-slot", "ojs-sync")

#: Settings that end with the transaction, or that the worker sets back.
_OWN: Final = r"(?:LOCAL|TRANSACTION|CONSTRAINTS|STATEMENT)\b"
_OWN_SESSION: Final = r"SESSION\s+(?:innodb_lock_wait_timeout|max_statement_time)\b"
#: Functions that change no session, or of which `_HAS` decides whether a call does.
_HARMLESS: Final = (
    r"(?:pg_|ojs_|current_|(?:set_config|now|clock_timestamp|version|count|nextval|currval|setval"
    r"|coalesce|exists|length|last_insert_id|connection_id|database|row_count|sqlite_version)\b)"
)
#: The same for functions in a FROM clause.
_OF_ROWS: Final = r"(?:jsonb?_|generate_|unnest\b|regexp_|string_to_|xmltable|pragma_|rows\s+from)"
#: A call of a function, with or without quotes and a schema.
_FUNCTION: Final = r"(?:\"?[a-z_]\w*\"?\.)?\"?[a-z_]\w*\"?\s*\("
#: How a statement that changes the session begins.
_BEGINS: Final = re.compile(
    r"(?:\s+|--[^\n]*\n|/\*.*?\*/)*"
    rf"(?:SET\s+(?!{_OWN}|{_OWN_SESSION})|RESET\b|DISCARD\b|LISTEN\b|LOAD\b|DO\b|USE\b"
    r"|PREPARE\s+(?!TRANSACTION)|DECLARE\b|LOCK\s+TABLES?\s+\S+\s+(?:READ|WRITE)|ATTACH\b|DETACH\b"
    r"|PRAGMA\s+\w+\s*[=(]|PRAGMA\s+\w+\.\w+\s*=|CALL\s+(?!ojs_)"
    r"|CREATE\s+(?:GLOBAL\s+|LOCAL\s+|OR\s+REPLACE\s+)?TEMP(?:ORARY)?\b"
    # A function of the project may do any of this.
    rf"|SELECT\s+(?!{_HARMLESS}){_FUNCTION}(?!.*\bFROM\b)"
    rf"|SELECT\s+\*\s+FROM\s+(?!{_HARMLESS}|{_OF_ROWS}){_FUNCTION}"
    r"|UPDATE\s+(?:pg_catalog\.)?pg_settings\b)",
    re.IGNORECASE | re.DOTALL,
)
#: What other such statements contain. `_WORDS` are faster to find, and each match has one of them.
_HAS: Final = re.compile(
    r"\bpg_(?:try_)?advisory_lock(?:_shared)?\s*\(|\bGET_LOCK\s*\(|\bdblink_connect|\bsetseed\s*\("
    r"|\bINTO\s+(?:TEMP(?:ORARY)?\b|@)|@\w+\s*:="
    r"|\bset_config\s*\((?!(?:[^()]|\([^()]*\))*,\s*(?:true|'true')\s*\))",
    re.IGNORECASE,
)
_WORDS: Final = ("advisory_lock", "get_lock", "dblink", "setseed", "temp", "@", "set_config")

#: Only this much of a statement is read. A longer one usually has many rows of values.
MOST_CHARACTERS: Final = 8192


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.changed: set[str] = set()


_of_thread: Final = _OfThread()


def watch() -> None:
    """From now on, read the statements of the connections that the worker keeps."""
    # It is connected last, after receivers of the project, whose statements set up the connection.
    connection_created.disconnect(_begin)
    connection_created.connect(_begin)


def close_changed() -> None:
    """Close the connections of this thread whose sessions the last job has changed."""
    while _of_thread.changed:
        link = connections[_of_thread.changed.pop()]
        if not link.in_atomic_block:
            link.close()


def changes_session(sql: str) -> bool:
    """Whether a statement may change what the next job finds in the session."""
    sql = sql[:MOST_CHARACTERS]
    if any(map(_BEGINS.match, sql.split(";"))):
        return True
    words = sql.lower()
    return any(word in words for word in _WORDS) and _HAS.search(sql) is not None


def _begin(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    if threading.current_thread().name.startswith(THREADS):
        _of_thread.changed.discard(connection.alias)
        if _read not in connection.execute_wrappers:
            connection.execute_wrappers.append(_read)


@execute_wrappers.for_others
def _read(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    if changes_session(_text(sql)):
        # It is noted before it is executed: if one text has several statements, the last may fail.
        _of_thread.changed.add(context["connection"].alias)
    return execute(sql, params, many, context)


def _text(sql: Any) -> str:
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    # This is a statement that the driver composes.
    return sql.as_string(None) if hasattr(sql, "as_string") else str(sql)

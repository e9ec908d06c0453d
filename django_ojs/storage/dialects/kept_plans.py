"""Statements whose plan the session keeps: the claim and the completion of a worker's jobs.

Planning the claim of one job takes the server longer than executing it, and an idle worker claims
twice a second. So a worker prepares the statement in its session. The plan is made for any values,
which the statement must allow for, and uses indexes: for a table that is empty, or has some
thousand rows, the planner would read the whole table, which may grow. Because other things may
change too, the plan is made again after some seconds.

A plan can be kept only if a connection always has the same session. Behind a pooler each statement
may reach another session; there, in a caller's transaction, and where something wants to see the
statement (see `direct_statements`), it is planned each time. So is the claim of a web process,
until its connection has shown that it `repeats` claims: a kept plan costs two round trips first.
"""

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import errors, pq
from psycopg.adapt import Transformer
from psycopg.types.datetime import TimestamptzLoader

from django_ojs.storage.dialects import direct_statements

#: Seconds after which a plan is made again. At this interval, planning takes a thousandth of a
#: core.
LONGEST: Final = 5.0
#: A statement that takes this many seconds is slow: its plan may have been made for a smaller
#: table.
SLOW: Final = 0.02
#: A slow plan is made again after this many seconds. On a busy machine many statements are slow,
#: and planning them each time would make it busier; a table does not outgrow its plan sooner.
SHORTEST: Final = 1.0

#: A connection repeats claims after this many, each within `REPEATED_WITHIN` seconds of the last.
REPEATED: Final = 10
REPEATED_WITHIN: Final = 1.0

_TYPES: Final = {str: "text", bool: "boolean", int: "bigint"}
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")
#: With these errors nothing was executed: the session does not have the statement, or has it for
#: other columns, or the server has no such setting.
_NOT_KEPT: Final = frozenset(("26000", "0A000", "42704"))

#: Restores the settings for the next statements of a transaction.
_UNSET: Final = b"; SET LOCAL enable_seqscan = on; SET LOCAL plan_cache_mode = auto"
_IDLE, _IN_TRANSACTION = pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS


class _Session:
    """What is known of the session of a connection."""

    def __init__(self, link: "psycopg.Connection[Any]") -> None:
        context = link.cursor()
        # psycopg reads the times in C, whereas Django's loader for them is written in Python.
        context.adapters.register_loader("timestamptz", TimestamptzLoader)
        self.read = Transformer(context)
        self.planned_at: dict[str, float] = {}
        # A pooler responds to the start-up packet itself, with an invented process id.
        (found,) = direct_statements.results(link, b"SELECT pg_backend_pid()")
        pid = found.get_value(0, 0) if found.status == pq.ExecStatus.TUPLES_OK else None
        self.can_keep = pid is not None and int(pid) == link.info.backend_pid


_sessions: "Final[WeakKeyDictionary[psycopg.Connection[Any], _Session]]" = WeakKeyDictionary()
#: For each connection of a web process: how many claims it made in a row, and when the last was.
_claims: "Final[WeakKeyDictionary[Any, tuple[int, float]]]" = WeakKeyDictionary()


def repeats(connection: BaseDatabaseWrapper) -> bool:
    """Count a claim of a connection. Return whether it claims so often that a kept plan pays."""
    connection.ensure_connection()
    now = time.monotonic()
    count, last = _claims.get(connection.connection, (0, now))
    count = count + 1 if now - last < REPEATED_WITHIN else 1
    _claims[connection.connection] = count, now
    return count > REPEATED


def rows(
    connection: BaseDatabaseWrapper,
    statement: str,
    values: Mapping[str, Any],
    *,
    is_in_transaction: bool = False,
) -> list[tuple[Any, ...]] | None:
    """Run a statement and return its rows, or None without running it if no plan can be kept.

    The statement has a `%(name)s` for each value, and casts lists. Its rows are read as Django
    reads them, except for the times, which have the offset of the session.

    With `is_in_transaction`, it runs in a transaction that is repeated as a whole after an error,
    such as the loss of the plan. If it is the first statement, it begins the transaction, in which
    each statement sees what was committed before it.
    """
    expected = _IN_TRANSACTION if is_in_transaction else _IDLE
    link = direct_statements.usable(connection, begins=is_in_transaction)
    if link is None:
        return None
    status = link.pgconn.transaction_status
    begins = status == _IDLE and not link.autocommit
    if not begins and status != expected:
        return None
    with connection.wrap_database_errors:
        session = _sessions.get(link)
        if session is None:
            session = _sessions[link] = _Session(link)
        if not session.can_keep:
            return None
        given = [_array(each) if isinstance(each, list) else each for each in values.values()]
        name, prepare, execute = _prepared(statement, tuple(values), tuple(map(type, given)))
        planned_at = session.planned_at.get(name)
        now = time.monotonic()
        if planned_at is None or now - planned_at >= LONGEST:
            again = b"" if planned_at is None else b"DEALLOCATE %s; " % name.encode()
            prepared = direct_statements.results(link, again + prepare)[-1]
            if prepared.status != pq.ExecStatus.COMMAND_OK:
                session.can_keep = False
                if is_in_transaction and not begins:
                    raise errors.error_from_result(prepared, encoding=link.info.encoding)
                return None
            session.planned_at[name] = planned_at = now
        query = direct_statements.with_literals(link, execute, given)
        if is_in_transaction:
            query = (direct_statements.BEGIN if begins else b"") + query + _UNSET
        found = direct_statements.results(link, query)
        result = next(each for each in found if each.status != pq.ExecStatus.COMMAND_OK)
        if result.status != pq.ExecStatus.TUPLES_OK:
            state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
            if state.decode() in _NOT_KEPT:
                session.can_keep = False
                if not is_in_transaction:
                    return None
                # The transaction is repeated, as after a conflict, without kept plans.
                raise errors.SerializationFailure("The session has lost its plans.")
            raise errors.error_from_result(result, encoding=link.info.encoding)
        if time.monotonic() - now >= SLOW and now - planned_at >= SHORTEST:
            session.planned_at[name] = float("-inf")
        session.read.set_pgresult(result)
        return session.read.load_rows(0, result.ntuples, tuple)


@lru_cache(maxsize=64)
def _prepared(
    statement: str, names: tuple[str, ...], types: tuple[type, ...]
) -> tuple[str, bytes, str]:
    """Return the name of a prepared statement, and the texts that prepare and execute it."""
    numbers = {name: f"${number}" for number, name in enumerate(names, start=1)}
    text = _PLACEHOLDER.sub(lambda found: numbers[found[1]], statement).replace("%%", "%")
    parameters = ", ".join(_TYPES[each] for each in types)
    name = f"ojs_{blake2b(f'{parameters} {text}'.encode(), digest_size=8).hexdigest()}"
    prepare = f"PREPARE {name} ({parameters}) AS {text}"
    # Both settings end with the transaction; if none is open, this message is one. Without the
    # second setting, the server compares the plan with a new one for these values.
    execute = (
        "SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan; "
        f"EXECUTE {name} ({', '.join(['%s'] * len(names))})"
    )
    return name, prepare.encode(), execute


def _array(values: list[Any]) -> str:
    """Return an array of texts or integers in PostgreSQL's syntax."""
    escaped = [str(each).replace("\\", "\\\\").replace('"', '\\"') for each in values]
    return "{" + ",".join([f'"{each}"' for each in escaped]) + "}"

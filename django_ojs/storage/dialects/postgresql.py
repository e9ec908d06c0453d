"""PostgreSQL 14 and later."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, cast
from uuid import UUID

from django.core.checks import CheckMessage, Error, Warning
from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec import json
from django_ojs.spec.errors import BackendUnavailable
from django_ojs.storage.dialects.base import RUNS_OF_WORKER
from django_ojs.storage.dialects.postgresql_inserts import Inserts, lock_number
from django_ojs.storage.dialects.rows import Difference
from django_ojs.storage.dialects.server import (
    QueryLimit,
    Session,
    is_of_worker,
)
from django_ojs.storage.dialects.sql_files import load, load_all, schema_files

_NOW = "statement_timestamp()"
_SQL = load_all(
    "postgresql",
    now=_NOW,
    count_differences=load("postgresql", "count_differences"),
    deadline_when_started=load("postgresql", "deadline_when_started"),
    dead_letter="coalesce(options #>> '{retry,on_exhaustion}', 'dead_letter') = 'dead_letter'",
)
#: A server that disappears without ending its connections is noticed after eight seconds, leaving
#: time for a heartbeat before the worker counts as dead. A host that does not respond is given up
#: after four seconds. The system's own limits are a quarter of an hour, and two hours on an idle
#: connection.
_CLIENT_OPTIONS = {
    "connect_timeout": 4,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 8000,
}
#: The environment variables in which the driver looks for an option.
_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT"}

#: The parts of claim.sql, for exactly the limit and for up to the limit.
_EXACTLY_LIMIT = {"first": "", "most": "%(limit)s", "end": ""}
_UP_TO_LIMIT = {
    "first": "SELECT * FROM (",
    "most": "1000",
    "end": ") AS first_ones LIMIT %(limit)s",
}

_READ_ONLY = "25006"
#: The server has ended the session, because its transaction waited or took too long.
_ENDED = ("25P03", "25P04")
#: A statement that is too large or too complex for the server, or an object that is not in the
#: required state. Another try would fail as well.
_FOR_GOOD = ("54", "55000")
#: The server also reports a full table of locks in this way.
_OUT_OF_MEMORY = "53200"
_QUERY_CANCELED = "57014"
_DEADLOCK, _LOCK_NOT_AVAILABLE, _SERIALIZATION = "40P01", "55P03", "40001"
#: libpq's numbers for a session without a transaction, and for one without a server.
_WITHOUT_TRANSACTION = (0, 4)
#: libpq's number for a session that has sent a statement.
_WAITING = 1
#: Isolation levels in which each statement has a snapshot of its own.
_SNAPSHOT_PER_STATEMENT = {"read committed", "read uncommitted"}
#: What follows `pg_` in the name of a function that locks, by whether it waits.
_TRY = {True: "", False: "try_"}
#: psycopg's numbers of isolation levels, which Django keeps.
_READ_COMMITTED, _SERIALIZABLE = 2, 4


@contextmanager
def locks_that_fit() -> Iterator[None]:
    """Raise an error with advice if the server has no room for more locks."""
    try:
        yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != _OUT_OF_MEMORY:
            raise
        raise BackendUnavailable(
            "The server has no room for more locks. Until a transaction ends, it holds one for "
            "each unique key of its jobs, and some for each bounded queue.",
            hint="Store fewer such jobs in a transaction (some thousands), or raise "
            "max_locks_per_transaction of the server.",
        ) from error


@cache
def _direct() -> ModuleType:
    # A site on SQLite does not have psycopg.
    from django_ojs.storage.dialects import direct_statements

    return direct_statements


@cache
def _kept_plans() -> ModuleType:
    from django_ojs.storage.dialects import kept_plans

    return kept_plans


@cache
def _kept_claim(statement: str, **parts: str) -> str:
    return statement.format(**parts, **_UP_TO_LIMIT)


def _kept(
    connection: BaseDatabaseWrapper, statement: str, values: Mapping[str, Any]
) -> list[tuple[Any, ...]] | None:
    """Run a statement whose plan the session keeps; see `kept_plans.rows`."""
    is_in_transaction = is_of_worker.get() is not None and connection.in_atomic_block
    found: list[tuple[Any, ...]] | None = _kept_plans().rows(
        connection, statement, values, is_in_transaction=is_in_transaction
    )
    return found


def _rows(connection: BaseDatabaseWrapper, statement: str, values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        # psycopg reads the times in C. Django's loader, written in Python, took a sixth of what a
        # worker computes for a short job.
        cursor.adapters.register_loader("timestamptz", _times())
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _repeats(connection: BaseDatabaseWrapper) -> bool:
    """Whether this is a statement that the session executes again and again."""
    known = is_of_worker.get()
    if known is None and connection.in_atomic_block:
        return False
    return known or bool(_kept_plans().repeats(connection))


@cache
def _times() -> Any:
    from psycopg.types.datetime import TimestamptzLoader

    return TimestamptzLoader


class PostgreSQL(Inserts):
    """PostgreSQL through psycopg 3."""

    sql = _SQL
    now = _NOW
    name = "postgresql"
    records = "json_populate_recordset(NULL::{table}, %s::json)"
    schema = schema_files(name, "constraints", "counts", "count_triggers", "admission", "push")
    drop: ClassVar = {
        "TRIGGER": "DROP TRIGGER {name} ON {table}",
        "FUNCTION": "DROP FUNCTION {name} CASCADE",
    }
    # The server sends FATAL when it rejects or ends a connection.
    reasons = re.compile(
        r"FATAL:\s+(?P<fatal>[^\n]+)|connection refused|connection timeout expired|could not "
        r"translate host name|failed to resolve host|server closed the connection unexpectedly|"
        r"session is read-only|canceling statement due to (?:lock|statement) timeout",
        re.IGNORECASE,
    )
    test_clock = "django_ojs.testing.clock.PostgreSQLClock"
    binary_collation = '"C"'
    is_server = True
    create_index = "CREATE INDEX CONCURRENTLY"
    can_notify = True
    has_one_writer = False
    keeps_subquery_order = True

    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        timeout_ms = f"{int(timeout * 1000)}ms"
        former, _, locked, _ = self._rows(connection, "lock_queue", [timeout_ms, queue])[0]
        version = self._rows(connection, "read_bound_version", [former, queue])[0][1]
        return (version or "0") if locked else None

    def reschedule(self, connection: BaseDatabaseWrapper, jobs: Mapping[UUID, datetime]) -> int:
        given = [{"id": str(key), "due_at": at.isoformat()} for key, at in jobs.items()]
        return len(self._rows(connection, "reschedule", {"jobs": json.dumps(given)}))

    def promote(
        self, connection: BaseDatabaseWrapper, limit: int, queues: Sequence[str] | None = None
    ) -> list[tuple[UUID, str, str]]:
        if queues is None:
            return self._rows(connection, "promote", [limit])
        values = {"queues": list(queues), "each": limit}
        return self._rows(connection, "promote_by_queue", values)

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        return int(self._rows(connection, "fold_counts")[0][0])

    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        return [Difference(*row) for row in self._rows(connection, "repair_counts")]

    def vacuum_counts(self, connection: BaseDatabaseWrapper) -> None:
        if not connection.in_atomic_block and self._rows(connection, "may_vacuum_counts")[0][0]:
            self._run(connection, "vacuum_counts")

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        # There is no write lock, because rows are locked as they are changed. But each statement
        # has to see what was committed before it, at any isolation level of the project's
        # connections. A caller's transaction, in which this one is a savepoint, keeps its level.
        level = getattr(connection, "isolation_level", None)
        if level not in (None, _READ_COMMITTED) and not connection.savepoint_ids:
            self._run(connection, "set_read_committed")

    def lock_unique_keys(
        self, connection: BaseDatabaseWrapper, keys: Sequence[str], *, wait: bool = True
    ) -> bool | None:
        # The order prevents deadlocks of two batches.
        numbers = sorted(set(map(lock_number, keys)))
        with locks_that_fit():
            rows = self._rows(connection, "lock_unique_keys", [numbers], try_=_TRY[wait])
        if not wait and not all(is_locked for is_locked, _ in rows):
            return None
        return str(rows[0][1]) in _SNAPSHOT_PER_STATEMENT

    def lock_subject(
        self, connection: BaseDatabaseWrapper, subject: str, *, wait: bool = True
    ) -> bool:
        statement = self.sql["lock_subject"].format(try_=_TRY[wait])
        return _direct().text(connection, statement, [subject]) == "true" or wait

    def read_committed(self, connection: BaseDatabaseWrapper) -> None:
        if not connection.savepoint_ids and not _direct().begin(connection):
            self._run(connection, "set_read_committed")

    def end_if_idle(self, connection: BaseDatabaseWrapper, milliseconds: int) -> None:
        if not connection.savepoint_ids:
            name = "idle_in_transaction_session_timeout"
            self._run(connection, "limit_transaction", limit=name, milliseconds=str(milliseconds))

    @contextmanager
    def lock_timeout(self, connection: BaseDatabaseWrapper, milliseconds: int) -> Iterator[None]:
        former = self._set_limit(connection, "lock_timeout", milliseconds)
        yield
        # After an error, the rollback resets it.
        self._set_limit(connection, "lock_timeout", former)

    def _set_limit(self, connection: BaseDatabaseWrapper, limit: str, to: str | int) -> str:
        """Set a limit, in milliseconds if it has no unit, and return the former one."""
        return str(self._rows(connection, "set_limit", [str(to)], limit=limit)[0][0])

    def limit_lock_waits(self, connection: BaseDatabaseWrapper, milliseconds: int) -> bool:
        name = "lock_timeout"
        self._run(connection, "limit_transaction", limit=name, milliseconds=str(milliseconds))
        return True

    def is_contention_error(self, error: OperationalError) -> bool:
        return getattr(error.__cause__, "sqlstate", None) in (
            _DEADLOCK,
            _LOCK_NOT_AVAILABLE,
            _SERIALIZATION,
        )

    def is_conflict_error(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in (_DEADLOCK, _SERIALIZATION)

    def place(self, connection: BaseDatabaseWrapper, job_id: UUID) -> str | None:
        if connection.settings_dict["OPTIONS"].get("isolation_level") != _SERIALIZABLE:
            return None
        rows = self._rows(connection, "place", [job_id])
        return str(rows[0][0]) if rows else None

    def can_write(self, connection: BaseDatabaseWrapper, *, commits: bool = False) -> bool:
        if commits:
            return bool(self._rows(connection, "can_commit"))
        return self._setting(connection, "transaction_read_only") == "off"

    def _setting(self, connection: BaseDatabaseWrapper, name: str) -> str:
        return str(self.rows(connection, f"SHOW {name}", None)[0][0])

    def is_transaction_open(self, connection: BaseDatabaseWrapper) -> bool:
        link: Any = connection.connection
        return link.info.transaction_status not in _WITHOUT_TRANSACTION

    def is_unavailable_error(self, error: BaseException) -> bool:
        state = getattr(error.__cause__, "sqlstate", None) or ""
        # The driver counts `_ENDED` among errors of the program, although a retry may pass, and
        # `_FOR_GOOD` among errors of a server that is away, although a retry would fail.
        return state in _ENDED or (
            not state.startswith(_FOR_GOOD) and super().is_unavailable_error(error)
        )

    def is_read_only_error(self, error: BaseException) -> bool:
        return getattr(error.__cause__, "sqlstate", None) == _READ_ONLY

    def which_hold(
        self, connection: BaseDatabaseWrapper, conditions: Sequence[str], values: Sequence[str]
    ) -> list[bool]:
        # The result is one text, because this is most of what an idle worker reads.
        statement = f"SELECT ARRAY[{', '.join(conditions)}]::text"
        found = _direct().text(connection, statement, list(values)) or ""
        return [each == "t" for each in found[1:-1].split(",")]

    def ago(self, seconds: float) -> str:
        return f"{_NOW} - {seconds:f} * interval '1 second'"

    def ids(self, keys: Collection[UUID]) -> str:
        # A text, because the driver takes longer for a list of UUIDs.
        return "{" + ",".join([key.hex for key in keys]) + "}"

    def texts(self, values: Collection[str]) -> list[str]:
        return sorted(values)

    def _claimed(
        self, connection: BaseDatabaseWrapper, name: str, values: Any, **parts: str
    ) -> list[tuple[Any, ...]]:
        statement = self.sql[name]
        if name == "claim":
            # A worker repeats this claim all the time; so does a web process for workers over HTTP.
            # A value of a kept plan has a type, so a worker without an id gets no such plan.
            is_named = values["worker_id"] is not None
            if parts["registered"] or (is_named and _kept_plans().repeats(connection)):
                kept = _kept(connection, _kept_claim(statement, **parts), values)
                if kept is not None:
                    return kept
            parts |= _EXACTLY_LIMIT
        # A claim from a floor keeps no plan: kept_plans has no type for its times, and floors are
        # rare.
        elif name == "claim_chosen" and _repeats(connection):
            kept = _kept(connection, statement.format(**parts), values)
            if kept is not None:
                return kept
        return _rows(connection, statement.format(**parts) if parts else statement, values)

    def rows(
        self,
        connection: BaseDatabaseWrapper,
        statement: str,
        values: Any,
        *,
        is_repeated: bool = False,
    ) -> list[Any]:
        if is_repeated and _repeats(connection):
            kept = _kept(connection, statement, values)
            if kept is not None:
                return kept
        return _rows(connection, statement, values)

    def complete(
        self,
        connection: BaseDatabaseWrapper,
        values: Mapping[str, str | int],
        parts: Mapping[str, str] = RUNS_OF_WORKER,
    ) -> list[tuple[Any, ...]]:
        # A worker completes jobs all the time.
        if parts is RUNS_OF_WORKER or _kept_plans().repeats(connection):
            statement = self.sql["complete"].format(**parts)
            kept = _kept(connection, statement, values)
            if kept is not None:
                return kept
        return super().complete(connection, values, parts)

    def uuid(self, value: Any) -> UUID:
        return cast("UUID", value)

    def time(self, value: Any) -> datetime | None:
        return cast("datetime | None", value)

    def api_key(self, connection: BaseDatabaseWrapper, prefix: str) -> str | None:
        return cast("str | None", _direct().text(connection, _SQL["api_key"], [prefix]))

    def notify(
        self, connection: BaseDatabaseWrapper, payloads: Sequence[str], channel: str
    ) -> None:
        call = f"pg_notify('{channel}', %s || ' ' || extract(epoch FROM clock_timestamp()))"
        calls = ", ".join([call] * len(payloads))
        _direct().run(connection, _SQL["notify"].format(calls=calls), list(payloads))

    def listen(self, connection: BaseDatabaseWrapper, channel: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {channel}")

    def notifications(self, connection: BaseDatabaseWrapper) -> list[tuple[str, float]]:
        # psycopg's `notifies()` is not used: it waits for more while it holds the GIL, which the
        # thread that was woken then waits for.
        link = connection.connection.pgconn
        link.consume_input()
        payloads = []
        while notification := link.notifies():
            payload, _, sent_at = notification.extra.decode().rpartition(" ")
            with suppress(ValueError):  # Another program has sent it.
                payloads.append((payload, float(sent_at)))
        return payloads

    def session(self, connection: BaseDatabaseWrapper) -> Session | None:
        pid, started_at = self._rows(connection, "session")[0]
        # A pooler responds to the start-up packet itself, with an invented process id: the server
        # process then serves other clients too, and its end says nothing about this one.
        announced = connection.connection.info.backend_pid
        return (pid, started_at) if pid == announced else None

    open_since = (
        "EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) "
        "AND xact_start < {})"
    )

    def is_timeout_error(self, error: BaseException) -> bool:
        return getattr(error.__cause__, "sqlstate", None) == _QUERY_CANCELED

    @contextmanager
    def query_timeout(
        self, connection: BaseDatabaseWrapper, seconds: float
    ) -> Iterator[QueryLimit]:
        # All queries share one transaction: the timeout is set once and ends with it, also through
        # a pooler. A query that was stopped ends the transaction, and the next one begins another.
        # Inside of a caller's transaction, each query has a savepoint.
        alias, milliseconds = connection.alias, str(int(seconds * 1000))
        if not connection.in_atomic_block and connection.get_autocommit():
            yield from self._limited_by_transactions(connection, milliseconds)
            return
        with transaction.atomic(using=alias):
            former = self._set_limit(connection, "statement_timeout", milliseconds)
            yield lambda: transaction.atomic(using=alias)
            # A caller's transaction continues with its own timeout.
            self._set_limit(connection, "statement_timeout", former)

    def _limited_by_transactions(
        self, connection: BaseDatabaseWrapper, milliseconds: str
    ) -> Iterator[QueryLimit]:
        is_set = False

        @contextmanager
        def limit() -> Iterator[None]:
            nonlocal is_set
            try:
                if not is_set:
                    self._set_limit(connection, "statement_timeout", milliseconds)
                    is_set = True
                yield
            except BaseException:
                is_set = False
                connection.rollback()
                raise

        connection.set_autocommit(False)
        try:
            yield limit
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.set_autocommit(True)

    def check(self, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        values = connection.settings_dict
        found: list[CheckMessage] = []
        level = self._setting(connection, "default_transaction_isolation")
        if level not in _SNAPSHOT_PER_STATEMENT:
            found.append(
                Error(
                    f"The sessions of the database {connection.alias!r} begin with the isolation "
                    f"level {level}, also for single statements of django_ojs, which would fail or "
                    "miss what was committed before them.",
                    hint="Remove default_transaction_isolation from the server, the database and "
                    "the role. For your own transactions set "
                    f"DATABASES[{connection.alias!r}]['OPTIONS']['isolation_level'].",
                    id="django_ojs.E012",
                )
            )
        hosts = values.get("HOST") or values["OPTIONS"].get("host") or ""
        if "," not in hosts or "target_session_attrs" in values["OPTIONS"]:
            return found
        return [
            *found,
            Warning(
                f"The database {connection.alias!r} has several hosts, and connections go to the "
                "first one that responds: after a failover that may be a replica, which takes no "
                "writes.",
                hint=f"DATABASES[{connection.alias!r}]['OPTIONS'] = "
                "{'target_session_attrs': 'read-write'}",
                id="django_ojs.W004",
            ),
        ]

    def descriptor(self, connection: BaseDatabaseWrapper) -> int | None:
        link: Any = connection.connection
        try:
            return None if link is None else int(link.fileno())
        except Exception:  # The driver raises an error of its own for a closed connection.
            return None

    def is_waiting(self, connection: BaseDatabaseWrapper) -> bool | None:
        link: Any = connection.connection
        return link is not None and link.info.transaction_status == _WAITING

    def is_free(self, connection: Any) -> bool:
        link = connection.connection
        # The driver's own attribute is read, because Django's one describes the former connection
        # until the new one is made.
        return super().is_free(connection) and link is not None and bool(link.autocommit)

    def session_number(self, connection: BaseDatabaseWrapper) -> int:
        link: Any = connection.connection
        return 0 if link is None else int(link.info.backend_pid)

    def executes(
        self, connection: BaseDatabaseWrapper, numbers: Collection[int]
    ) -> dict[int, bool] | None:
        if self.session(connection) is None:
            return None
        return dict(self._rows(connection, "executes", [list(numbers)]))

    def client_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if "service" in options:
            return {}  # The file of the service may have the options.
        return {
            name: value
            for name, value in _CLIENT_OPTIONS.items()
            if name not in options and _ENVIRONMENT.get(name, "") not in os.environ
        }

"""PostgreSQL 14 and later."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast
from uuid import UUID

from django.core.checks import CheckMessage
from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec import json
from django_ojs.spec.states import State
from django_ojs.storage.dialects.base import Dialect, Difference, QueryLimit, Row, Session, Stored
from django_ojs.storage.dialects.sql_files import load

#: The channel on which idle workers listen; the payload is a queue's name.
CHANNEL = "ojs"

_WHERE_ADMITTED = "WHERE (SELECT ojs_admit_all(%s::text[], %s::bigint[], %s::bigint[], %s))"
_SKIP_TAKEN = "ON CONFLICT (id) DO NOTHING"

#: By whether the ids were generated, and whether the queues are asked for room.
_INSERT_JOBS = {
    (generated_ids, only_if_admitted): load(
        "postgresql",
        "insert_jobs",
        where_admitted=_WHERE_ADMITTED if only_if_admitted else "",
        on_conflict="" if generated_ids else _SKIP_TAKEN,
    )
    for generated_ids in (True, False)
    for only_if_admitted in (True, False)
}
_ADD_EVENTS = load("postgresql", "add_events")
_CAN_WRITE = load("postgresql", "can_write")
_CLAIM = load("postgresql", "claim")
_COMPLETE = load("postgresql", "complete")
_COUNTS = load("postgresql", "counts")
_COUNT_DIFFERENCES = load("postgresql", "count_differences")
_DEAD_WORKERS = load("postgresql", "dead_workers")
_DUE_WORK = load("postgresql", "due_work")
_FOLD_COUNTS = load("postgresql", "fold_counts")
_LISTEN = load("postgresql", "listen", channel=CHANNEL)
_LOCK_QUEUE = load("postgresql", "lock_queue")
_LOCK_SUBJECT = load("postgresql", "lock_subject")
_LOCK_UNIQUE_KEYS = load("postgresql", "lock_unique_keys")
_MAY_VACUUM_COUNTS = load("postgresql", "may_vacuum_counts")
_NOTIFY = load("postgresql", "notify", calls="{calls}")
_OLDEST_AVAILABLE = load("postgresql", "oldest_available")
_OLDEST_TRANSACTION = load("postgresql", "oldest_transaction")
_PROMOTE = load("postgresql", "promote")
_PUSH_JOB = load("postgresql", "push_job", named="{named}")
_QUEUE_COUNTS = load("postgresql", "queue_counts")
_READ_BOUND_VERSION = load("postgresql", "read_bound_version")
_RENEW_TICKETS = load("postgresql", "renew_tickets")
_REPAIR_COUNTS = load("postgresql", "repair_counts", count_differences=_COUNT_DIFFERENCES)
_SESSION = load("postgresql", "session")
_SET_READ_COMMITTED = load("postgresql", "set_read_committed")
_SET_STATEMENT_TIMEOUT = load("postgresql", "set_statement_timeout")
_SPEND_TICKETS = load("postgresql", "spend_tickets")
_VACUUM_COUNTS = load("postgresql", "vacuum_counts")

_READ_ONLY = "25006"
_DEADLOCK, _LOCK_NOT_AVAILABLE, _SERIALIZATION = "40P01", "55P03", "40001"
#: Isolation levels in which each statement has a snapshot of its own.
_SNAPSHOT_PER_STATEMENT = {"read committed", "read uncommitted"}
#: psycopg's number of the isolation level, which Django keeps.
_READ_COMMITTED = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AVAILABLE = State.AVAILABLE.value
#: A job with one of these is stored by the general statement, not by `ojs_push`.
_NOT_FOR_PUSH_JOB = {"pending", "due_at", "due_in", "expires_at", "expires_in", "unique_key"}
#: Arguments of `ojs_push` that have a default.
_OPTIONAL = ("priority", "meta", "options", "timeout_ms", "visibility_timeout_ms")


def _time(microseconds: int) -> datetime:
    # Parsing a thousand timestamps takes as long as storing the jobs; integers are parsed in C.
    return _EPOCH + timedelta(microseconds=microseconds)


def _stored(key: UUID, state: str, created: int, queued: int | None, *others: Any) -> Stored:
    created_at = _time(created)
    if queued is None or queued == created:
        return Stored(key, state, created_at, None if queued is None else created_at, *others)
    return Stored(key, state, created_at, _time(queued), *others)


def _push_arguments(row: Row) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of `ojs_push`: by position the required ones, by name the others."""
    args = json.dumps(row["args"])
    text = f"{row['type']}{row['queue']}{args}"
    more: dict[str, Any] = {}
    for name in _OPTIONAL:
        if value := row.get(name):
            more[name] = value
    for name in ("meta", "options"):
        if name in more:
            more[name] = json.dumps(more[name])
            text += more[name]
        else:
            text += "{}"
    size = len(text) if text.isascii() else len(text.encode())
    return [row["id"], row["type"], row["queue"], args, size, row["max_attempts"]], more


@cache
def _push_statement(*named: str) -> str:
    return _PUSH_JOB.format(named="".join([f", {name} => %s" for name in named]))


def _admission_arguments(rows: Sequence[Row], text: str) -> list[list[Any]]:
    """Return queues, jobs and bytes for `ojs_admit_all`."""
    # The bytes of the whole batch for each queue: more than its jobs have, but known without
    # rendering them twice. A pending job does not count for its queue yet.
    size = len(text) if text.isascii() else len(text.encode())
    jobs = Counter(row["queue"] for row in rows if "pending" not in row)
    return [list(jobs), list(jobs.values()), [size] * len(jobs)]


def _is_whole_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Say whether a statement is a transaction of its own."""
    return not connection.in_atomic_block and connection.get_autocommit()


class PostgreSQL(Dialect):
    """PostgreSQL through psycopg 3."""

    now = "statement_timestamp()"
    backend = "postgres"
    can_notify = True
    has_sessions = True

    def insert_jobs(
        self,
        connection: BaseDatabaseWrapper,
        rows: Sequence[Row],
        *,
        generated_ids: bool,
        only_if_admitted: bool,
    ) -> list[Stored] | None:
        if len(rows) == 1 and not _NOT_FOR_PUSH_JOB & rows[0].keys():
            return self._insert_one(
                connection, rows[0], generated_ids=generated_ids, only_if_admitted=only_if_admitted
            )
        parameters: list[Any] = [text := json.dumps(rows)]
        if only_if_admitted:
            parameters += [*_admission_arguments(rows, text), _is_whole_transaction(connection)]
        with connection.cursor() as cursor:
            cursor.execute(_INSERT_JOBS[generated_ids, only_if_admitted], parameters)
            found = cursor.fetchall()
        if not found and only_if_admitted:
            return None
        return [_stored(*row) for row in found]

    def _insert_one(
        self,
        connection: BaseDatabaseWrapper,
        row: Row,
        *,
        generated_ids: bool,
        only_if_admitted: bool,
    ) -> list[Stored] | None:
        needed, more = _push_arguments(row)
        if not generated_ids:
            more["new"] = False
        if only_if_admitted:
            more["alone"] = _is_whole_transaction(connection)
        with connection.cursor() as cursor:
            cursor.execute(_push_statement(*more), [*needed, *more.values()])
            (microseconds,) = cursor.fetchone()
        if microseconds is None:
            # Not admitted, or an id that is taken; the procedure does not say which.
            return None if only_if_admitted else []
        created, size = _time(microseconds), needed[4]
        return [Stored(UUID(row["id"]), _AVAILABLE, created, created, None, None, size)]

    def oldest_available(
        self, connection: BaseDatabaseWrapper, queue: str, limit: int
    ) -> list[UUID]:
        with connection.cursor() as cursor:
            cursor.execute(_OLDEST_AVAILABLE, {"queue": queue, "limit": limit})
            return [row[0] for row in cursor.fetchall()]

    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_QUEUE, [f"{int(timeout * 1000)}ms", queue])
            former_timeout, _, locked, _ = cursor.fetchone()
            cursor.execute(_READ_BOUND_VERSION, [former_timeout, queue])
            version = cursor.fetchone()[1]
        return (version or "0") if locked else None

    def renew_tickets(self, connection: BaseDatabaseWrapper, queue: str) -> None:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            self.begin_write(connection)
            cursor.execute(_RENEW_TICKETS, [queue])

    def queue_counts(
        self, connection: BaseDatabaseWrapper, queue: str, states: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_QUEUE_COUNTS, {"queue": queue, "states": list(states)})
            return cast("list[tuple[str, int, int]]", cursor.fetchall())

    def spend_tickets(
        self, connection: BaseDatabaseWrapper, queue: str, version: str, cost: int, room: int
    ) -> None:
        values: dict[str, str | int] = {"queue": queue, "version": version}
        values |= {"cost": cost, "room": room}
        with connection.cursor() as cursor:
            cursor.execute(_SPEND_TICKETS, values)

    def claim(
        self,
        connection: BaseDatabaseWrapper,
        *,
        queue: str,
        limit: int,
        worker_id: str | None,
        lease_ms: int,
        own_lease: bool,
    ) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(
                _CLAIM,
                {
                    "queue": queue,
                    "limit": limit,
                    "worker_id": worker_id,
                    "lease_ms": lease_ms,
                    "own_lease": own_lease,
                },
            )
            return cast("list[tuple[Any, ...]]", cursor.fetchall())

    def complete(self, connection: BaseDatabaseWrapper, worker_id: str, finished: str) -> set[UUID]:
        with connection.cursor() as cursor:
            cursor.execute(_COMPLETE, {"worker_id": worker_id, "finished": finished})
            return {row[0] for row in cursor.fetchall()}

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[UUID, str]]:
        with connection.cursor() as cursor:
            cursor.execute(_PROMOTE, [limit])
            return cast("list[tuple[UUID, str]]", cursor.fetchall())

    def counts(
        self, connection: BaseDatabaseWrapper, queues: list[str] | None
    ) -> list[tuple[str, str, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_COUNTS, {"queues": queues})
            return cast("list[tuple[str, str, int]]", cursor.fetchall())

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_FOLD_COUNTS)
            return cast("int", cursor.fetchone()[0])

    def count_differences(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT_DIFFERENCES)
            return cast("list[Difference]", cursor.fetchall())

    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        with connection.cursor() as cursor:
            cursor.execute(_REPAIR_COUNTS)
            return cast("list[Difference]", cursor.fetchall())

    def vacuum_counts(self, connection: BaseDatabaseWrapper) -> None:
        if not connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.execute(_MAY_VACUUM_COUNTS)
                if cursor.fetchone()[0]:
                    cursor.execute(_VACUUM_COUNTS)

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        # There is no write lock: rows are locked as they are changed. But each statement has to see
        # what was committed before it, whatever isolation level the project's connections have.
        level = getattr(connection, "isolation_level", None)
        if level not in (None, _READ_COMMITTED) and not connection.savepoint_ids:
            with connection.cursor() as cursor:
                cursor.execute(_SET_READ_COMMITTED)

    def lock_unique_keys(self, connection: BaseDatabaseWrapper, keys: Sequence[str]) -> bool:
        # An advisory lock has 64 bits, half of the hash: two keys that share them wait for each
        # other without need. In order, so that two batches cannot deadlock.
        numbers = sorted({int.from_bytes(bytes.fromhex(key)[:8], signed=True) for key in keys})
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_UNIQUE_KEYS, [numbers])
            return str(cursor.fetchone()[1]) in _SNAPSHOT_PER_STATEMENT

    def lock_subject(self, connection: BaseDatabaseWrapper, subject: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_SUBJECT, [subject])

    def add_events(self, connection: BaseDatabaseWrapper, events: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_ADD_EVENTS, [events])

    def can_write(self, connection: BaseDatabaseWrapper) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(_CAN_WRITE)
            return bool(cursor.fetchone()[0])

    def is_contention_error(self, error: OperationalError) -> bool:
        return getattr(error.__cause__, "sqlstate", None) in (
            _DEADLOCK,
            _LOCK_NOT_AVAILABLE,
            _SERIALIZATION,
        )

    def is_unavailable_error(self, error: BaseException) -> bool:
        return (
            super().is_unavailable_error(error)
            or getattr(error.__cause__, "sqlstate", None) == _READ_ONLY
        )

    def uuid(self, value: Any) -> UUID:
        return cast("UUID", value)

    def time(self, value: Any) -> datetime | None:
        return cast("datetime | None", value)

    def notify(self, connection: BaseDatabaseWrapper, queues: Sequence[str]) -> None:
        calls = ", ".join([f"pg_notify('{CHANNEL}', %s)"] * len(queues))
        with connection.cursor() as cursor:
            cursor.execute(_NOTIFY.format(calls=calls), list(queues))

    def listen(self, connection: BaseDatabaseWrapper) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_LISTEN)

    def notified_queues(self, connection: BaseDatabaseWrapper) -> list[str]:
        # Not psycopg's `notifies()`: it waits for more while it holds the GIL, and the thread that
        # was woken waits with it.
        link = connection.connection.pgconn
        link.consume_input()
        queues = []
        while notification := link.notifies():
            queues.append(notification.extra.decode())
        return queues

    def session(self, connection: BaseDatabaseWrapper) -> Session | None:
        with connection.cursor() as cursor:
            cursor.execute(_SESSION)
            pid, started_at = cursor.fetchone()
        # A pooler answers the start-up packet itself, with a process id that it made up: then the
        # server process serves other clients too, and its end says nothing about this one.
        announced = connection.connection.info.backend_pid
        return (pid, started_at) if pid == announced else None

    def oldest_transaction(self, connection: BaseDatabaseWrapper) -> timedelta | None:
        with connection.cursor() as cursor:
            cursor.execute(_OLDEST_TRANSACTION)
            return cast("timedelta | None", cursor.fetchone()[0])

    @contextmanager
    def query_timeout(
        self, connection: BaseDatabaseWrapper, seconds: float
    ) -> Iterator[QueryLimit]:
        # One transaction: the timeout is set once and ends with it, through a pooler as well. Each
        # query has a savepoint, because one that was stopped must not end the transaction.
        alias = connection.alias
        with transaction.atomic(using=alias), connection.cursor() as cursor:
            cursor.execute(_SET_STATEMENT_TIMEOUT, [str(int(seconds * 1000))])
            (former_timeout, _) = cursor.fetchone()
            yield lambda: transaction.atomic(using=alias)
            # A caller's transaction goes on with its own timeout.
            cursor.execute(_SET_STATEMENT_TIMEOUT, [former_timeout])

    def check(self, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        return []

    def due_work(self, connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
        with connection.cursor() as cursor:
            cursor.execute(_DUE_WORK)
            due, expired = cursor.fetchone()
        return bool(due), bool(expired)

    def dead_workers(
        self, connection: BaseDatabaseWrapper, *, away: float = 0.0, back_for: float = 0.0
    ) -> list[tuple[str, Session | None]]:
        with connection.cursor() as cursor:
            cursor.execute(_DEAD_WORKERS, {"away": away, "back_for": back_for})
            found = cursor.fetchall()
        return [(key, (pid, since) if pid is not None else None) for key, pid, since in found]

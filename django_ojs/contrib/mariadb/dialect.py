"""MariaDB 10.11 and later. The support is new: docs/how-to/use-mariadb.md says what is tested.

An UPDATE returns no rows there, so an operation that changes jobs and returns them locks them
first, in one transaction: `_whole`. Only row locks end with a transaction (see `row_locks`). There
are no partial indexes, and no notifications: idle workers poll.
"""

import os
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import wraps
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar, cast
from uuid import UUID

from django.core.checks import CheckMessage
from django.db import Error, IntegrityError, InterfaceError, OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.contrib.mariadb import open_transactions
from django_ojs.contrib.mariadb.broken_triggers import BrokenTriggers
from django_ojs.contrib.mariadb.galera import GaleraLocks
from django_ojs.contrib.mariadb.message_size import size_in_statement
from django_ojs.contrib.mariadb.server_checks import problems
from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.states import State
from django_ojs.storage.dialects.base import ISOLATION, RUNS_OF_WORKER, EndOfRun, claim_values
from django_ojs.storage.dialects.job_row import Found, JobRow, NewRow, new_rows, rows_of, size_of
from django_ojs.storage.dialects.rows import ClaimRequest, Difference, Floor
from django_ojs.storage.dialects.server import QueryLimit
from django_ojs.storage.dialects.sql_files import load, load_all

D = TypeVar("D", bound="MariaDB")
P = ParamSpec("P")
T = TypeVar("T")

_NOW: Final = "UTC_TIMESTAMP(6)"
_COLLATION: Final = "utf8mb4_nopad_bin"
_HERE: Final = Path(__file__).parent
_SQL: Final = load_all(
    _HERE / "sql",
    now=_NOW,
    deadline_when_started=load(_HERE / "sql", "deadline_when_started"),
    collation=_COLLATION,
)
#: A parameter as the value of a column of ids.
_KEY: Final = "CAST(%s AS uuid)"

#: The columns of a statement about ended runs, beside their ids and errors.
_ENDED: Final[Mapping[EndOfRun, Sequence[str]]] = {
    "add_attempts": ("outcome", "delay_us"),
    "retry_failed": ("delay_us",),
    "discard_failed": ("reason", "dead_letter"),
}

#: Changes of the counts that one transaction folds.
_CHANGES: Final = 5000
#: Bytes of jobs, results or errors that one statement stores: the server rejects a message above
#: max_allowed_packet, which is 16 MiB by default. A larger row is stored alone.
_STATEMENT_BYTES: Final = 2**20

_AVAILABLE: Final = State.AVAILABLE.value
_SCHEDULED: Final = State.SCHEDULED.value
_PENDING: Final = State.PENDING.value

_DUPLICATE_KEY: Final = 1062
_DEADLOCK: Final = 1213
#: How often a method's transaction is repeated after a deadlock, and the longest pause before it.
_REPETITIONS: Final = 5
_PAUSE: Final = 0.02
_INTERRUPTED: Final = 1317
_TIMEOUTS: Final = {1969, 3024}
_READ_ONLY: Final = {1290, 1792, 1836}
#: A lock that is held for too long, a deadlock, a row that has changed, and NOWAIT.
_CONTENTION: Final = {1205, 1213, 1020, 3572}
#: No connection, too many of them, a server that stops, and a node of a cluster that is not ready,
#: or was cut off from the others at COMMIT (1180).
_UNAVAILABLE: Final = {
    *(1040, 1042, 1043, 1045, 1047, 1053, 1129, 1130, 1152, 1158, 1159, 1160, 1161, 1180, 1203),
    *(1184, 1226, 1927, 2002, 2003, 2004, 2005, 2006, 2012, 2013, 2055, 4031),
}
_NO_ID: Final = str(UUID(int=0))
#: The grants that let a user close tables (see `broken_triggers`).
_CLOSES_TABLES: Final = re.compile(r"GRANT (ALL PRIVILEGES|.*\bRELOAD\b).* ON \*\.\* ")

_CLIENT_OPTIONS: Final = {"connect_timeout": 4}
#: The same times as for PostgreSQL. A system may lack some options.
_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": 4,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 8000,
}


class _NotAdmitted(Exception):
    """Only a count under the lock of the queue can tell whether there is room."""


def _other_product(connection: BaseDatabaseWrapper) -> str | None:
    # Only an open connection is asked: this must not wait for a server that is away.
    link: Any = connection
    is_other = link.connection is not None and not link.mysql_is_mariadb
    return "MySQL. Use MariaDB 10.11 or newer" if is_other else None


def _code(error: BaseException) -> int:
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else 0


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _parts(rows: Iterable[T], size: Callable[[T], int]) -> list[list[T]]:
    """Split rows into the rows of each statement (see _STATEMENT_BYTES)."""
    parts: list[list[T]] = []
    room = 0
    for row in rows:
        wanted = size(row)
        if not parts or wanted > room:
            parts.append([])
            room = _STATEMENT_BYTES
        parts[-1].append(row)
        room -= wanted
    return parts


def _naive(moment: datetime) -> str:
    # `strftime` is not used, because it writes the year 76 with two digits.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def _new_job(row: JobRow, n: int) -> tuple[str, list[Any]]:
    """Return a row of VALUES as SQL, and its parameters."""
    now, now_values = f"{_NOW} + INTERVAL %s MICROSECOND", [n]
    due, due_values = _moment(row, "due")
    expires, expires_values = _moment(row, "expires")
    options, options_values = _options(
        row, {"scheduled_at": (due, due_values), "expires_at": (expires, expires_values)}
    )
    waits, waits_values = expires, expires_values
    if "longest_wait" in row:
        waits = f"LEAST(COALESCE({expires}, '9999-12-31'), {_NOW} + INTERVAL %s SECOND)"
        waits_values = [*expires_values, row["longest_wait"]]
    state, state_values, queued, queued_values = f"'{_AVAILABLE}'", list[Any](), now, now_values
    if row.get("pending"):
        state, queued, queued_values = f"'{_PENDING}'", "NULL", []
    elif "due_in" in row and row["due_in"] > 0:
        state, queued, queued_values = f"'{_SCHEDULED}'", "NULL", []
    elif "due_at" in row:
        is_later = f"CASE WHEN %s > {_NOW} THEN"
        state, state_values = f"{is_later} '{_SCHEDULED}' ELSE '{_AVAILABLE}' END", due_values
        queued, queued_values = f"{is_later} NULL ELSE {now} END", [*due_values, *now_values]
    sql = _SQL["new_job"].format(
        state=state,
        options=options,
        created_at=now,
        enqueued_at=queued,
        due=due,
        expires=waits,
    )
    return sql, [
        *(row["id"], row["type"], row["queue"], *state_values, row["priority"]),
        *(json.dumps(row["args"]), json.dumps(row["meta"]), *options_values),
        *(row["max_attempts"], row.get("timeout_ms"), row.get("visibility_timeout_ms")),
        *(*now_values, *queued_values, *due_values, *waits_values),
        *(row.get("unique_key"), row.get("marks", 0), row.get("parent_id")),
        size_of(row),
    ]


def _moment(row: JobRow, name: str) -> tuple[str, list[Any]]:
    if f"{name}_at" in row:
        return "%s", [row[f"{name}_at"][:26]]  # Without its offset, which is always UTC.
    if f"{name}_in" in row:
        return f"{_NOW} + INTERVAL %s MICROSECOND", [_microseconds(row[f"{name}_in"])]
    return "NULL", []


def _options(row: JobRow, times: Mapping[str, tuple[str, list[Any]]]) -> tuple[str, list[Any]]:
    """Return the options as JSON, composed as text, so that the database does not reformat it."""
    became = {"scheduled_at": "due_in", "expires_at": "expires_in"}
    relative = [name for name in became if became[name] in row]
    text = json.dumps({k: v for k, v in row["options"].items() if k not in relative})
    if not relative:
        return "%s", [text]
    parts, values = ["%s"], list[Any]([text[:-1]])
    for number, name in enumerate(relative):
        sql, sql_values = times[name]
        comma = "," if number or text != "{}" else ""
        parts += ["%s", f"LEFT(DATE_FORMAT({sql}, %s), 23)", "%s"]
        values += [f'{comma}"{name}":"', *sql_values, "%Y-%m-%dT%H:%i:%s.%f", 'Z"']
    return f"CONCAT({', '.join(parts)}, '}}')", values


def _repeated(
    method: Callable[Concatenate[D, BaseDatabaseWrapper, P], T],
) -> Callable[Concatenate[D, BaseDatabaseWrapper, P], T]:
    """Repeat a method that opens its own transaction if a deadlock has ended the transaction.

    On other databases the method is one statement, which cannot deadlock: its callers rely on it.
    """

    @wraps(method)
    def again(self: D, connection: BaseDatabaseWrapper, /, *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_REPETITIONS):
            try:
                return method(self, connection, *args, **kwargs)
            except OperationalError as error:
                # In a caller's transaction the server has rolled back more than the method's part.
                if connection.in_atomic_block or _code(error) != _DEADLOCK:
                    raise
                time.sleep(random.uniform(0, _PAUSE))
        return method(self, connection, *args, **kwargs)

    return again


class MariaDB(GaleraLocks):
    """MariaDB through mysqlclient, or through PyMySQL in its place."""

    sql = _SQL
    now = _NOW
    name = "mariadb"
    other_product = staticmethod(_other_product)
    schema = (_HERE / "schema/tables.sql", _HERE / "schema/count_triggers.sql")
    drop: ClassVar = {"INDEX": "DROP INDEX {name} ON {table}"}
    after_flush = (
        "DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
        "DELETE FROM ojs_count_change WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
    )
    # JSON is stored as a text, unchanged. MariaDB's type `json` has a check, which rejects values
    # that are nested more than 32 deep.
    json_type = "longtext"
    reasons = re.compile(
        "unknown database|unknown server host|can't connect to (?:local )?server|access denied for "
        "user|too many connections|server has gone away|lost connection to server|running with the "
        "--read-only option|WSREP has not yet prepared node|MariaDB has read triggers in part[^']+",
        re.IGNORECASE,
    )
    test_clock = "django_ojs.contrib.mariadb.test_clock.MariaDBClock"
    binary_collation = _COLLATION
    is_server = False
    create_index = "CREATE INDEX"
    can_notify = False
    has_one_writer = False
    has_update_returning = False
    keeps_subquery_order = False

    def _whole(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[Any]:
        """Open a transaction for several statements, unless the caller has opened one."""
        if connection.in_atomic_block:
            return nullcontext()
        return transaction.atomic(using=connection.alias)

    def _table(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], key: str = _KEY
    ) -> tuple[str, list[Any]]:
        """Return a table of values as SQL, whose first column is a key, and its parameters."""
        names = ", ".join(f"%s AS {name}" for name in columns[1:])
        first = f"SELECT {key} AS {columns[0]}" + (f", {names}" if names else "")
        others = f" UNION ALL SELECT {', '.join(['%s'] * len(columns))}" * (len(rows) - 1)
        return first + others, [value for row in rows for value in row]

    @_repeated
    def insert_jobs(
        self,
        connection: BaseDatabaseWrapper,
        envelopes: Sequence[Envelope],
        *,
        generated_ids: bool,
        only_if_admitted: bool,
        unless_held: bool = False,
    ) -> Sequence[NewRow] | None:
        if unless_held:
            return None
        rows = rows_of(envelopes)
        if not only_if_admitted:
            return new_rows(envelopes, self._insert_rows(connection, rows, generated_ids))
        bounds = self.bounds_of(connection, {row["queue"] for row in rows})
        if not bounds:
            found = self._insert_rows(connection, rows, generated_ids)
            return new_rows(envelopes, found) if found or len(rows) > 1 else None
        added: dict[str, tuple[int, int]] = {}
        for row in rows:
            if not row.get("pending"):
                jobs, size = added.get(row["queue"], (0, 0))
                added[row["queue"]] = jobs + 1, size + size_of(row)
        alone = not connection.in_atomic_block
        with suppress(_NotAdmitted), self._whole(connection):
            if not self.admit_queues(connection, bounds, added, alone=alone):
                raise _NotAdmitted  # Gives the locks back, unless the transaction is the caller's.
            found = self._insert_rows(connection, rows, generated_ids)
            return new_rows(envelopes, found) if found or len(rows) > 1 else None
        return None

    def _insert_rows(
        self, connection: BaseDatabaseWrapper, rows: Sequence[JobRow], generated_ids: bool
    ) -> list[Found]:
        parts = _parts(list(enumerate(rows)), lambda each: size_of(each[1]))
        if len(rows) == 1:
            return self._insert(connection, parts[0], generated_ids)
        with self._whole(connection):
            return [job for part in parts for job in self._insert(connection, part, generated_ids)]

    def _insert(
        self, connection: BaseDatabaseWrapper, jobs: Sequence[tuple[int, JobRow]], is_new: bool
    ) -> list[Found]:
        texts, values = [], list[Any]()
        for n, row in jobs:
            text, more = _new_job(row, n)
            texts.append(text)
            values += more
        try:
            rows = self._rows(connection, "insert_jobs", values, rows=", ".join(texts))
        except IntegrityError as error:
            if is_new or _code(error) != _DUPLICATE_KEY:
                raise
            # Only the statement was undone. The jobs are stored one by one, without the duplicates.
            if len(jobs) == 1:
                return []
            return [found for job in jobs for found in self._insert(connection, [job], is_new)]
        return [
            (self.uuid(key), state, *cast("Any", [*map(self.time, times), size]))
            for key, state, *times, size in rows
        ]

    @contextmanager
    def lock_timeout(self, connection: BaseDatabaseWrapper, milliseconds: int) -> Iterator[None]:
        seconds = max(1, ceil(milliseconds / 1000))
        with self._having(connection, "innodb_lock_wait_timeout", seconds):
            yield

    @contextmanager
    def _having(
        self, connection: BaseDatabaseWrapper, variable: str, value: float
    ) -> Iterator[None]:
        """Set a variable of the session for a while."""
        former = self._rows(connection, "variable", variable=variable)[0][0]
        self._run(connection, "set_variable", [value], variable=variable)
        try:
            yield
        except BaseException:
            # If the session has ended, the error that said so is raised.
            with suppress(Error):
                self._set_back(connection, variable, former)
            raise
        self._set_back(connection, variable, former)

    def _set_back(self, connection: BaseDatabaseWrapper, variable: str, former: object) -> None:
        """Set a variable back, even in a broken transaction, which the variable outlasts."""
        is_broken, connection.needs_rollback = connection.needs_rollback, False
        try:
            self._run(connection, "set_variable", [former], variable=variable)
        finally:
            connection.needs_rollback = is_broken

    @_repeated
    def claim(
        self,
        connection: BaseDatabaseWrapper,
        request: ClaimRequest,
        floor: Floor | None = None,
    ) -> list[tuple[Any, ...]] | None:
        with self._whole(connection):
            values = {"queue": request.queue, "limit": request.limit}
            values["applied"] = request.applied
            condition = ISOLATION[request.isolation]
            found = self._rows(connection, "claimable", values, isolation=condition)
            keys: list[str] = []
            left = request.max_bytes
            for key, size in found:
                if key is None:
                    return None
                left -= size
                if left < 0 and (keys or not request.at_least_one):
                    break
                keys.append(key)
            return self._claim(connection, keys, request)

    @_repeated
    def claim_chosen(
        self,
        connection: BaseDatabaseWrapper,
        keys: Collection[UUID],
        request: ClaimRequest,
    ) -> list[tuple[Any, ...]]:
        with self._whole(connection):
            rows, values = self._table(["id"], [[key] for key in self.ids(sorted(keys))])
            values = [*values, request.queue, request.applied]
            unless = self.sql["unless_ruled"]
            found = self._rows(connection, "lock_available", values, rows=rows, unless=unless)
            return self._claim(connection, [key for (key,) in found], request)

    def _claim(
        self, connection: BaseDatabaseWrapper, keys: Sequence[str], request: ClaimRequest
    ) -> list[tuple[Any, ...]]:
        values = claim_values(request)
        if not keys:
            return []
        if request.registered and not self._rows(connection, "registered_worker", values):
            return []
        self._run(connection, "claim", {**values, "keys": list(keys)})
        return self._claimed(connection, "claimed", {"keys": list(keys)})

    def _lock_jobs(
        self, connection: BaseDatabaseWrapper, keys: Collection[str]
    ) -> list[tuple[Any, ...]]:
        rows, values = self._table(["id"], [[key] for key in sorted(keys)])
        return self._rows(connection, "lock_jobs", values, rows=rows)

    @_repeated
    def complete(
        self,
        connection: BaseDatabaseWrapper,
        values: Mapping[str, str | int],
        parts: Mapping[str, str] = RUNS_OF_WORKER,
    ) -> list[tuple[Any, ...]]:
        given = {item["id"]: item for item in _items(str(values["finished"]))}
        if not given:
            return []
        with self._whole(connection):
            held = []
            for key, _, _, state, run, worker, *_ in self._lock_jobs(connection, given):
                expected = State.ACTIVE.value, given[key]["run"], values["worker_id"]
                if (state, run, worker) == expected:
                    result = given[key]["result"]
                    held.append([key, None if result is None else json.dumps(result)])
            for part in _parts(held, lambda row: size_in_statement(row[1])):
                rows, stored = self._table(["id", "result"], part)
                self._run(connection, "complete", stored, rows=rows)
        return [(UUID(key),) for key, _ in held]

    def lock_claimed(
        self, connection: BaseDatabaseWrapper, worker_id: str, claims: str
    ) -> set[tuple[UUID, int]]:
        given = {(item["id"], item["run"]) for item in _items(claims)}
        return {
            (UUID(key), run)
            for key, _, _, state, run, worker, *_ in self._lock_jobs(
                connection, {key for key, _ in given}
            )
            if (key, run) in given and (state, worker) == (State.ACTIVE.value, worker_id)
        }

    def end_runs(self, connection: BaseDatabaseWrapper, how: EndOfRun, ended: str) -> None:
        columns = _ENDED[how]
        given = [
            [
                *(item["id"], None if item["error"] is None else json.dumps(item["error"])),
                *(item.get(column) for column in columns),
            ]
            for item in _items(ended)
        ]
        for part in _parts(given, lambda row: size_in_statement(row[1] or "")):
            rows, values = self._table(["id", "error", *columns], part)
            self._run(connection, how, values, rows=rows)

    @_repeated
    def take_back(
        self, connection: BaseDatabaseWrapper, keys: Collection[UUID], *, error: str, spends: bool
    ) -> list[tuple[UUID, str, str, str]]:
        back: list[str] = []
        # The jobs that have spent their attempts, by whether they become dead letters.
        ended: dict[bool, list[str]] = {False: [], True: []}
        found: list[tuple[UUID, str, str, str]] = []
        if not keys:
            return []
        with self._whole(connection):
            for row in self._lock_jobs(connection, self.ids(keys)):
                key, queue, type, state, _, _, attempt, returned, most, _, options, _ = row
                if state != State.ACTIVE.value:
                    continue
                if spends and attempt - returned >= most:
                    ended[_is_kept(options)].append(key)
                    found.append((UUID(key), queue, type, State.DISCARDED.value))
                else:
                    back.append(key)
                    found.append((UUID(key), queue, type, _AVAILABLE))
            if back:
                values: dict[str, Any] = {"keys": back, "error": error, "spends": spends}
                self._run(connection, "take_back", values)
            for dead_letter, jobs in ended.items():
                if jobs:
                    values = {"keys": jobs, "error": error, "dead_letter": dead_letter}
                    self._run(connection, "end_lapsed", values)
        return found

    def oldest_available(
        self, connection: BaseDatabaseWrapper, queue: str, limit: int
    ) -> list[UUID]:
        found = self._rows(connection, "longest_available", {"queue": queue, "limit": limit})
        if not found:
            return []
        rows, values = self._table(["id"], found)
        return [
            self.uuid(key)
            for (key,) in self._rows(connection, "lock_available", values, rows=rows, unless="")
        ]

    def reschedule(self, connection: BaseDatabaseWrapper, jobs: Mapping[UUID, datetime]) -> int:
        rows, values = self._table(
            ["id", "due_at"],
            [[str(key), _naive(at)] for key, at in sorted(jobs.items())],
        )
        with connection.cursor() as cursor:
            cursor.execute(self.sql["reschedule"].format(rows=rows), values)
            return int(cursor.rowcount)

    @_repeated
    def promote(
        self, connection: BaseDatabaseWrapper, limit: int, queues: Sequence[str] | None = None
    ) -> list[tuple[UUID, str, str]]:
        with self._whole(connection):
            if queues is None:
                due = self._rows(connection, "due_jobs", {"limit": limit})
            else:
                due = []
                for queue in queues:
                    values: Any = {"queue": queue, "limit": limit}
                    due += self._rows(connection, "due_jobs_of_queue", values)
            if not due:
                return []
            rows, values = self._table(["id"], due)
            found = self._rows(connection, "lock_due", values, rows=rows)
            found.sort(key=lambda row: (row[3], row[0]))
            if found:
                numbered = [[row[0], n] for n, row in enumerate(found, 1)]
                rows, values = self._table(["id", "n"], numbered)
                self._run(connection, "promote", values, rows=rows)
        return [(self.uuid(key), queue, before) for key, queue, before, _ in found]

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        folded = 0
        while number := self._fold(connection):
            folded += number
            if number < _CHANGES:
                break
        return folded

    @_repeated
    def _fold(self, connection: BaseDatabaseWrapper) -> int:
        with self._whole(connection):
            changes = self._rows(connection, "changes", {"limit": _CHANGES})
            jobs: Counter[tuple[str, str]] = Counter()
            sizes: Counter[tuple[str, str]] = Counter()
            for _, queue, state, n, size in changes:
                jobs[queue, state] += n
                sizes[queue, state] += size
            # In the order of the key, so that two transactions that fold at once cannot deadlock.
            for place in sorted(jobs):
                if jobs[place] or sizes[place]:
                    self._run(connection, "fold_count", [*place, jobs[place], sizes[place]])
            if changes:
                self._run(connection, "delete_changes", {"ids": [change[0] for change in changes]})
            return len(changes)

    @_repeated
    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        with self._whole(connection):
            wrong = self.read(connection, Difference)
            # The differences are written as changes, so that those of other transactions count.
            for each in wrong:
                jobs, size = each.actual - each.counted, each.bytes - each.counted_bytes
                self._run(connection, "add_change", [each.queue, each.state, jobs, size])
        return wrong

    def _candidates(
        self, connection: BaseDatabaseWrapper, values: Mapping[str, Any], isolation: str
    ) -> list[Any]:
        return [
            row
            for hold in ("= 0", "BETWEEN 1 AND 63")
            for row in self._rows(connection, "candidates", values, isolation=isolation, hold=hold)
        ]

    @_repeated
    def erase(self, connection: BaseDatabaseWrapper, keys: Collection[UUID]) -> int:
        with self._whole(connection):
            self._run(connection, "erase_attempts", {"keys": self.ids(keys)})
            with connection.cursor() as cursor:
                cursor.execute(self.sql["erase"], {"keys": self.ids(keys)})
                return int(cursor.rowcount)

    @contextmanager
    def query_timeout(
        self, connection: BaseDatabaseWrapper, seconds: float
    ) -> Iterator[QueryLimit]:
        with self._having(connection, "max_statement_time", seconds):
            # A statement that was stopped does not end its transaction.
            yield nullcontext

    def is_transaction_open(self, connection: BaseDatabaseWrapper) -> bool:
        return open_transactions.is_open(connection)

    def is_contention_error(self, error: OperationalError) -> bool:
        return _code(error) in _CONTENTION

    def is_conflict_error(self, error: BaseException) -> bool:
        return error.args[:1] == (_DEADLOCK,)

    def leaves_transaction(self, error: OperationalError) -> bool:
        return _code(error) != _DEADLOCK and super().leaves_transaction(error)

    def is_unavailable_error(self, error: BaseException) -> bool:
        # Not every OperationalError counts: a missing column is one too.
        if isinstance(error, InterfaceError | BrokenTriggers) or self.is_read_only_error(error):
            return True
        known = {0, _INTERRUPTED} | _UNAVAILABLE | _CONTENTION | _TIMEOUTS
        return isinstance(error, OperationalError) and _code(error) in known

    def is_read_only_error(self, error: BaseException) -> bool:
        return _code(error) in _READ_ONLY

    def is_timeout_error(self, error: BaseException) -> bool:
        return _code(error) in _TIMEOUTS

    def renew_beat(
        self, connection: BaseDatabaseWrapper, worker_id: str, *, interval: int, pid: int | None
    ) -> str | None:
        with connection.cursor() as cursor:
            cursor.execute(
                self.sql["renew_beat"], {"worker_id": worker_id, "interval": interval, "pid": pid}
            )
            if not cursor.rowcount:
                return None
            cursor.execute("SELECT directive FROM ojs_worker WHERE id = %s", [worker_id])
            found = cursor.fetchone()
        return None if found is None else str(found[0])

    def ago(self, seconds: float) -> str:
        return f"{_NOW} - INTERVAL {round(seconds * 1_000_000)} MICROSECOND"

    def ids(self, keys: Collection[UUID]) -> list[str]:
        # The driver writes the list into the statement, and an empty list would be no SQL.
        return [str(key) for key in keys] or [_NO_ID]

    def texts(self, values: Collection[str]) -> list[str]:
        return sorted(values) or [""]

    def uuid(self, value: Any) -> UUID:
        return value if isinstance(value, UUID) else UUID(value)

    def time(self, value: Any) -> datetime | None:
        # An expression may come as text.
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return cast("datetime", moment).replace(tzinfo=UTC) if value is not None else None

    def notice_dead_server(self, connection: BaseDatabaseWrapper) -> None:
        # The driver has no options for keepalive, and would wait for up to two hours.
        number = self.descriptor(connection)
        if number is None:
            return
        with socket.socket(fileno=os.dup(number)) as link:
            if link.family in (socket.AF_INET, socket.AF_INET6):
                for name, value in _TCP_OPTIONS.items():
                    if hasattr(socket, name):
                        link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def descriptor(self, connection: BaseDatabaseWrapper) -> int | None:
        try:
            # PyMySQL does not show its socket.
            return int(connection.connection.fileno())
        except Exception:  # Closed: an error of the driver.
            return None

    def session_number(self, connection: BaseDatabaseWrapper) -> int:
        try:
            return int(connection.connection.thread_id())
        except Exception:  # As above.
            return 0

    def executes(
        self, connection: BaseDatabaseWrapper, numbers: Collection[int]
    ) -> dict[int, bool] | None:
        values = {"numbers": json.dumps(list(numbers))}
        return {number: bool(busy) for number, busy in self._rows(connection, "executes", values)}

    def client_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in _CLIENT_OPTIONS.items() if name not in options}

    def check(self, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        is_utc = bool(self._rows(connection, "is_utc")[0][0])
        settings = dict(self._rows(connection, "settings"))
        grants = [str(grant) for (grant,) in self._rows(connection, "grants")]
        may_close_tables = any(map(_CLOSES_TABLES.match, grants))
        return problems(connection, settings, is_utc=is_utc, may_close_tables=may_close_tables)


def _items(text: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", json.loads_stored(text))


def _is_kept(options: str) -> bool:
    """Say whether a job that has spent its attempts becomes a dead letter."""
    found = cast("dict[str, Any]", json.loads_stored(options)).get("retry") or {}
    return str(found.get("on_exhaustion", "dead_letter")) == "dead_letter"

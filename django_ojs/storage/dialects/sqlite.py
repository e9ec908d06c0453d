"""SQLite 3.38 and later, for development, tests and small sites.

There is one writer at a time, and the write lock is the only lock.
"""

import re
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from django.core.checks import CheckMessage, Error, Warning
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope
from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.expressions import as_json
from django_ojs.storage.dialects.job_row import NewRow, new_rows, rows_of
from django_ojs.storage.dialects.rows import ClaimRequest, Difference, Floor
from django_ojs.storage.dialects.server import QueryLimit
from django_ojs.storage.dialects.sql_files import load, load_all, schema_files

#: Django stores times in this form: text, in UTC.
_NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"

_SQL = load_all(
    "sqlite",
    now=_NOW,
    deadline_when_started=load("sqlite", "deadline_when_started"),
    dead_letter="coalesce(options ->> '$.retry.on_exhaustion', 'dead_letter') = 'dead_letter'",
)
#: insert_jobs.sql, by whether it stores jobs only if no queue has a bound.
_INSERT_JOBS = {
    True: _SQL["insert_jobs"].format(room=_SQL["no_bound"]),
    False: _SQL["insert_jobs"].format(room="true"),
}

_OLDEST_SUPPORTED = (3, 38, 0)
#: Transactions take the write lock at their start, wait for it, and do not stop readers.
_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
#: Instructions of SQLite's virtual machine between two checks of the clock.
_INSTRUCTIONS = 20_000


def _next_millisecond() -> str:
    # The time is later than those of jobs enqueued within this millisecond; three more digits order
    # the jobs of a batch.
    now = timezone.now().replace(tzinfo=None) + timedelta(milliseconds=1)
    return now.isoformat(" ", "milliseconds")


class SQLite(Dialect):
    """SQLite through the standard library."""

    sql = _SQL
    now = _NOW
    name = "sqlite"
    schema = schema_files(name, "count_triggers")
    after_flush = ("DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",)
    reasons = re.compile(
        "unable to open database file|attempt to write a readonly database|database is locked",
        re.IGNORECASE,
    )
    test_clock = "django_ojs.testing.clock.sqlite_clock"
    binary_collation = "BINARY"
    is_server = False
    create_index = "CREATE INDEX"
    can_notify = False
    has_one_writer = True
    keeps_subquery_order = False

    def insert_jobs(
        self,
        connection: BaseDatabaseWrapper,
        envelopes: Sequence[Envelope],
        *,
        generated_ids: bool,
        only_if_admitted: bool,
        unless_held: bool = False,
    ) -> Sequence[NewRow] | None:
        if unless_held:  # There is one writer, and a query takes no round trip.
            return None
        with connection.cursor() as cursor:
            # SQLite's clock has milliseconds, and jobs pushed within one millisecond, such as a
            # batch, must keep their order.
            now = timezone.now().replace(tzinfo=None)
            rows = rows_of(envelopes)
            for n, row in enumerate(rows):
                row["now"] = (now + timedelta(microseconds=n)).isoformat(" ", "microseconds")
            cursor.execute(_INSERT_JOBS[only_if_admitted], {"rows": json.dumps(rows)})
            found = cursor.fetchall()
        if only_if_admitted and not found:
            return None
        stored = [
            (self.uuid(key), state, *cast("Any", [*map(self.time, times), size]))
            for key, state, size, *times in found
        ]
        return new_rows(envelopes, stored)

    def claim(
        self,
        connection: BaseDatabaseWrapper,
        request: ClaimRequest,
        floor: Floor | None = None,
    ) -> list[tuple[Any, ...]] | None:
        found = super().claim(connection, request, floor)
        # SQLite's UPDATE returns only changed rows, so another statement looks for rules.
        if not found:
            values = {"queue": request.queue, "applied": request.applied}
            return None if self._rows(connection, "has_more_rules", values) else []
        return found

    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        self.begin_write(connection)
        return ""

    def reschedule(self, connection: BaseDatabaseWrapper, jobs: Mapping[UUID, datetime]) -> int:
        given = [
            {"id": key.hex, "due_at": f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"}
            for key, at in jobs.items()
        ]
        return len(self._rows(connection, "reschedule", {"jobs": json.dumps(given)}))

    def promote(
        self, connection: BaseDatabaseWrapper, limit: int, queues: Sequence[str] | None = None
    ) -> list[tuple[UUID, str, str]]:
        if connection.in_atomic_block:
            # A transaction that reads before it writes may fail where one that writes first waits.
            self.begin_write(connection)
        if queues is None:
            return self._promote(connection, self._rows(connection, "due_jobs", {"limit": limit}))
        found: list[tuple[UUID, str, str]] = []
        for queue in queues:
            values = {"queue": queue, "limit": limit}
            found += self._promote(connection, self._rows(connection, "due_jobs_of_queue", values))
        return found

    def _promote(
        self, connection: BaseDatabaseWrapper, due: Sequence[tuple[Any, str]]
    ) -> list[tuple[UUID, str, str]]:
        before = dict(due)
        if not before:
            return []
        values = {"keys": json.dumps(list(before)), "now": _next_millisecond()}
        rows = self._rows(connection, "promote", values)
        return [(self.uuid(key), queue, before[key]) for key, queue in rows]

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        """Do nothing, because triggers write the counts themselves."""
        return 0

    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        wrong = self.read(connection, Difference)
        for each in wrong:
            values = [each.queue, each.state, each.actual, each.bytes]
            self._run(connection, "repair_count", values)
        return wrong

    @contextmanager
    def query_timeout(
        self, connection: BaseDatabaseWrapper, seconds: float
    ) -> Iterator[QueryLimit]:
        # The block must raise here if the database cannot be used, as it does on a server.
        connection.ensure_connection()

        @contextmanager
        def limit() -> Iterator[None]:
            connection.ensure_connection()
            until = time.monotonic() + seconds
            raw: Any = connection.connection
            raw.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
            try:
                yield
            finally:
                raw.set_progress_handler(None, 0)

        yield limit

    def check(self, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        problems: list[CheckMessage] = []
        if sqlite3.sqlite_version_info < _OLDEST_SUPPORTED:
            problems.append(
                Error(
                    f"django_ojs needs SQLite 3.38; Python here has {sqlite3.sqlite_version}.",
                    id="django_ojs.E004",
                )
            )
        if connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
            problems.append(
                Warning(
                    f"The SQLite database {connection.alias!r} opens transactions in deferred "
                    "mode: one that reads and then writes fails with 'database is locked' when "
                    "a worker wrote in between.",
                    hint=f"DATABASES[{connection.alias!r}]['OPTIONS'] = {_OPTIONS!r}",
                    id="django_ojs.W001",
                )
            )
        if (zone := connection.settings_dict.get("TIME_ZONE")) not in (None, "UTC"):
            problems.append(
                Error(
                    f"The SQLite database {connection.alias!r} has TIME_ZONE {zone!r}: Django "
                    "would store times in this zone, and SQLite's clock is in UTC, so jobs would "
                    "be due, and leases end, hours too early or too late.",
                    hint=f"Leave out DATABASES[{connection.alias!r}]['TIME_ZONE'], and convert "
                    "the times that are stored already. What users see is the setting TIME_ZONE.",
                    id="django_ojs.E011",
                )
            )
        return problems

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        self._run(connection, "begin_write")

    def is_transaction_open(self, connection: BaseDatabaseWrapper) -> bool:
        link: Any = connection.connection
        return bool(link.in_transaction)

    def lock_unique_keys(
        self, connection: BaseDatabaseWrapper, keys: Sequence[str], *, wait: bool = True
    ) -> bool | None:
        # The write lock locks every key. A transaction with an old snapshot cannot take it.
        self.begin_write(connection)
        return True

    def lock_subject(
        self, connection: BaseDatabaseWrapper, subject: str, *, wait: bool = True
    ) -> bool:
        self.begin_write(connection)
        return True

    def is_contention_error(self, error: OperationalError) -> bool:
        return "database is locked" in str(error) or "database table is locked" in str(error)

    def is_conflict_error(self, error: BaseException) -> bool:
        # Another connection has written since this transaction has read.
        return getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY_SNAPSHOT"

    def is_unavailable_error(self, error: BaseException) -> bool:
        # An OperationalError of SQLite may also be one of the statement, such as a missing table.
        name = getattr(error.__cause__, "sqlite_errorname", None)
        return name != "SQLITE_ERROR" and super().is_unavailable_error(error)

    def is_timeout_error(self, error: BaseException) -> bool:
        return "interrupted" in str(error)

    def ago(self, seconds: float) -> str:
        return f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '{-seconds:+.6f} seconds')"

    def erase(self, connection: BaseDatabaseWrapper, keys: Collection[UUID]) -> int:
        self._run(connection, "erase_attempts", {"keys": self.ids(keys)})
        return super().erase(connection, keys)

    def ids(self, keys: Collection[UUID]) -> str:
        return as_json(keys)

    def texts(self, values: Collection[str]) -> str:
        return json.dumps(sorted(values))

    def uuid(self, value: Any) -> UUID:
        return UUID(value)

    def time(self, value: Any) -> datetime | None:
        # Django's converters read the columns that are declared as times; an expression, such as
        # `now`, has no declared type and comes as text.
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return cast("datetime", moment).replace(tzinfo=UTC) if value is not None else None

    def clock(self, connection: BaseDatabaseWrapper) -> datetime:
        # SQLite uses the clock of this process.
        return timezone.now()

"""MySQL 8.4 and later, which is being built: docs/how-to/use-mariadb.md says what was run.

What differs from MariaDB: no RETURNING, no type of UUIDs, and no WAIT. Django stores a UUID as 32
characters there.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage.dialects.job_row import JobRow
from django_ojs.storage.dialects.mariadb import PARTS, MariaDB, repeated
from django_ojs.storage.dialects.row_locks import WAIT
from django_ojs.storage.dialects.sql_files import load, load_all

T = TypeVar("T")

_COLLATION: Final = "utf8mb4_0900_bin"
_PARTS: Final = PARTS | {
    "session_isolation": "@@transaction_isolation",
    # As text: a JSON value is equal to no text.
    "rate_limit": "CAST(JSON_EXTRACT(options, '$.rate_limit') AS char)",
    "collation": _COLLATION,
}
#: What MySQL has other words for is in a folder of its own.
_SQL: Final = (
    load_all("mariadb", **_PARTS)
    | {name: load("common", name) for name in ("busiest_tenants", "tenant_depth")}
    | load_all("mysql", **_PARTS)
)


class MySQL(MariaDB):
    """MySQL through mysqlclient."""

    sql = _SQL
    backend = "mysql"
    count_rows = _SQL["count_rows"]
    binary_collation = _COLLATION
    key_sql = f"CAST(%s AS char(32)) COLLATE {_COLLATION}"

    def is_cluster_node(self, connection: BaseDatabaseWrapper) -> bool:
        """Group replication was not tried: no node is taken for one of a cluster."""
        return False

    def _key(self, text: T) -> T:
        return cast("T", text.replace("-", "")) if isinstance(text, str) else text

    def _stored(
        self, connection: BaseDatabaseWrapper, values: list[Any], rows: str, jobs: Sequence[JobRow]
    ) -> list[Any]:
        keys = [self._key(row["id"]) for row in jobs]
        # One transaction, so that no worker takes a job before it is read.
        with self._whole(connection):
            self._run(connection, "insert_jobs", values, rows=rows)
            stored = {row[0]: row for row in self._rows(connection, "stored_jobs", {"keys": keys})}
        return [stored[key] for key in keys]

    def _lock_slots(
        self, connection: BaseDatabaseWrapper, slots: Iterable[int], how: str = ""
    ) -> dict[int, bool]:
        if not how.startswith(WAIT):
            return super()._lock_slots(connection, slots, how)
        with self.lock_timeout(connection, 1000 * int(how.removeprefix(WAIT))):
            return super()._lock_slots(connection, slots)

    def oldest_by_queue(
        self, connection: BaseDatabaseWrapper, queues: Collection[str]
    ) -> list[tuple[str, datetime | None]]:
        names = ", ".join(["ROW(%s)"] * len(queues))
        rows = self._rows(connection, "oldest_by_queue", list(queues), names=names)
        return [(queue, self.time(since)) for queue, since in rows]

    @repeated
    def save_checkpoint(
        self, connection: BaseDatabaseWrapper, key: Any, run: int, state: str
    ) -> tuple[int, datetime] | None:
        job_id = self._key(str(key))
        with self._whole(connection):
            values = {"job_id": job_id, "run": run, "state": state}
            self._run(connection, "save_checkpoint", values)
            rows = self._rows(connection, "saved_checkpoint", {"job_id": job_id})
        stored_run, sequence, created_at = rows[0]
        if stored_run != run:
            return None
        return sequence, cast("datetime", self.time(created_at))

"""The ceiling: the same rows, written and processed by hand-written SQL on Django's connection.

The table has the columns, indexes and constraints of the jobs' own, and nothing else: no counts
are kept, no run is fenced by its worker, and dead workers are not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import Command, Contender, Work, truncate

_COLUMNS = """id, args, type, queue, state, priority, meta, options, attempt, max_attempts,
              returned, run, created_at, enqueued_at, dead_letter"""
_DEFAULTS = """'bench.noop', 'default', 'available', 0, '{}', '{}', 0, 3,
               0, 0, statement_timestamp(), statement_timestamp(), false"""
INSERT = f"INSERT INTO bare_job ({_COLUMNS}) VALUES (%s, %s, {_DEFAULTS})"
CREATE = "CREATE TABLE IF NOT EXISTS bare_job (LIKE ojs_job INCLUDING ALL)"
_BATCH = f"""
INSERT INTO bare_job ({_COLUMNS})
SELECT r.id, r.args, {_DEFAULTS} FROM unnest(%s::uuid[], %s::jsonb[]) AS r (id, args)
"""
_CLAIM = """
UPDATE bare_job SET state = 'active', attempt = attempt + 1, run = run + 1, worker_id = 'bare',
       started_at = statement_timestamp(),
       lease_until = statement_timestamp() + interval '30 minutes'
WHERE id IN (SELECT id FROM bare_job WHERE queue = 'default' AND state = 'available'
             AND hold = 0
             ORDER BY priority DESC, enqueued_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id, args
"""
_FINISH = """
UPDATE bare_job SET state = 'completed', finished_at = statement_timestamp(), lease_until = NULL
WHERE id = ANY(%s::uuid[])
"""


class BareSQL(Contender):
    """The fastest honest way without a library; its worker takes a hundred jobs at a time."""

    name: ClassVar[str] = "bare SQL"
    drain_jobs: ClassVar[int] = 60_000
    drain_setting: ClassVar[str] = "claim and finish by 100"
    table: ClassVar[str] = "bare_job"

    def django_settings(self) -> dict[str, Any]:
        """Install the tables that are copied."""
        return {"INSTALLED_APPS": ["django_ojs"]}

    def commands(self, work: Work) -> list[Command]:
        """Return a loop for each process."""
        return [["-m", "tests.benchmarks.contenders.bare"] for _ in range(work.processes)]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        where = "state IN ('available', 'active')"
        return int(run(f"SELECT count(*) FROM {self.table} WHERE {where}")[0][0])

    def setup(self) -> None:
        """Copy the table of the jobs, without its triggers."""
        super().setup()
        self._run(CREATE)

    def reset(self) -> None:
        """Empty the table."""
        truncate(self.table)

    def enqueue(self, number: int) -> None:
        """Insert a row; the id is the caller's, as everywhere."""
        from django_ojs.spec.ids import uuid7

        statement = f"INSERT INTO {self.table} ({_COLUMNS}) VALUES (%s, %s, {_DEFAULTS})"
        self._run(statement, [uuid7(), f"[{number}]"])

    def enqueue_batch(self, numbers: Sequence[int]) -> None:
        """Insert rows by one statement."""
        from django_ojs.spec.ids import uuid7

        values = [[uuid7() for _ in numbers], [f"[{number}]" for number in numbers]]
        self._run(_BATCH, values)

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(statement, values)


class CountedSQL(BareSQL):
    """The same INSERT into the jobs' own table, whose triggers keep the counts."""

    name: ClassVar[str] = "bare SQL, counted"
    has_batches: ClassVar[bool] = False
    table: ClassVar[str] = "ojs_job"


def work(size: int = 100) -> None:
    """Claim and finish by `size`, until stopped."""
    import time

    import django

    django.setup()
    from django.db import connection

    from tests.benchmarks.starts import record_start

    with connection.cursor() as cursor:
        while True:
            cursor.execute(_CLAIM, [size])
            claimed = cursor.fetchall()
            for _, args in claimed:
                record_start(args[0] if isinstance(args, list) else int(args[1:-1]))
            if claimed:
                cursor.execute(_FINISH, [[key for key, _ in claimed]])
            else:
                time.sleep(0.05)


if __name__ == "__main__":
    work()

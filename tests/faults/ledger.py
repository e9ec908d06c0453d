"""What the handlers did, written so that it outlives them.

The table is not of the jobs' database but of the alias `other`, whose connection is in no
transaction of a handler: each line commits at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from django.db import connections
from django.db.backends.utils import CursorWrapper

import django_ojs as ojs
from tests.faults.checker import Start

ALIAS = "other"
_COLUMNS = "job, attempt, run, worker, pid, event, at"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the ledger; `at` is the machine's monotonic clock, in seconds."""

    job: str
    attempt: int
    run: int
    worker: str
    pid: int
    event: str
    at: float


def note(ctx: ojs.JobContext, event: str) -> None:
    """Write a line (called by handlers)."""
    at = time.monotonic()
    job = ctx.job
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(
            f"INSERT INTO fault_ledger ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [
                str(job.id),
                job.attempt,
                job.run,
                job.worker_id,
                os.getpid(),
                event,
                at,
            ],
        )


def create() -> None:
    """Make the table."""
    with _cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS fault_ledger")
        cursor.execute(
            "CREATE TABLE fault_ledger (job text, attempt int, run int, worker text, pid int, "
            "event text, at double precision)"
        )


def drop() -> None:
    """Remove the table."""
    with _cursor() as cursor:
        cursor.execute("DROP TABLE fault_ledger")


def lines(event: str | None = None) -> Iterator[Line]:
    """Return the lines of an event, or all, in the order of time."""
    where, values = ("", []) if event is None else ("WHERE event = %s", [event])
    with _cursor() as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM fault_ledger {where} ORDER BY at", values)
        return iter([Line(*row) for row in cursor.fetchall()])


def starts() -> list[Start]:
    """Return the runs that began."""
    return [
        Start(job=line.job, attempt=line.attempt, run=line.run, pid=line.pid, at=line.at)
        for line in lines("start")
    ]


def done() -> set[str]:
    """Return the jobs whose handler came to its end."""
    return {line.job for line in lines("done")}


def count(event: str) -> int:
    """Return how many lines of an event there are."""
    with _cursor() as cursor:
        cursor.execute("SELECT count(*) FROM fault_ledger WHERE event = %s", [event])
        return int(cursor.fetchone()[0])


def starts_of(pids: Collection[int], after: float) -> list[float]:
    """Return when these processes began a run after a moment, in the order of time."""
    with _cursor() as cursor:
        cursor.execute(
            "SELECT at FROM fault_ledger WHERE event = 'start' AND at > %s AND pid = ANY(%s) "
            "ORDER BY at",
            [after, list(pids)],
        )
        return [at for (at,) in cursor.fetchall()]


def _cursor() -> CursorWrapper:
    return connections[ALIAS].cursor()

"""Absurd: durable tasks whose logic is in functions of PostgreSQL.

Its schema is a file of its release, which its package does not have. `OJS_BENCH_ABSURD_SQL` says
where it is; without it, Absurd is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import AT, Command, Durable, Work, steps_of
from tests.benchmarks.server import NAME_VARIABLE, URL_VARIABLE

QUEUE = "bench"
SCHEMA_VARIABLE = "OJS_BENCH_ABSURD_SQL"
#: Of a worker: clients with a connection each, runs at a time of each, seconds between two looks.
SETTING_VARIABLE = "OJS_BENCH_ABSURD"


class Absurd(Durable):
    """Its worker with eight threads, which share its one connection; a look each 20 ms."""

    name: ClassVar[str] = "Absurd"
    needs: ClassVar[tuple[str, ...]] = ("absurd_sdk",)
    joins_transactions: ClassVar[bool] = False
    has_batches: ClassVar[bool] = False
    drain_jobs: ClassVar[int] = 600
    steps_setting: ClassVar[str] = "1 connection, polls each 20 ms"
    worker: ClassVar[str] = f"1 {AT} 0.02"

    @classmethod
    def missing(cls) -> list[str]:
        """Return what is not there: the package, and the schema."""
        schema = [] if os.environ.get(SCHEMA_VARIABLE) else [SCHEMA_VARIABLE]
        return super().missing() + schema

    def environment(self, work: Work) -> dict[str, str]:
        """Pass the setting."""
        return {SETTING_VARIABLE: self.worker}

    def commands(self, work: Work) -> list[Command]:
        """Return a worker for each process."""
        worker = ["-m", "tests.benchmarks.contenders.peers.tasks_absurd"]
        return [[*worker, str(number)] for number in range(work.processes)]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        where = "state NOT IN ('completed', 'failed', 'cancelled')"
        return int(run(f"SELECT count(*) FROM absurd.t_{QUEUE} WHERE {where}")[0][0])

    def waiting(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what it keeps of waits."""
        return int(run(f"SELECT count(*) FROM absurd.w_{QUEUE}")[0][0])

    def setup(self) -> None:
        """Make its tables and its queue."""
        from tests.benchmarks.contenders.peers.connections import own

        own().execute(Path(os.environ[SCHEMA_VARIABLE]).read_text())
        self._app.create_queue()

    def reset(self) -> None:
        """Empty its tables."""
        from tests.benchmarks.contenders.peers.connections import own

        tables = ", ".join(f"absurd.{letter}_{QUEUE}" for letter in "trcew")
        own().execute(f"TRUNCATE {tables} CASCADE")

    def enqueue(self, number: int) -> None:
        """Start a run of one step."""
        self.start_run(number)

    def start_run(self, number: int) -> None:
        """Spawn a task."""
        self._app.spawn("run", {"number": number, "steps": 1})

    def fill(self, numbers: Sequence[int], work: Work) -> None:
        """Spawn tasks, one by one: it has no call for many."""
        steps = steps_of(work.kind) or 0
        for number in numbers:
            self._app.spawn("run" if steps else "wait", {"number": number, "steps": steps})

    def signal(self, number: int) -> None:
        """Emit an event."""
        self._app.emit_event(f"go:{number}", True)

    @cached_property
    def _app(self) -> Any:
        return app()


class AbsurdOfEight(Absurd):
    """Eight of its workers in threads of one process, each with a connection and one run."""

    name: ClassVar[str] = "Absurd, 8 workers"
    steps_setting: ClassVar[str] = "8 connections"
    worker: ClassVar[str] = f"{AT} 1 0.25"


def app() -> Any:
    """Return a client that knows the tasks."""
    from absurd_sdk import Absurd as Client
    from psycopg.conninfo import make_conninfo

    from tests.benchmarks.contenders.peers import tasks_absurd

    found = Client(
        make_conninfo(os.environ[URL_VARIABLE], dbname=os.environ[NAME_VARIABLE]), queue_name=QUEUE
    )
    for task in (tasks_absurd.run, tasks_absurd.wait):
        found.register_task(task.__name__)(task)
    return found

"""DBOS Transact for Python: durable workflows in an ordinary process, on psycopg and SQLAlchemy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import AT, Command, Durable, Work
from tests.benchmarks.server import NAME_VARIABLE, parameters

QUEUE = "bench"
#: Seconds between two looks at the queue. A look takes as many runs as slots are free: with the
#: default of one second, eight slots would start eight runs a second.
POLL_SECONDS = 0.01


class DBOSTransact(Durable):
    """Its queue is polled as often as helps it, and has the limit of runs at a time."""

    name: ClassVar[str] = "DBOS"
    needs: ClassVar[tuple[str, ...]] = ("dbos",)
    joins_transactions: ClassVar[bool] = False
    has_batches: ClassVar[bool] = False
    drain_jobs: ClassVar[int] = 600
    steps_setting: ClassVar[str] = "polls each 10 ms"
    _ids = "run"

    def commands(self, work: Work) -> list[Command]:
        """Return a worker for each process, with an id of its own."""
        module = "tests.benchmarks.contenders.peers.tasks_dbos"
        return [["-m", module, str(number)] for number in range(work.processes)]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        where = "status IN ('ENQUEUED', 'PENDING', 'DELAYED')"
        return int(run(f"SELECT count(*) FROM dbos.workflow_status WHERE {where}")[0][0])

    def waiting(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count runs that have stored the deadline of their wait."""
        steps = "SELECT workflow_uuid FROM dbos.operation_outputs"
        steps += " WHERE function_name = 'DBOS.sleep'"
        where = f"status = 'PENDING' AND workflow_uuid IN ({steps})"
        return int(run(f"SELECT count(*) FROM dbos.workflow_status WHERE {where}")[0][0])

    def setup(self) -> None:
        """Make its tables and its queue: a worker looks for new queues only once a second."""
        from dbos import DBOS

        DBOS(config=config(0))
        DBOS.launch()
        register_queue()
        DBOS.destroy()

    def reset(self) -> None:
        """Empty its tables. What it keeps of an id elsewhere is for none of the next runs."""
        self._ids = f"run-{time.time_ns()}"
        from tests.benchmarks.contenders.peers.connections import own

        own().execute("TRUNCATE dbos.workflow_status, dbos.notifications CASCADE")

    def enqueue(self, number: int) -> None:
        """Start a run of one step."""
        self.start_run(number)

    def start_run(self, number: int) -> None:
        """Put a run into its queue."""
        self._start("run", number, 1)

    def fill(self, numbers: Sequence[int], work: Work) -> None:
        """Put runs into its queue, one by one: it has no call for many."""
        from tests.benchmarks.contenders.base import steps_of

        steps = steps_of(work.kind) or 0
        for number in numbers:
            self._start("run" if steps else "wait", number, steps)

    def signal(self, number: int) -> None:
        """Send a message to the run."""
        self._client.send(f"{self._ids}-{number}", True, "go")

    def _start(self, name: str, number: int, steps: int) -> None:
        workflow = {"workflow_name": name, "workflow_id": f"{self._ids}-{number}"}
        self._client.enqueue({"queue_name": QUEUE, **workflow}, number, steps)

    @cached_property
    def _client(self) -> Any:
        from dbos import DBOSClient

        return DBOSClient(system_database_url=url(), application_name="bench")


def url() -> str:
    """Return the address of the database, as SQLAlchemy reads it."""
    known = parameters(os.environ[NAME_VARIABLE])
    host, port = known.get("host", ""), known.get("port", 5432)
    user = known.get("user", "postgres")
    password = f":{known['password']}" if known.get("password") else ""
    if str(host).startswith("/"):
        return f"postgresql://{user}{password}@/{known['dbname']}?host={host}&port={port}"
    return f"postgresql://{user}{password}@{host}:{port}/{known['dbname']}"


def config(number: int) -> Any:
    """Return the configuration of a process."""
    return {
        "name": "bench",
        "system_database_url": url(),
        "executor_id": f"worker-{number}",
        "application_version": "1",
        "log_level": "WARNING",
    }


def register_queue() -> None:
    """Declare the queue of a process."""
    from dbos import DBOS

    DBOS.register_queue(QUEUE, worker_concurrency=AT, polling_interval_sec=POLL_SECONDS)

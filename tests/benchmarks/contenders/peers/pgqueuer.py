"""pgqueuer: asyncio and asyncpg, no Django; the fastest queue in Python on PostgreSQL."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import BATCH, Command, Contender, Work
from tests.benchmarks.server import NAME_VARIABLE, parameters

#: How many jobs its worker takes at a time.
SIZE_VARIABLE = "OJS_BENCH_PGQUEUER_BATCH"


class PgQueuer(Contender):
    """On uvloop, as its own command does; a hundred jobs at a time is its best."""

    name: ClassVar[str] = "pgqueuer"
    needs: ClassVar[tuple[str, ...]] = ("pgqueuer", "asyncpg", "uvloop")
    joins_transactions: ClassVar[bool] = False
    drain_jobs: ClassVar[int] = 36_000
    drain_setting: ClassVar[str] = "async, batch 100"
    pickup_setting: ClassVar[str] = "async, batch 10 (default)"

    def environment(self, work: Work) -> dict[str, str]:
        """Pass the size of the batch."""
        size = "10" if work.setting == self.pickup_setting else "100"
        return {SIZE_VARIABLE: size}

    def commands(self, work: Work) -> list[Command]:
        """Return a worker for each process."""
        worker = ["-m", "tests.benchmarks.contenders.peers.tasks_pgqueuer"]
        return [worker for _ in range(work.processes)]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended: what has, moves to its log."""
        return int(run("SELECT count(*) FROM pgqueuer")[0][0])

    def setup(self) -> None:
        """Make its tables."""
        self._wait(self._queries.install())

    def reset(self) -> None:
        """Empty its tables."""
        statement = "TRUNCATE pgqueuer, pgqueuer_log RESTART IDENTITY"
        self._wait(self._connection.execute(statement))

    def enqueue(self, number: int) -> None:
        """Enqueue one."""
        self._wait(self._enqueue(number))

    def singles(self, numbers: Sequence[int]) -> float:
        """Enqueue one after the other, without leaving the loop."""

        async def go() -> float:
            began = time.perf_counter()
            for number in numbers:
                await self._enqueue(number)
            return time.perf_counter() - began

        return float(self._wait(go()))

    def batches(self, numbers: Sequence[int], size: int = BATCH) -> float:
        """Enqueue many by one call."""

        async def go() -> float:
            began = time.perf_counter()
            for start in range(0, len(numbers), size):
                part = numbers[start : start + size]
                payloads = [b"%d" % number for number in part]
                await self._queries.enqueue(["noop"] * len(part), payloads, [0] * len(part))
            return time.perf_counter() - began

        return float(self._wait(go()))

    def committed_at(self, number: int) -> float:
        """Enqueue one; it is committed when the call returns."""
        self.enqueue(number)
        return time.time()

    async def _enqueue(self, number: int) -> None:
        await self._queries.enqueue("noop", b"%d" % number)

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    @cached_property
    def _runner(self) -> Any:
        import asyncio

        import uvloop

        return asyncio.Runner(loop_factory=uvloop.new_event_loop)

    @cached_property
    def _connection(self) -> Any:
        return self._wait(connect())

    @cached_property
    def _queries(self) -> Any:
        from pgqueuer.queries import Queries

        return Queries.from_asyncpg_connection(self._connection)


async def connect() -> Any:
    """Open its connection."""
    import asyncpg

    known = parameters(os.environ[NAME_VARIABLE])
    return await asyncpg.connect(
        host=known.get("host"),
        port=known.get("port"),
        user=known.get("user"),
        password=known.get("password"),
        database=known["dbname"],
    )

"""The worker of pgqueuer."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pgqueuer
import uvloop

from tests.benchmarks.contenders.peers.pgqueuer import SIZE_VARIABLE, connect
from tests.benchmarks.starts import record_start


@asynccontextmanager
async def manager() -> AsyncIterator[Any]:
    """Make its queue manager, with the handler."""
    connection = await connect()
    queue = pgqueuer.PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:
        record_start(int(job.payload))

    yield queue
    await connection.close()


if __name__ == "__main__":
    uvloop.run(pgqueuer.run(manager, batch_size=int(os.environ[SIZE_VARIABLE])))

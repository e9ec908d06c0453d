"""The worker of DBOS."""

from __future__ import annotations

import sys
import threading

from dbos import DBOS

from tests.benchmarks.contenders.peers.dbos import config, register_queue
from tests.benchmarks.starts import record_start

_DAY = 86_400


@DBOS.step()
def noop(number: int) -> int:
    """Do nothing."""
    return number


@DBOS.workflow()
def run(number: int, steps: int) -> None:
    """Take steps."""
    record_start(number)
    for step in range(steps):
        noop(step)


@DBOS.workflow()
def wait(number: int, steps: int) -> None:
    """Wait for a message."""
    DBOS.recv("go", timeout_seconds=_DAY)
    record_start(number)


if __name__ == "__main__":
    DBOS(config=config(int(sys.argv[1])))
    DBOS.launch()
    register_queue()
    threading.Event().wait()

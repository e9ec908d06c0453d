"""The worker of Absurd."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from tests.benchmarks.starts import record_start

#: Seconds for which a worker keeps a run, its default.
_LEASE = 120


def run(params: Any, context: Any) -> None:
    """Take steps."""
    record_start(params["number"])
    for step in range(params["steps"]):
        context.step(f"noop-{step}", lambda step=step: step)


def wait(params: Any, context: Any) -> None:
    """Wait for an event."""
    context.await_event(f"go:{params['number']}")
    record_start(params["number"])


def _serve(worker_id: str, at: int, poll: float) -> None:
    from tests.benchmarks.contenders.peers.absurd import app

    app().start_worker(
        worker_id=worker_id, claim_timeout=_LEASE, concurrency=at, poll_interval=poll
    )


def main() -> None:
    """Run a worker, or several in threads."""
    from tests.benchmarks.contenders.peers.absurd import SETTING_VARIABLE

    clients, at, poll = os.environ[SETTING_VARIABLE].split()
    threads = [
        threading.Thread(target=_serve, args=(f"{sys.argv[1]}-{n}", int(at), float(poll)))
        for n in range(int(clients))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

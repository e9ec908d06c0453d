"""Run `manage.py ojs_worker` in separate processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from example_project.shop.jobs import COLLECTIONS, DOCUMENTS, IMPORTS, LABELS, MAIL, PAYMENTS

#: The queues of the shop, in the order in which a worker takes their jobs: what is nearly done
#: first, and drawing invoices, which takes longest, when there is nothing else to do. Tasks of
#: `django.tasks` are in the queue `default`.
QUEUES = ("default", MAIL, COLLECTIONS, LABELS, PAYMENTS, IMPORTS, DOCUMENTS)
_MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
#: Longer than a worker's grace period: a process that has not ended by then is killed.
_STOP_TIMEOUT_SECONDS = 40


class Workers:
    """Some worker processes, started on entry and stopped on exit."""

    def __init__(
        self,
        count: int,
        *,
        logs: Path,
        queues: Sequence[str] = QUEUES,
        name: str = "worker",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Each of the `count` processes writes its log, named after `name`, into `logs`.

        `variables` are added to its environment.
        """
        self._count = count
        self._variables = dict(variables or {})
        self._logs = logs
        self._queues = queues
        self._name = name
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the processes."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for number in range(1, self._count + 1):
            log = self._logs / f"{self._name}-{number}.log"
            self._processes.append(_start(log, self._queues, self._variables))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the processes (SIGTERM) and wait for them."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """Kill the processes with their children (SIGKILL)."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def sessions(self) -> frozenset[int]:
        """The sessions of the processes: a worker's children belong to it."""
        return frozenset(process.pid for process in self._processes)

    @property
    def running(self) -> bool:
        """Whether at least one process has not ended."""
        return any(process.poll() is None for process in self._processes)


def stop_on_sigterm() -> None:
    """Make SIGTERM unwind the stack, so that every worker is stopped."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _start(
    log: Path, queues: Sequence[str], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(_MANAGE), "ojs_worker", "--processes", "1", "--threads", "8"]
    command += ["--queues", ",".join(queues)]
    with log.open("wb") as out:
        # A new session identifies the processes of this command. Ctrl-C does not reach it.
        return subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OJS_DEMO_DEBUG": "0", **variables},
            start_new_session=True,
        )

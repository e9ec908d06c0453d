"""Real workers: `manage.py ojs_worker` as a process tree that a test can signal and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db import connection

from django_ojs.models import Job, Worker
from tests import fork_server
from tests.worker.waiting import BOUND, eventually

ROOT = Path(__file__).resolve().parents[2]


def of_session(session: int) -> Iterator[int]:
    """Yield the processes of a session that live; what waits for burial does not."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True
        )
        for pid, state in (line.split() for line in listing.stdout.splitlines()):
            with suppress(OSError):
                if not state.startswith("Z") and os.getsid(int(pid)) == session:
                    yield int(pid)
        return
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with suppress(OSError):
                # Reading a file of each process would take most of the time of a test that waits.
                if os.getsid(int(pid)) == session:
                    # After the name, which may hold anything, stands the state.
                    stat = Path("/proc", pid, "stat").read_text()
                    if stat.rpartition(")")[2].split()[0] not in "ZX":
                        yield int(pid)


class Tree:
    """A supervisor and its children. They are in a session of their own, by which all are found."""

    def __init__(
        self,
        environment: Mapping[str, str],
        output: Path,
        *arguments: str,
        ojs: Mapping[str, Any] | None = None,
        program: tuple[str, ...] = ("manage.py", "ojs_worker"),
        **variables: str,
    ) -> None:
        self.output = output
        #: Of its sessions, for the server.
        self.name = f"ojs-tree-{uuid4().hex}"
        with output.open("wb") as log:
            self.process = fork_server.popen(
                [sys.executable, *program, *arguments],
                cwd=ROOT,
                env={
                    **environment,
                    "PGAPPNAME": self.name,
                    "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
                    "OJS_TEST_OJS": json.dumps(
                        {"POLL_INTERVAL": 0.1, "HEARTBEAT_INTERVAL": 0.3, **(ojs or {})}
                    ),
                    **variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self.output.read_text(errors="replace")

    def members(self) -> list[int]:
        """Return the processes of the tree that live, orphans included."""
        return list(of_session(self.pid))

    def children(self) -> list[int]:
        """Return the worker processes that live."""
        return [pid for pid in self.members() if pid != self.pid]

    def workers(self) -> list[Worker]:
        """Return the rows of its worker processes that live and have sent a beat."""
        return list(Worker.objects.filter(pid__in=self.children()))

    def ready(self, processes: int = 1) -> Tree:
        """Wait until its worker processes have sent their first beat."""

        def up() -> bool:
            assert self.process.poll() is None, f"the worker ended:\n{self.log}"
            return len(self.workers()) >= processes

        eventually(up, f"{processes} worker processes are up; they said:\n{self.log}")
        return self

    def child_of(self, job: Job) -> int:
        """Return the process that runs a job."""
        job.refresh_from_db()
        pid = Worker.objects.get(pk=job.worker_id).pid
        assert pid in self.children()
        return pid

    def signal(self, *numbers: signal.Signals) -> None:
        """Send signals to the supervisor, as a process manager does."""
        for number in numbers:
            self.process.send_signal(number)

    def says(self, text: str) -> None:
        """Wait until it has written this."""
        eventually(lambda: text in self.log, f"the worker says {text!r}; it said:\n{self.log}")

    def ends(self, within: float = BOUND) -> int:
        """Wait for the end of the supervisor and of its children, and return its exit code."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end; it said:\n{self.log}") from None
        eventually(lambda: not self.members(), "no process of the tree is left", within=within)
        return code

    def forgotten(self) -> None:
        """Wait until the server has ended what its dead processes had sent.

        A claim may be executed after the process that sent it is dead. In the next test it would
        take a job, for a worker whose row went with the rows of this test.
        """
        if connection.vendor != "postgresql":
            return

        def over() -> bool:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [self.name]
                )
                return cursor.fetchone() == (0,)

        eventually(over, "the sessions of the tree have ended")

    def kill(self) -> None:
        """Kill all of it at once, as a machine that goes down does."""
        # The supervisor first, so that it replaces nobody; and again, for a child it had just made.
        for _ in range(2):
            with suppress(ProcessLookupError):
                if self.process.poll() is None:
                    os.kill(self.pid, signal.SIGKILL)
                    self.process.wait(BOUND)
            for pid in self.children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self.members(), "the whole tree is dead")

"""Real shells: `manage.py shell` as a process that enqueues."""

from __future__ import annotations

import subprocess
import sys

from tests import fork_server
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND

ENQUEUE = """
import django_ojs as ojs
def enqueue(number=1, queue="shell"):
    for _ in range(number):
        ojs.enqueue("test.job", queue=queue)
"""


class Shell:
    """A shell that runs a script, and lives until `ends`."""

    def __init__(self, environment: dict[str, str], script: str) -> None:
        self.process = fork_server.popen(
            [sys.executable, "manage.py", "shell", "--command", ENQUEUE + script],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def lives(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[1]
        return True

    def writes(self, text: str) -> None:
        """Write to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def ends(self) -> str:
        """Let it end, and return what it has written to stderr."""
        errors: str = self.process.communicate(timeout=BOUND)[1]
        assert self.process.returncode == 0, errors
        return errors

"""The Node worker as a process of its own, with its log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from example_project.demo.node import WORKER

HANDLERS = Path(__file__).with_name("node_handlers.mjs")
SECONDS = 180.0
QUEUE = "node"


class Node:
    """A running worker. Its log is read as it comes."""

    def __init__(self, url: str, key: str, **variables: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            ["node", str(WORKER)],
            env={
                **os.environ,
                "OJS_URL": url,
                "OJS_API_KEY": key,
                "OJS_QUEUES": QUEUE,
                "OJS_HANDLERS": str(HANDLERS),
                "OJS_BEAT_MS": "200",
                "OJS_POLL_MS": "100",
                **variables,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def id(self) -> str:
        found: str = self.said("started")["worker_id"]
        return found

    def said(self, message: str, **fields: Any) -> dict[str, Any]:
        """Wait for a line of the log, and return it."""
        wanted = {"message": message, **fields}

        def look() -> dict[str, Any] | None:
            return next((line for line in list(self.lines) if wanted.items() <= line.items()), None)

        found: dict[str, Any] = wait_for(look, f"no line {wanted} in {self.lines}")
        return found

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def close(self) -> None:
        self.process.kill()
        self.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))


def wait_for(look: Any, what: str) -> Any:
    """Look until there is something, and return it."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # Of another process: there is no signal of it to wait on.
    return found

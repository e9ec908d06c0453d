"""A Redis of our own for Celery, with the persistence it has by default."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

SOCKET_VARIABLE = "OJS_BENCH_REDIS_SOCKET"

_START_SECONDS = 10.0
_OPTIONS = ("--port", "0", "--loglevel", "warning", "--appendonly", "no")
_OPTIONS += ("--save", "3600 1 300 100 60 10000")


def installed() -> bool:
    """Whether this machine has a `redis-server`."""
    return shutil.which("redis-server") is not None


class RedisServer:
    """Runs until it is closed; its address is left in the environment."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ojs-bench-redis-"))
        socket = self._folder / "redis.sock"
        self._process = subprocess.Popen(
            ["redis-server", *_OPTIONS, "--unixsocket", str(socket), "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError("redis-server did not start")
            time.sleep(0.02)
        os.environ[SOCKET_VARIABLE] = str(socket)

    def close(self) -> None:
        """Stop it, and remove what it kept."""
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

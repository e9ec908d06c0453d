"""The starts of handlers: when, for which job, in which process."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

#: Where the handlers of a run write; set for every worker.
VARIABLE = "OJS_BENCH_STARTS"

#: What a short piece of real work takes, in seconds.
NAP_VARIABLE = "OJS_BENCH_NAP"
NAP = float(os.environ.get(NAP_VARIABLE, "0.005"))

_ENTRY = struct.Struct("=dqq")


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A handler's start: seconds since the epoch, the job's number, the process."""

    at: float
    number: int
    pid: int


@lru_cache(maxsize=1)
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def record_start(number: int) -> None:
    """Record that a handler starts. One short append: atomic, and the same for every contender."""
    os.write(_file(), _ENTRY.pack(time.time(), number, os.getpid()))


def count(path: Path) -> int:
    """Return how many handlers have started."""
    return path.stat().st_size // _ENTRY.size if path.exists() else 0


def read(path: Path) -> list[Start]:
    """Return all starts, in the order in which they were written."""
    return [
        Start(at=at, number=number, pid=pid) for at, number, pid in _ENTRY.iter_unpack(_whole(path))
    ]


def _whole(path: Path) -> bytes:
    data = path.read_bytes() if path.exists() else b""
    return data[: len(data) - len(data) % _ENTRY.size]

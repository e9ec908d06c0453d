"""What the handlers of the day did. A line is one append to a file, so that it outlives them."""

from __future__ import annotations

import os
import struct
import time
from functools import lru_cache
from pathlib import Path
from uuid import UUID

import django_ojs as ojs
from tests.faults.checker import Start

#: Set for every worker: where the ledger is, and the file that exists while the partner is down.
VARIABLE, PARTNER_VARIABLE = "OJS_DAY_LEDGER", "OJS_DAY_PARTNER_IS_DOWN"

_ENTRY = struct.Struct("=?16siiqd")


@lru_cache(maxsize=1)
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(ctx: ojs.JobContext, *, is_done: bool) -> None:
    """Write that a handler begins, or has come to its end."""
    job = ctx.job
    entry = (is_done, job.id.bytes, job.attempt, job.run, os.getpid(), time.monotonic())
    os.write(_file(), _ENTRY.pack(*entry))


def read(path: Path) -> tuple[list[Start], set[str]]:
    """Return the runs that began, and the jobs whose handler came to its end."""
    starts, done = [], set()
    data = path.read_bytes() if path.exists() else b""
    for is_done, key, attempt, run, pid, at in _ENTRY.iter_unpack(data):
        job = str(UUID(bytes=key))
        if is_done:
            done.add(job)
        else:
            starts.append(Start(job=job, attempt=attempt, run=run, pid=pid, at=at))
    return starts, done

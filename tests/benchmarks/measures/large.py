"""FETCH of many large jobs: a response is bounded in bytes, so its time and memory are too."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

SIZE, TIME, MEMORY = (f"FETCH of large jobs, {what}" for what in ("size", "time", "memory"))

#: Together several times OJS["MAX_FETCH_BYTES"].
_JOBS, _BYTES = 250, 256 * 1024


def measure(field: Field, scale: Scale) -> None:
    """Fetch many large jobs at once, in every round."""
    from tests.benchmarks import contenders

    producer = field.producer(contenders.OURS)
    for round_ in range(scale.worker_rounds):
        for name, value in producer.do("fetch_large").items():
            field.results.add(name, contenders.OURS, round_, value)


# The rest runs in a producer's process.


def fetch_large(contender: Contender) -> dict[str, float]:
    """Return the megabytes of one response, its milliseconds, and the memory it took."""
    import django_ojs as ojs
    from django_ojs.operations.fetch import fetch_remotely

    contender.reset()
    text = "x" * _BYTES
    for _ in range(_JOBS // 10):
        ojs.enqueue_batch([ojs.request("bench.noop", [text]) for _ in range(10)])
    before = _memory()
    began = time.perf_counter()
    claimed = fetch_remotely(["default"], count=_JOBS, worker_id="bench")
    seconds = time.perf_counter() - began
    used = _memory() - before
    contender.reset()
    return {
        SIZE: sum(job.size for job in claimed) / 2**20,
        TIME: seconds * 1000,
        MEMORY: used,
    }


def _memory() -> float:
    # The peak, in megabytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

"""What a failed run costs: a service is away, and every job that calls it fails at once."""

from __future__ import annotations

from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import Work
from tests.benchmarks.field import Field
from tests.benchmarks.measures.drain import drain
from tests.benchmarks.scale import Scale

RATE, WORKER_CPU, SERVER_CPU = "failed jobs", "worker CPU, failed", "server CPU, failed"
COMPLETED, RETRIED, DISCARDED = "completed", "failed, retried later", "failed, discarded"

#: What failures of a worker process take some seconds for.
_JOBS = 5_000


def measure(field: Field, scale: Scale) -> None:
    """Drain jobs that succeed, that fail and are retried an hour later, and that are discarded."""
    jobs = max(50, int(_JOBS * scale.drain))
    for round_ in range(scale.worker_rounds):
        for name, kind in ((COMPLETED, "noop"), (RETRIED, "retried"), (DISCARDED, "discarded")):
            done = drain(field, contenders.OURS, Work(kind=kind), jobs)
            field.results.add(RATE, name, round_, done.rate, jobs=jobs)
            field.results.add(WORKER_CPU, name, round_, done.worker_us)
            if done.server_us is not None:
                field.results.add(SERVER_CPU, name, round_, done.server_us)

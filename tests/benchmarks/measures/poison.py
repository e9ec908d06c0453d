"""What a job that kills its process costs the jobs beside it.

Three processes die of it before it is discarded. The jobs that were lost with them run again.
"""

from __future__ import annotations

from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import Work
from tests.benchmarks.field import Field
from tests.benchmarks.measures.drain import drain
from tests.benchmarks.scale import Scale

POISON = "beside a poison job"
PLAIN, POISONED = "no poison job", "beside one poison job"

#: What ten slots of 5 ms make of some seconds.
_JOBS = 20_000


def measure(field: Field, scale: Scale) -> None:
    """Drain jobs of 5 ms without a poison job and with one, in every round."""
    jobs = max(50, int(_JOBS * scale.drain))
    for round_ in range(scale.worker_rounds):
        for name, kind in ((PLAIN, "nap"), (POISONED, "poison")):
            rate = drain(field, contenders.OURS, Work(kind=kind), jobs).rate
            field.results.add(POISON, name, round_, rate, jobs=jobs)

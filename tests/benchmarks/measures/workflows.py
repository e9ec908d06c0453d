"""Draining ten thousand jobs: those of one group, of many short chains, and of no workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import Work
from tests.benchmarks.measures.drain import drain
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

GROUP, FREE = "drain of a group", "drain beside groups"
CHAINS = "drain of chains"
#: In one workflow.
MEMBERS = 10_000


def measure(field: Field, scale: Scale) -> None:
    """Drain a group, and chains, until their workflows have ended, and as many free jobs."""
    jobs = max(20, int(MEMBERS * min(1.0, scale.drain * 2)))
    for round_ in range(scale.worker_rounds):
        for name, kind in ((FREE, "noop"), (GROUP, "group"), (CHAINS, "chains")):
            rate = drain(field, contenders.OURS, Work(kind=kind), jobs).rate
            field.results.add(name, contenders.OURS, round_, rate, jobs=jobs)

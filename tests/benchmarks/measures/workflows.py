"""Draining ten thousand jobs: those of one group, of many short chains, and of no workflow."""

from __future__ import annotations

from functools import partial
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
    """Drain a group, and chains, until their workflows have ended, and as many free jobs.

    Of the others, those that have workflows, with fewer jobs.
    """
    for round_ in range(scale.worker_rounds):
        for name in field.turns(round_):
            contender = contenders.by_name(name)
            if contender.workflows:
                field.attempt(FREE, name, partial(_drain, field, scale, round_, name))


def _drain(field: Field, scale: Scale, round_: int, name: str) -> None:
    contender = contenders.by_name(name)
    most = MEMBERS if name == contenders.OURS else contender.drain_jobs
    jobs = max(20, int(most * min(1.0, scale.drain * 2)))
    for measure, kind in ((FREE, "noop"), (GROUP, "group"), (CHAINS, "chains")):
        if kind == "noop" or kind in contender.workflows:
            work = Work(kind=kind, setting=contender.drain_setting)
            rate = drain(field, name, work, jobs).rate
            field.results.add(measure, name, round_, rate, setting=work.setting, jobs=jobs)

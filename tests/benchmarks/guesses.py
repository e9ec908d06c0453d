"""`python -m tests.benchmarks.guesses`: what each guess of the worker brings.

A worker guesses, from the jobs before, how many jobs to claim at a time, how many threads help, and
more. Here each guess is switched off by itself, in a worker that is otherwise the product. In a
round all take turns; a figure is the median of the rounds, and each other row is divided by the
first one, round by round. A guess that brings less than a tenth in every column, and in no scene of
its own, is not worth its lines. PostgreSQL only; the database is dropped.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import Work
from tests.benchmarks.field import Field
from tests.benchmarks.guesses_off import VARIABLE, WITHOUT
from tests.benchmarks.measures import idle
from tests.benchmarks.measures.drain import drain
from tests.benchmarks.results import Results
from tests.benchmarks.scale import WHOLE
from tests.benchmarks.server import Server
from tests.benchmarks.starts import NAP_VARIABLE

#: The product as it is.
ALL = "all guesses"


def _work(without: str, **settings: Any) -> Work:
    environment = dict(settings.pop("environment", {}))
    if without != ALL:
        environment[VARIABLE] = without
    return Work(environment=environment, **settings)


#: What is drained, with how many jobs.
DRAINS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "no-op, jobs/s": (30_000, {}),
    "two processes, jobs/s": (40_000, {"processes": 2}),
    "1 ms, jobs/s": (12_000, {"kind": "nap", "environment": {NAP_VARIABLE: "0.001"}}),
    "5 ms, jobs/s": (4_000, {"kind": "nap"}),
}
IDLE: Mapping[str, str] = {
    "pickup, ms": idle.P50,
    "idle worker, %": idle.IDLE,
    "idle server, %": idle.IDLE_SERVER,
}


def measure(field: Field, without: str, round_: int, share: float) -> None:
    """Measure all columns once, without a guess; `share` of the usual jobs and seconds."""
    ours = contenders.OURS
    for column, (jobs, settings) in DRAINS.items():
        done = drain(field, ours, _work(without, **settings), max(20, int(jobs * share)))
        field.results.add(column, without, round_, done.rate)
    scale = replace(WHOLE, trickle=max(3, int(60 * share)), idle=8.0 * share)
    producer = field.producer(ours)
    with field.ready_worker(producer, _work(without)) as worker:
        idle.trickle(field, scale, round_, without, producer, worker, "")
        idle.watch(field, scale, round_, without, worker)


def table(results: Results) -> str:
    """Return the figures of the product, and those without each guess as multiples of them."""
    columns = {**{column: column for column in DRAINS}, **IDLE}
    rows = [["Without", *columns], ["---"] * (len(columns) + 1)]
    for name in results.contenders(next(iter(DRAINS))):
        found = [
            results.summary(each, name) if name == ALL else results.ratio(each, name, ALL)
            for each in columns.values()
        ]
        figure = ",.4g" if name == ALL else ".2f"
        rows.append([name, *("" if each is None else f"{each.median:{figure}}" for each in found)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def run(names: Sequence[str], rounds: int, prefix: str, share: float = 1.0) -> str:
    """Measure all in turns, and return the table."""
    field = Field(Server(), Results(None, {}), peers=False, prefix=prefix)
    try:
        for round_ in range(rounds):
            start = round_ % len(names)
            for name in [*names[start:], *names[:start]]:
                measure(field, name, round_, share)
    finally:
        field.close()
    return table(field.results)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.guesses", description=(__doc__ or "").split("\n\n", 1)[1]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", choices=sorted(WITHOUT), help="only these guesses; all by default"
    )
    options = parser.parse_args()
    print(run([ALL, *(options.only or WITHOUT)], options.rounds, f"ojs_bench_{os.getpid()}_"))


if __name__ == "__main__":
    main()

"""`python -m tests.benchmarks.growth`: what grows with the finished jobs, and an estimate from it.

It fills a database for each size, lets them take turns, and measures in each what a site waits for:
an enqueue, a claim, the end of a job, a failed run that is retried, the check for due jobs, a batch
of pruning, the depth of a queue, and the first pages of the admin; and the same with `--waiting`
waiting jobs beside the fewest finished ones. The first size is in milliseconds, the others are
multiples of it. From the sizes it computes the multiple at `--to` jobs: a + b * log10(jobs), by
least squares, because what grows is the depth of the indexes. `fit` is the largest distance of a
measured time from that line; where it is large, time does not grow so and the estimate says
nothing. The second table says why: the pages of 8 KiB that the statements touch, by EXPLAIN.
PostgreSQL only. The databases are dropped.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from tests.benchmarks.server import Server

#: Jobs that wait, at every size of finished ones. A queue takes a million by default.
WAITING = 50_000
#: How a figure of pages is named.
PAGES = "pages: "
#: Jobs of one batch of pruning.
BATCH = 1_000

_BUFFERS = re.compile(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?")

#: The first pages of the admin.
ADMIN = {
    "admin: overview": "/admin/django_ojs/overview/",
    "admin: queues": "/admin/django_ojs/queue/",
    "admin: a queue": "/admin/django_ojs/queue/default/change/",
    "admin: jobs": "/admin/django_ojs/job/",
    "admin: completed jobs": "/admin/django_ojs/job/?q=state:completed",
    "admin: a search by an argument": "/admin/django_ojs/job/?q=args.0:42",
    "admin: dead letters": "/admin/django_ojs/deadletterjob/",
}


def line(times: Mapping[int, float]) -> tuple[float, float]:
    """Return a and b of the line a + b * log10(jobs) through times by number of jobs.

    b is 0 where the times do not grow.
    """
    sizes = [math.log10(rows) for rows in times]
    fitted = statistics.linear_regression(sizes, list(times.values()))
    if fitted.slope <= 0:
        return statistics.fmean(times.values()), 0.0
    return fitted.intercept, fitted.slope


def estimate(times: Mapping[int, float], rows: int) -> tuple[float, float]:
    """Return the estimated time at `rows` jobs, and the largest relative distance from the line."""
    a, b = line(times)
    fit = max(abs(a + b * math.log10(size) - took) / took for size, took in times.items())
    return a + b * math.log10(rows), fit


def _failures(calls: int) -> float:
    """Return the median of failed runs that are retried later, in milliseconds."""
    import django_ojs as ojs
    from django_ojs.models.attempt import AttemptOutcome
    from django_ojs.operations.fail import fail_batch
    from django_ojs.operations.fetch import fetch
    from django_ojs.spec.failure import Failure

    failure = Failure(type="ConnectionError", message="The service is away.", delay=timedelta(1))
    took = []
    for number in range(calls):
        ojs.enqueue("bench.noop", [number])
        jobs = fetch(["default"], count=1, worker_id="bench", due=False)
        began = time.perf_counter()
        kept = fail_batch("bench", [(job, failure, AttemptOutcome.FAILED) for job in jobs])
        took.append((time.perf_counter() - began) * 1000)
        if len(kept) != 1:
            raise RuntimeError("a failed run was not stored")
    return statistics.median(took)


def _due_checks(calls: int) -> float:
    """Return the median of a check for due and for expired jobs that finds none."""
    from django_ojs.operations.due_jobs import DueCheck

    took = []
    for _ in range(calls):
        began = time.perf_counter()
        DueCheck().promote()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def _pages() -> Iterator[tuple[str, float]]:
    """Yield how many pages of the tables and indexes the statements of each step touch."""
    from django.test import Client

    from tests.benchmarks import plans
    from tests.benchmarks.admin import log_in

    client = Client(headers={"host": "localhost"})
    log_in(client)
    steps = plans.steps()
    steps += [
        (name, lambda: None, lambda _, at=address: client.get(at))
        for name, address in ADMIN.items()
    ]
    for title, prepare, step in steps:
        yield PAGES + title, sum(_touched(plan) for plan in plans.explain(prepare, step))


def _touched(plan: str) -> int:
    """Return the pages of the node that has the most, which contains those below it."""
    nodes = _BUFFERS.findall(plan.split("\nPlanning:", 1)[0])
    return max((int(hit or 0) + int(read or 0) for hit, read in nodes), default=0)


def _prune(rounds: int) -> float:
    """Return the median of batches of pruning, in milliseconds."""
    from django.conf import settings
    from django.db import connection
    from django.test import override_settings

    from django_ojs.operations.maintenance import job_pruning

    took = []
    for _ in range(rounds):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT extract(epoch FROM now() - finished_at) FROM ojs_job"
                " WHERE state = 'completed' AND NOT dead_letter"
                f" ORDER BY finished_at LIMIT 1 OFFSET {BATCH}"
            )
            age = float(cursor.fetchone()[0])
        kept = {**getattr(settings, "OJS", {}), "KEEP_COMPLETED": timedelta(seconds=age)}
        with override_settings(OJS=kept):
            began = time.perf_counter()
            deleted = job_pruning.prune(BATCH)
            took.append((time.perf_counter() - began) * 1000)
        if deleted != BATCH:
            raise RuntimeError(f"a batch of pruning deleted {deleted} jobs")
    return statistics.median(took)


def measure(rows: int, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield the medians of this process's database, in milliseconds."""
    from tests.benchmarks import admin
    from tests.benchmarks.contenders import OURS, by_name
    from tests.benchmarks.measures import tables

    ours, rounds = by_name(OURS), options.rounds
    took = tables.operations(ours, calls=rounds * 10)
    took |= tables.counts(ours, calls=rounds * 10)
    yield "enqueue", took[tables.PUSH]
    yield "claim", took[tables.FETCH]
    yield "finish", took[tables.ACK]
    yield "fail, retried later", _failures(rounds * 10)
    yield "due check", _due_checks(rounds * 10)
    yield "depth of a queue", took[tables.DEPTH]
    yield "counts of all queues", took[tables.COUNTS]
    yield f"prune {BATCH:,}", _prune(max(1, min(rounds, rows // BATCH // 2 // options.turns)))
    for name, median, _, _ in admin.measure(ADMIN.items(), rounds):
        yield name, median


def _serve(rows: int, options: argparse.Namespace) -> None:
    """Fill a database; then measure it for each line of the input, and write the medians."""
    from tests.benchmarks.admin import set_up

    server = Server()
    name = server.create(f"ojs_bench_growth_{rows}_{options.waiting}")
    try:
        set_up(server, name)
        from django.db import connection

        from django_ojs.extensions.statistics import rollups
        from tests.benchmarks import filling

        filling.fill(finished=rows, waiting=options.waiting)
        filling.wear_in()
        filling.tidy()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_total_relation_size('ojs_job') / 1073741824.0")
            found = {"table and indexes, GiB": float(cursor.fetchone()[0])}
        print(json.dumps(found | dict(_pages())), flush=True)
        for _ in sys.stdin:
            print(json.dumps(dict(measure(rows, options))), flush=True)
        rollups.flush()
    finally:
        server.close()


class _Site:
    """A database in a process of its own."""

    def __init__(self, rows: int, waiting: int, options: argparse.Namespace) -> None:
        print(f"{rows:,} finished and {waiting:,} waiting jobs", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "tests.benchmarks.growth", "--serve", f"--rows={rows}"]
        command += [
            f"--waiting={waiting}",
            f"--rounds={options.rounds}",
            f"--turns={options.turns}",
        ]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._fixed: dict[str, float] = {}
        self._turns: list[dict[str, float]] = []

    def filled(self) -> _Site:
        """Wait until it is filled."""
        self._fixed = self._read()
        return self

    def take_turn(self) -> None:
        """Measure once."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._turns.append(self._read())

    def close(self) -> dict[str, float]:
        """Drop the database, and return what was found: the medians of all turns."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        names = self._turns[0] if self._turns else {}
        medians = {name: statistics.median(turn[name] for turn in self._turns) for name in names}
        return medians | self._fixed

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of a size has ended")
        read: dict[str, float] = json.loads(line)
        return read


def render(
    found: Mapping[int, Mapping[str, float]], to: int, full: Mapping[str, float], waiting: int
) -> str:
    """Return the tables of all sizes, with the estimate and the database of waiting jobs."""
    sizes = sorted(found)
    head = f"{sizes[0]:>12,}" + "".join(f"{size:>13,}" for size in sizes[1:])
    head += f"{f'~ {to:,}':>15}{'fit':>7}{f'{waiting:,} waiting':>20}"
    lines = [f"{'median, ms; then multiples':42}{head}"]
    for name, first in found[sizes[0]].items():
        times = {size: found[size][name] or 1.0 for size in sizes}
        first = first or 1.0
        cells = f"{first:12.2f}" + "".join(f"{times[size] / first:13.2f}" for size in sizes[1:])
        if name.endswith("GiB"):  # In proportion to the jobs.
            expected, fit = times[sizes[-1]] * to / sizes[-1], 0.0
        else:
            expected, fit = estimate(times, to)
        cells += f"{expected / first:15.2f}{fit:7.0%}{(full[name] or 1.0) / first:20.2f}"
        lines.append(f"{name:42}{cells}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> None:
    """Read the arguments, fill a database for each size, and let them take turns."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--waiting", type=int, default=990_000, help="of the last database")
    parser.add_argument("--to", type=int, default=50_000_000, help="jobs to estimate for")
    parser.add_argument("--rounds", type=int, default=5, help="calls in a turn")
    parser.add_argument("--turns", type=int, default=5, help="of each database")
    parser.add_argument("--serve", action="store_true", help="be the process of the first size")
    options = parser.parse_args(given)
    if options.serve:
        _serve(options.rows[0], options)
        return
    sizes = sorted(set(options.rows))
    if len(sizes) < 2:
        parser.error("--rows needs two sizes at least.")
    sites: list[_Site] = []
    try:
        for rows, waiting in [(sizes[0], options.waiting), *((rows, WAITING) for rows in sizes)]:
            sites.append(_Site(rows, waiting, options))
            sites[-1].filled()
        for turn in range(options.turns):
            print(f"turn {turn + 1} of {options.turns}", file=sys.stderr, flush=True)
            for site in sites:
                site.take_turn()
    finally:
        full, *found = [site.close() for site in sites]
    print(render(dict(zip(sizes, found, strict=True)), options.to, full, options.waiting))


if __name__ == "__main__":
    main()

"""`python -m tests.benchmarks.growth`: what grows with the finished jobs, and an estimate from it.

It fills a database for each size, one after the other, and measures in each what a site waits for:
an enqueue, a claim, the end of a job, a batch of pruning, the depth of a queue, and the first pages
of the admin. From the sizes it computes the time at `--to` jobs: a + b * log10(jobs), by least
squares, because what grows is the depth of the indexes. `fit` is the largest distance of a measured
time from that line; where it is large, time does not grow so and the estimate says nothing.
PostgreSQL only. The databases are dropped.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from tests.benchmarks.server import Server

#: Jobs that wait, at every size.
WAITING = 50_000
#: Jobs of one batch of pruning.
BATCH = 1_000

_PAGES = {
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


def _prune(rounds: int) -> float:
    """Return the median of batches of pruning, in milliseconds."""
    from django.conf import settings
    from django.db import connection
    from django.test import override_settings

    from django_ojs.operations.maintenance import pruning

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
            deleted = pruning.prune(BATCH)
            took.append((time.perf_counter() - began) * 1000)
        if deleted != BATCH:
            raise RuntimeError(f"a batch of pruning deleted {deleted} jobs")
    return statistics.median(took)


def measure(rounds: int) -> Iterator[tuple[str, float]]:
    """Yield the medians of this process's database, in milliseconds."""
    from tests.benchmarks import admin
    from tests.benchmarks.contenders import OURS, by_name
    from tests.benchmarks.measures import tables

    ours = by_name(OURS)
    took = tables.operations(ours, calls=rounds * 10)
    took |= tables.counts(ours, calls=rounds * 10)
    yield "enqueue", took[tables.PUSH]
    yield "claim", took[tables.FETCH]
    yield "finish", took[tables.ACK]
    yield "depth of a queue", took[tables.DEPTH]
    yield "counts of all queues", took[tables.COUNTS]
    yield f"prune {BATCH:,}", _prune(rounds)
    for name, median, _, _ in admin.measure(_PAGES.items(), rounds):
        yield name, median


def measure_size(rows: int, rounds: int) -> dict[str, float]:
    """Fill a database of this size, and return the medians; for a process of its own."""
    from tests.benchmarks.admin import set_up

    server = Server()
    name = server.create(f"ojs_bench_growth_{rows}")
    try:
        set_up(server, name)
        from django.db import connection

        from django_ojs.extensions.statistics import rollups
        from tests.benchmarks import filling

        filling.fill(finished=rows, waiting=WAITING)
        filling.wear_in()
        filling.tidy()
        found = dict(measure(rounds))
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_total_relation_size('ojs_job') / 1073741824.0")
            found["table and indexes, GiB"] = float(cursor.fetchone()[0])
        rollups.flush()
        return found
    finally:
        server.close()


def render(found: Mapping[int, Mapping[str, float]], to: int) -> str:
    """Return the table of all sizes, with the estimate."""
    sizes = sorted(found)
    head = "".join(f"{size:>14,}" for size in sizes)
    lines = [f"{'median, ms':32}{head}{f'~ {to:,}':>16}{'fit':>7}"]
    for name in found[sizes[0]]:
        times = {size: found[size][name] for size in sizes}
        cells = "".join(f"{took:14.2f}" for took in times.values())
        if name.endswith("GiB"):  # In proportion to the jobs.
            lines.append(f"{name:32}{cells}{times[sizes[-1]] * to / sizes[-1]:16.1f}")
            continue
        expected, fit = estimate(times, to)
        lines.append(f"{name:32}{cells}{expected:16.2f}{fit:7.0%}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> None:
    """Read the arguments, and measure each size in a process of its own."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--to", type=int, default=100_000_000, help="jobs to estimate for")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--one", action="store_true", help="the first size alone, as JSON")
    arguments = parser.parse_args(given)
    if arguments.one:
        print(json.dumps(measure_size(arguments.rows[0], arguments.rounds)))
        return
    if len(set(arguments.rows)) < 2:
        parser.error("--rows needs two sizes at least.")
    found = {}
    for rows in sorted(set(arguments.rows)):
        print(f"{rows:,} finished jobs: fill and measure", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "tests.benchmarks.growth", "--one"]
        command += ["--rows", str(rows), "--rounds", str(arguments.rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[rows] = json.loads(done.stdout.splitlines()[-1])
    print(render(found, arguments.to))


if __name__ == "__main__":
    main()

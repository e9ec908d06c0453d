"""A contender's own process on the enqueuing side, which measures what the harness orders.

The harness writes one JSON line for a task and reads one line back. Each contender has its
settings, its database and its warm connection, and all can take turns in short rounds.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks import contenders, filling
from tests.benchmarks.contenders.base import VARIABLE, Contender, Durable, Work
from tests.benchmarks.measures import (
    bounds,
    cron,
    events,
    figures,
    http,
    limits,
    maintenance,
    names,
    tables,
)
from tests.benchmarks.server import NAME_VARIABLE


class Producer:
    """The harness's end."""

    def __init__(self, contender: Contender, database: str, log: Path, **extra: str) -> None:
        self.contender = contender
        self.database = database
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings",
            VARIABLE: contender.name,
            NAME_VARIABLE: database,
            **extra,
        }
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.producer"],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def do(self, task: str, **arguments: Any) -> Any:
        """Have a function below called in the other process, and return what it returns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([task, arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.contender.name}: {task} failed; see {self._log.name}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


def setup(contender: Contender) -> None:
    """Make the tables, and warm the connection up."""
    contender.setup()
    contender.singles(range(10))
    contender.reset()


def reset(contender: Contender) -> None:
    """Remove all jobs."""
    contender.reset()


def singles(contender: Contender, *, jobs: int) -> float:
    """Return jobs a second, each enqueued in its own transaction."""
    contender.reset()
    return jobs / contender.singles(range(jobs))


def unique(contender: Contender, *, jobs: int) -> dict[str, float]:
    """Return unique jobs a second, each in its own transaction: new ones, then their duplicates."""
    import django_ojs

    contender.reset()
    rates = {}
    for name in ("new", "duplicate"):
        began = time.perf_counter()
        for number in range(jobs):
            unique = {"keys": ["type", "args"], "on_conflict": "ignore"}
            django_ojs.enqueue("bench.noop", [number], unique=unique)
        rates[name] = jobs / (time.perf_counter() - began)
    return rates


def batches(contender: Contender, *, jobs: int) -> float:
    """Return jobs a second, enqueued in batches."""
    contender.reset()
    return jobs / contender.batches(range(jobs))


def in_transaction(contender: Contender, *, jobs: int) -> dict[str, float]:
    """Return the medians, in milliseconds, of a small transaction without and with an enqueue."""
    from django.contrib.auth.models import Group
    from django.db import transaction

    contender.reset()
    Group.objects.all().delete()
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(jobs):
        for with_job in (False, True):
            began = time.perf_counter()
            with transaction.atomic():
                Group.objects.create(name=f"{number} {with_job}")
                if with_job:
                    contender.enqueue(number)
            took[with_job].append((time.perf_counter() - began) * 1000)
    return {"without": statistics.median(took[False]), "with": statistics.median(took[True])}


def fill(contender: Contender, *, jobs: int, kind: str) -> None:
    """Store jobs for a worker."""
    contender.reset()
    contender.fill(range(jobs), Work(kind=kind))


def trickle(contender: Contender, *, first: int, jobs: int, gap: float) -> list[float]:
    """Store one job about every `gap` seconds, and return when each was committed."""
    moments = []
    for number in range(first, first + jobs):
        # Not in phase with a worker's polling.
        time.sleep(gap * random.uniform(0.8, 1.2))
        moments.append(contender.committed_at(number))
    return moments


def sleepers(contender: Contender, *, jobs: int) -> None:
    """Store jobs that wait for a signal, each for one of its own."""
    filling.let_wait(jobs)


def start_runs(contender: Durable, *, jobs: int) -> float:
    """Return runs a second, each started in its own transaction."""
    contender.reset()
    began = time.perf_counter()
    for number in range(jobs):
        contender.start_run(number)
    return jobs / (time.perf_counter() - began)


def signals(contender: Durable, *, jobs: int, gap: float) -> list[float]:
    """Send a signal to each run, and return when it was committed, in seconds since the epoch."""
    moments = []
    for number in range(jobs):
        time.sleep(gap * random.uniform(0.2, 1.8))
        contender.signal(number)
        moments.append(time.time())
    return moments


TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task
    for task in (
        setup,
        reset,
        singles,
        unique,
        batches,
        in_transaction,
        fill,
        trickle,
        sleepers,
        start_runs,
        signals,
        tables.fill_table,
        tables.wear_in,
        tables.operations,
        tables.counts,
        http.key,
        bounds.bounded,
        maintenance.backlog,
        maintenance.maintain,
        maintenance.rest,
        maintenance.beside,
        figures.figures,
        names.make_names,
        names.read_names,
        cron.register_cron,
        cron.make_due,
        cron.cron_lags,
        limits.fetch_limited,
        events.events,
    )
}


def main() -> None:
    """Do what the lines on the standard input say."""
    # Libraries may print; the results have a channel of their own.
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import django

    django.setup()
    contender = contenders.by_name(os.environ[VARIABLE])
    for line in sys.stdin:
        task, arguments = json.loads(line)
        responses.write(json.dumps(TASKS[task](contender, **arguments)) + "\n")


if __name__ == "__main__":
    main()

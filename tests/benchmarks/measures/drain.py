"""Draining: a worker starts on a full queue, and we wait until every job has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

from tests.benchmarks import contenders, starts
from tests.benchmarks.contenders.base import Work
from tests.benchmarks.field import ALL_SECONDS, FIRST_SECONDS, Field
from tests.benchmarks.processes import wait_until
from tests.benchmarks.scale import Scale

ONE, TWO, NAPS = "drain 1", "drain 2", "naps"
WORKER_CPU, SERVER_CPU, MEMORY = "worker CPU", "server CPU", "worker memory"

#: What is measured under another name than the contender's.
ASYNC, THREADS = "django_ojs, async def", "10 threads, no queue"

#: What ten slots of naps make of three seconds.
_NAPS = 6_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Drained:
    """Jobs a second, and what a job cost: microseconds of CPU; megabytes at the end."""

    rate: float
    worker_us: float
    server_us: float | None
    memory: float


def measure(field: Field, scale: Scale) -> None:
    """Drain no-op jobs with one process and with two, and jobs that wait 5 ms."""
    for round_ in range(scale.worker_rounds):
        for name in field.turns(round_):
            work = Work(setting=contenders.by_name(name).drain_setting)
            field.attempt(ONE, name, partial(_keep, field, scale, round_, ONE, name, name, work))
        ours = contenders.OURS
        _keep(field, scale, round_, ONE, ASYNC, ours, Work(kind="async"))
        _keep(field, scale, round_, ONE, contenders.CORE, contenders.CORE, Work())
        for name in field.turns(round_):
            if scale.thorough or name in (contenders.OURS, contenders.CEILING):
                work = Work(setting=contenders.by_name(name).drain_setting, processes=2)
                step = partial(_keep, field, scale, round_, TWO, name, name, work)
                field.attempt(TWO, name, step)
        _naps(field, scale, round_)


def _keep(
    field: Field, scale: Scale, round_: int, measure: str, label: str, name: str, work: Work
) -> None:
    more = 1.5 if work.processes > 1 else 1.0
    jobs = max(20, int(contenders.by_name(name).drain_jobs * scale.drain * more))
    done = drain(field, name, work, jobs)
    add = field.results.add
    add(measure, label, round_, done.rate, setting=work.setting, jobs=jobs)
    if measure == ONE:
        add(WORKER_CPU, label, round_, done.worker_us)
        add(MEMORY, label, round_, done.memory)
        if done.server_us is not None:
            add(SERVER_CPU, label, round_, done.server_us)


def _naps(field: Field, scale: Scale, round_: int) -> None:
    jobs = max(20, int(_NAPS * scale.drain))
    rate = drain(field, contenders.OURS, Work(kind="nap"), jobs).rate
    field.results.add(NAPS, contenders.OURS, round_, rate, jobs=jobs)
    child = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.contenders.threads"],
        env={**os.environ, starts.VARIABLE: os.devnull, "OJS_BENCH_JOBS": str(jobs)},
        capture_output=True,
        text=True,
        check=True,
    )
    field.results.add(NAPS, THREADS, round_, float(child.stdout), jobs=jobs)


def drain(field: Field, name: str, work: Work, jobs: int) -> Drained:
    """Fill the queue, start a worker, wait for the end of all jobs, stop the worker."""
    producer = field.producer(name)
    producer.do("fill", jobs=jobs, kind=work.kind)
    field.server.settle(producer.database)
    with field.worker(producer, work) as worker:
        wait = partial(wait_until, watch=worker)
        seen = partial(starts.count, field.starts)
        wait(lambda: seen() > 0, seconds=FIRST_SECONDS, step=0.005, what="a first job")
        before = seen()
        worker_cpu, server_cpu = worker.cpu(), field.server.cpu()
        wait(lambda: seen() >= jobs, seconds=ALL_SECONDS, step=0.02, what="the last job")
        wait(
            lambda: field.pending(producer) == 0,
            seconds=ALL_SECONDS,
            step=0.005,
            what="the end of the last job",
        )
        ended = time.time()
        worker_cpu, memory = worker.cpu() - worker_cpu, worker.memory()
        if server_cpu is not None:
            server_cpu = (field.server.cpu() or 0.0) - server_cpu
    entries = starts.read(field.starts)
    if missing := set(range(jobs)) - {entry.number for entry in entries}:
        raise RuntimeError(f"{len(missing)} of {jobs} jobs did not run")
    shared = 1e6 / max(1, jobs - before)
    return Drained(
        rate=_rate(entries, ended),
        worker_us=worker_cpu * shared,
        server_us=None if server_cpu is None else server_cpu * shared,
        memory=memory,
    )


def _rate(entries: list[starts.Start], ended: float) -> float:
    # From when every process had a job: how long a worker takes to start is not its speed.
    first: dict[int, float] = {}
    for entry in entries:
        first.setdefault(entry.pid, entry.at)
    began = max(first.values())
    counted = sum(entry.at >= began for entry in entries)
    if counted < len(entries) / 2:  # One of them came when most was done.
        began, counted = min(first.values()), len(entries)
    return counted / (ended - began)

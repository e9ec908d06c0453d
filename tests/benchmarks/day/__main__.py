"""`python -m tests.benchmarks.day`: a day of a large site, compressed in time, and its ledger.

Jobs of 400 types in 60 queues come by a curve of load, with its peak at noon. Machines of several
worker processes run them. In each hour every machine is deployed: a new one starts, and when it is
ready the old one gets SIGTERM. For one hour a partner is down, so that its jobs fail and are
retried, or become dead letters. Meanwhile the first pages of the admin are requested. At the end
the checker of the fault tests judges the ledger: whether each enqueued job was completed or is a
dead letter, and whether each second run has a reason. PostgreSQL only; the database is dropped.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.admin import log_in, set_up
from tests.benchmarks.crowd import use_a_server_of_many_connections
from tests.benchmarks.day import HOUR_VARIABLE
from tests.benchmarks.growth import ADMIN
from tests.benchmarks.processes import Children, wait_until
from tests.benchmarks.server import Server

SETTINGS = "tests.benchmarks.day.settings"
HOURS = 24
#: Seconds between two batches, and between two pages.
TICK, LOOK = 0.1, 0.5
#: Seconds in which a machine starts, in which it ends its jobs, and in which the last jobs end.
START_SECONDS, STOP_SECONDS, DRAIN_SECONDS = 300.0, 60.0, 900.0
#: Seconds between two lines of progress.
PROGRESS = 10.0
#: Mean seconds of a job.
LENGTH = 0.02


class Day:
    """The site: its machines, its partner, its users, and what they have seen."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        from tests.benchmarks.day import ledger

        self._options, self._folder = options, folder
        self.hour = options.seconds / options.hours
        self._down, self._ledger = folder / "partner-is-down", folder / "ledger"
        self._environment = {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            ledger.VARIABLE: str(self._ledger),
            ledger.PARTNER_VARIABLE: str(self._down),
        }
        self._machines = [self._start() for _ in range(options.machines)]
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self.enqueued: dict[str, float] = {}
        self.pages: dict[str, list[float]] = {}
        self.deploys = 0
        #: Seconds from the end of the day until the last job had ended.
        self.drained = 0.0
        self._tell_at = time.monotonic() + PROGRESS

    def live(self) -> None:
        """Let the day pass, and wait until no job is left. Raises TimeoutError."""
        self._until_ready()
        others = [
            threading.Thread(target=self._do, args=[each]) for each in (self._deploy, self._look)
        ]
        for thread in others:
            thread.start()
        try:
            self._enqueue()
        finally:
            self._over.set()
            for thread in others:
                thread.join()
        if self._errors:
            raise self._errors[0]
        self._drain()

    def close(self) -> None:
        """Stop the machines."""
        for machine in self._machines:
            machine.stop(STOP_SECONDS)

    def report(self) -> Iterator[str]:
        """Yield the lines of the report. Raises AssertionError if the ledger is not in order."""
        from django.db.models import Count

        from django_ojs.models import Attempt, Job
        from django_ojs.models.attempt import AttemptOutcome
        from tests.benchmarks.day import ledger
        from tests.faults.checker import Fault, check

        found = Job.objects.values_list("state", "dead_letter").annotate(n=Count("pk"))
        states = {(state, dead): n for state, dead, n in found}
        dead = {str(pk) for pk in Job.objects.filter(dead_letter=True).values_list("pk", flat=True)}
        starts, done = ledger.read(self._ledger)
        failed = Attempt.objects.filter(outcome=AttemptOutcome.FAILED)
        faults = [Fault(kind="failed", job=str(a.job_id), run=a.run) for a in failed]
        verdict = check(
            attempted=self.enqueued,
            acknowledged=self.enqueued,
            starts=starts,
            done=done | dead,
            faults=faults,
        )
        completed = states.pop(("completed", False), 0)
        discarded = states.pop(("discarded", True), 0)
        yield (
            f"{self._options.machines} machines of {self._options.processes} processes; "
            f"an hour is {self.hour:.1f} s; {self.deploys} machines were deployed; "
            f"the last job ended {self.drained:.0f} s after the day"
        )
        yield (
            f"enqueued {len(self.enqueued):,} = completed {completed:,} + dead letters "
            f"{discarded:,} + others {len(self.enqueued) - completed - discarded:,} {states or ''}"
        )
        yield f"failed runs {len(faults):,}; {verdict.line}"
        first: dict[str, float] = {}
        for start in starts:
            first[start.job] = min(start.at, first.get(start.job, math.inf))
        waits = [(first[job] - at) * 1000 for job, at in self.enqueued.items() if job in first]
        yield f"wait of a job until its first run, ms: {_spread(waits)}"
        for name, took in self.pages.items():
            yield f"{name}, ms: {_spread(took)}"
        verdict.good()
        assert len(self.enqueued) == completed + discarded, states
        assert len(done) == completed

    def _start(self) -> Children:
        command = ["-m", "django", "ojs_worker", "--queues", "*", "-v0"]
        command += ["--processes", str(self._options.processes), "--threads", "4"]
        return Children([command], self._environment, self._folder / "log")

    def _enqueue(self) -> None:
        import django_ojs as ojs
        from django_ojs.spec import ids
        from tests.benchmarks.day import jobs

        dice = random.Random(self._options.seed)
        began = time.monotonic()
        while len(self.enqueued) < self._options.jobs:
            self._tell(f"hour {(time.monotonic() - began) / self.hour:.1f}")
            part = min(1.0, (time.monotonic() - began) / self._options.seconds)
            is_down = 0 <= part - 0.5 < 1 / self._options.hours
            if is_down != self._down.exists():
                self._down.touch() if is_down else self._down.unlink()
            due = int(self._options.jobs * _load(part)) - len(self.enqueued)
            requests = []
            for _ in range(min(due, 1000)):
                kind = dice.randrange(jobs.TYPES)
                seconds = LENGTH * 2 * dice.random()
                key = ids.uuid7()
                requests.append(
                    ojs.request(jobs.name(kind), [seconds], queue=jobs.queue(kind), id=key)
                )
            if requests:
                ojs.enqueue_batch(requests)
                now = time.monotonic()
                self.enqueued |= {str(request.options.id): now for request in requests}
            time.sleep(TICK)

    def _drain(self) -> None:
        from django_ojs.models import Job
        from django_ojs.spec.states import TERMINAL, State

        began = time.monotonic()
        # A state at a time: each has an index, and the table of jobs is large by now.
        states = [state for state in State if state not in TERMINAL]
        while any(Job.objects.filter(state=state).exists() for state in states):
            if time.monotonic() > began + DRAIN_SECONDS:
                left = Job.objects.exclude(state__in=TERMINAL).values_list("state", "queue", "type")
                raise TimeoutError(f"not all jobs have ended: {list(left[:5])}")
            self._tell(f"{time.monotonic() - began:.0f} s after the day")
            time.sleep(TICK)
        self.drained = time.monotonic() - began

    def _tell(self, when: str) -> None:
        """Print a line of progress, if the last one was printed some time ago."""
        from django_ojs.models import Job

        if time.monotonic() < self._tell_at:
            return
        self._tell_at = time.monotonic() + PROGRESS
        waiting = Job.objects.filter(state__in=["available", "active"]).count()
        print(
            f"{when}: enqueued {len(self.enqueued):,}; available or active {waiting:,}; "
            f"{self.deploys} machines were deployed",
            file=sys.stderr,
            flush=True,
        )

    def _deploy(self) -> None:
        while not self._over.wait(self.hour / self._options.machines):
            self._machines.append(self._start())
            self._until_ready()
            self._machines.pop(0).stop(STOP_SECONDS)
            self.deploys += 1

    def _until_ready(self) -> None:
        """Wait until all processes of the machines are known."""
        from django_ojs.models import Worker

        wait_until(
            lambda: Worker.objects.count() >= len(self._machines) * self._options.processes,
            seconds=START_SECONDS,
            step=TICK,
            what="worker processes",
            watch=self._machines[-1],
        )

    def _look(self) -> None:
        from django.test import Client

        from tests.benchmarks.day import jobs

        client = Client(headers={"host": "localhost"})
        log_in(client)
        pages = {**ADMIN, "admin: a queue": f"/admin/django_ojs/queue/{jobs.queue(0)}/change/"}
        while not self._over.is_set():
            for name, address in pages.items():
                began = time.perf_counter()
                response = client.get(address)
                if response.status_code == 404:
                    continue  # No job has come to the queue yet.
                if response.status_code != 200:
                    raise RuntimeError(f"{name}: returned {response.status_code}")
                self.pages.setdefault(name, []).append((time.perf_counter() - began) * 1000)
                if self._over.wait(LOOK):
                    return

    def _do(self, task: Callable[[], Any]) -> None:
        from django.db import connections

        try:
            task()
        except BaseException as error:
            self._errors.append(error)
        finally:
            connections.close_all()


def _load(part: float) -> float:
    """Return the share of the jobs that have come by a part of the day: few at night."""
    return part - 0.8 * math.sin(2 * math.pi * part) / (2 * math.pi)


def _spread(values: Sequence[float]) -> str:
    found = sorted(values) or [0.0]
    late = found[min(len(found) - 1, int(len(found) * 0.99))]
    return f"median {statistics.median(found):,.0f}, 99 % {late:,.0f}, most {found[-1]:,.0f}"


@contextmanager
def _site(options: argparse.Namespace) -> Iterator[Day]:
    # The retries of this process's jobs, too, are as long as an hour wants.
    os.environ[HOUR_VARIABLE] = str(options.seconds / options.hours)
    use_a_server_of_many_connections()
    server = Server()
    name = server.create(f"ojs_bench_day_{os.getpid()}")
    try:
        set_up(server, name, SETTINGS)
        with tempfile.TemporaryDirectory(prefix="ojs-day-") as folder:
            day = Day(options, Path(folder))
            try:
                yield day
            except BaseException:
                print((Path(folder) / "log").read_text()[-4000:], file=sys.stderr)
                raise
            finally:
                day.close()
    finally:
        from django.db import connections

        connections.close_all()
        server.close()


def main(given: Sequence[str] | None = None) -> None:
    """Read the arguments, let the day pass, and print the ledger."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.day", description=__doc__)
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=240.0, help="of the day")
    parser.add_argument("--hours", type=int, default=HOURS, help="of the day")
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--processes", type=int, default=10, help="of each machine")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    with _site(options) as day:
        day.live()
        for line in day.report():
            print(line, flush=True)


if __name__ == "__main__":
    main()

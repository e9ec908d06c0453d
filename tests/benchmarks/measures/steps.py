"""Runs of durable steps: how many steps a second, what they cost, how soon a signal arrives."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from tests.benchmarks import contenders, starts
from tests.benchmarks.contenders.base import AT, Durable, Work
from tests.benchmarks.field import ALL_SECONDS, FIRST_SECONDS, Field
from tests.benchmarks.measures.drain import drain
from tests.benchmarks.processes import wait_until
from tests.benchmarks.scale import Scale

#: Runs of so many steps, and how many of them take some seconds.
RUNS = {1: 2_400, 10: 480, 100: 64}
RATE = {steps: f"steps, runs of {steps}" for steps in RUNS}
TWO = "steps, runs of 100, two processes"
#: Microseconds of CPU that a step takes, of the worker and of the server together.
COST = {steps: f"CPU of a step, runs of {steps}" for steps in RUNS}
STARTS, ENQUEUES = "starts of runs", "starts of jobs"
P50, P95 = "signal p50", "signal p95"
RESUMED = "resumed after kill -9"
#: An idle worker beside runs that wait, and beside none.
IDLE, IDLE_MEMORY = "idle beside waiting runs", "memory beside waiting runs"

#: Runs that wait, and the mean seconds between two signals.
_GAP = 0.1


def measure(field: Field, scale: Scale) -> None:
    """Drain runs of 1, 10 and 100 steps, start runs, and send signals to runs that wait."""
    for round_ in range(scale.worker_rounds):
        names = field.durable(round_)
        for steps, name in ((steps, name) for steps in RUNS for name in names):
            for processes in (1, 2) if steps == 100 else (1,):
                step = partial(_drain, field, scale, round_, name, steps, processes)
                field.attempt(RATE[steps], name, step)
        for name in names:
            field.attempt(STARTS, name, partial(_start, field, scale, round_, name))
        for name in names:
            field.attempt(P50, name, partial(_signal, field, scale, round_, name))
            field.attempt(RESUMED, name, partial(_kill, field, scale, round_, name))
        for waiting in (0, scale.waiting // 10):
            _idle(field, scale, round_, waiting)


def _work(name: str, steps: int, processes: int = 1) -> Work:
    contender = contenders.by_name(name)
    assert isinstance(contender, Durable)
    return Work(kind=f"steps {steps}", processes=processes, setting=contender.steps_setting)


def _drain(field: Field, scale: Scale, round_: int, name: str, steps: int, processes: int) -> None:
    runs = max(10, int(RUNS[steps] * scale.drain))
    done = drain(field, name, work := _work(name, steps, processes), runs)
    measure = RATE[steps] if processes == 1 else TWO
    add = partial(field.results.add, setting=work.setting, runs=runs)
    add(measure, name, round_, done.rate * steps)
    if processes == 1 and done.server_us is not None:
        add(COST[steps], name, round_, (done.worker_us + done.server_us) / steps)


def _start(field: Field, scale: Scale, round_: int, name: str) -> None:
    producer = field.producer(name)
    for measure, task in ((STARTS, "start_runs"), (ENQUEUES, "singles")):
        if measure == STARTS or name == contenders.OURS:
            value = producer.do(task, jobs=scale.singles * 10)
            field.results.add(measure, name, round_, value)


def _signal(field: Field, scale: Scale, round_: int, name: str) -> None:
    """Measure from the commit of a signal to the line after the wait. The worker is idle."""
    producer, runs, work = field.producer(name), scale.trickle, _work(name, 0)
    producer.do("fill", jobs=runs, kind=work.kind)
    contender = producer.contender
    assert isinstance(contender, Durable)
    waiting = partial(contender.waiting, partial(field.server.run, producer.database))
    with field.worker(producer, work) as worker:
        wait = partial(wait_until, watch=worker)
        wait(lambda: waiting() >= runs, seconds=ALL_SECONDS, step=0.05, what="all runs wait")
        time.sleep(min(2.0, scale.idle))
        sent = producer.do("signals", jobs=runs, gap=min(_GAP, scale.gap * 2))
        seen = partial(starts.count, field.starts)
        wait(lambda: seen() >= runs, seconds=ALL_SECONDS, step=0.02, what="the last signal")
    ended = {entry.number: entry.at for entry in starts.read(field.starts)}
    waits = sorted((ended[number] - moment) * 1000 for number, moment in enumerate(sent))
    for measure, share in ((P50, 0.50), (P95, 0.95)):
        value = waits[min(len(waits) - 1, int(len(waits) * share))]
        field.results.add(measure, name, round_, value, setting=work.setting, samples=len(waits))


def label(waiting: int) -> str:
    """Return the name of a row."""
    return f"{contenders.OURS}, {waiting:,} wait"


def _idle(field: Field, scale: Scale, round_: int, waiting: int) -> None:
    """Watch what an idle worker costs, with PostgreSQL, in percent of a core; and its memory."""
    producer, work = field.producer(contenders.OURS), _work(contenders.OURS, 0)
    producer.do("reset")
    producer.do("sleepers", jobs=waiting)
    field.server.settle(producer.database)
    with field.worker(producer, work) as worker:
        producer.do("trickle", first=0, jobs=3, gap=0.01)
        wait_until(
            lambda: starts.count(field.starts) >= 3,
            seconds=FIRST_SECONDS,
            step=0.05,
            what="first jobs",
            watch=worker,
        )
        time.sleep(min(3.0, scale.idle))
        began, used = time.monotonic(), worker.cpu() + (field.server.cpu() or 0.0)
        time.sleep(scale.idle)
        used = worker.cpu() + (field.server.cpu() or 0.0) - used
        share = used / (time.monotonic() - began) * 100
        field.results.add(IDLE, label(waiting), round_, share)
        field.results.add(IDLE_MEMORY, label(waiting), round_, worker.memory())


def _kill(field: Field, scale: Scale, round_: int, name: str) -> None:
    """Measure from `kill -9` until a fresh worker takes up a run that was interrupted."""
    if name != contenders.OURS:  # The others wait for a lease, or need the same id again.
        return
    # No more than run at a time: the fresh worker has no others to begin with.
    producer, runs, work = field.producer(name), AT, _work(name, 1_000)
    producer.do("fill", jobs=runs, kind=work.kind)
    seen = partial(starts.count, field.starts)
    with field.worker(producer, work) as first:
        wait_until(
            lambda: seen() >= runs, seconds=FIRST_SECONDS, step=0.005, what="all run", watch=first
        )
        first.kill()
        killed, before = time.time(), {entry.number for entry in starts.read(field.starts)}

    def again() -> list[Any]:
        entries = starts.read(field.starts)
        return [each for each in entries if each.number in before and each.at > killed]

    with field.worker(producer, work, is_continued=True) as second:
        wait_until(
            lambda: bool(again()),
            seconds=ALL_SECONDS,
            step=0.02,
            what="an interrupted run goes on",
            watch=second,
        )
    field.results.add(RESUMED, name, round_, again()[0].at - killed)

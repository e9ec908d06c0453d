"""An idle worker: how soon it picks a job up, and what it costs meanwhile."""

from __future__ import annotations

import time
from functools import partial

from tests.benchmarks import contenders, starts
from tests.benchmarks.contenders.base import Work
from tests.benchmarks.contenders.ojs import NOTIFY_VARIABLE
from tests.benchmarks.field import Field
from tests.benchmarks.processes import Children, wait_until
from tests.benchmarks.producer import Producer
from tests.benchmarks.scale import Scale

P50, P95, P99, MOST = "pickup p50", "pickup p95", "pickup p99", "pickup most"
IDLE, IDLE_SERVER = "idle worker", "idle worker, server"

SILENT = "django_ojs, no NOTIFY"

#: Contenders that are notified of new jobs; the others poll, and only `make bench` measures them.
_NOTIFIED = (contenders.OURS, "procrastinate", "pgqueuer", "Celery + Redis")

#: Seconds before an idle worker is measured: its start must be over.
_SETTLE_SECONDS = 3.0

#: The longest polling interval is some seconds.
_LAST_SECONDS = 20.0


def measure(field: Field, scale: Scale) -> None:
    """Let a trickle of jobs reach idle workers, then let them be."""
    for round_ in range(scale.worker_rounds):
        for name in field.turns(round_):
            if name == contenders.CEILING or (not scale.thorough and name not in _NOTIFIED):
                continue
            work = Work(setting=contenders.by_name(name).pickup_setting)
            field.attempt(P50, name, partial(_pickup, field, scale, round_, name, name, work))
        _ours(field, scale, round_)


def _ours(field: Field, scale: Scale, round_: int) -> None:
    name = contenders.OURS
    silent = Producer(
        contenders.by_name(name),
        field.producer(name).database,
        field.log,
        **{NOTIFY_VARIABLE: "off"},
    )
    try:
        with field.ready_worker(silent, Work()) as worker:
            trickle(field, scale, round_, SILENT, silent, worker, "polls each 500 ms")
    finally:
        silent.close()
    with field.ready_worker(field.producer(name), Work()) as worker:
        watch(field, scale, round_, name, worker)


def _pickup(field: Field, scale: Scale, round_: int, label: str, name: str, work: Work) -> None:
    producer = field.producer(name)
    with field.ready_worker(producer, work) as worker:
        trickle(field, scale, round_, label, producer, worker, work.setting)


def trickle(
    field: Field,
    scale: Scale,
    round_: int,
    label: str,
    producer: Producer,
    worker: Children,
    setting: str,
) -> None:
    first = 100
    committed = producer.do("trickle", first=first, jobs=scale.trickle, gap=scale.gap)
    wait_until(
        lambda: starts.count(field.starts) >= 3 + scale.trickle,
        seconds=_LAST_SECONDS,
        step=0.02,
        what="the last of the trickle",
        watch=worker,
    )
    started = {entry.number: entry.at for entry in starts.read(field.starts)}
    waits = sorted(
        (started[number] - moment) * 1000 for number, moment in enumerate(committed, start=first)
    )
    for measure, share in ((P50, 0.50), (P95, 0.95), (P99, 0.99), (MOST, 1.0)):
        value = waits[min(len(waits) - 1, int(len(waits) * share))]
        field.results.add(measure, label, round_, value, setting=setting, samples=len(waits))


def watch(field: Field, scale: Scale, round_: int, name: str, worker: Children) -> None:
    time.sleep(min(_SETTLE_SECONDS, scale.idle))
    began = time.monotonic()
    worker_cpu, server_cpu = worker.cpu(), field.server.cpu()
    time.sleep(scale.idle)
    seconds = time.monotonic() - began
    field.results.add(IDLE, name, round_, (worker.cpu() - worker_cpu) / seconds * 100)
    if server_cpu is not None:
        used = (field.server.cpu() or 0.0) - server_cpu
        field.results.add(IDLE_SERVER, name, round_, used / seconds * 100)

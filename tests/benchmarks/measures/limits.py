"""What FETCH costs where queues have limits, beside FETCH of queues that have none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

#: A claim of ten jobs. "Full": nine of ten queues of the worker have reached their limits.
PLAIN, LIMITED, FULL = "FETCH without limits", "FETCH with limits", "FETCH among full queues"
#: Of 10,000 keys of one queue, 9,990 have reached their limits, and have waiting jobs.
KEYS = "FETCH among full keys"

_JOBS = 10
_QUEUES = 10
_KEYS, _FREE_KEYS = 10_000, 10


def measure(field: Field, scale: Scale) -> None:
    """Claim from queues of each kind in turns."""
    from tests.benchmarks import contenders
    from tests.benchmarks.producer import Producer

    ours = contenders.by_name(contenders.OURS)
    database = field.server.create(field.database_name("limits"))
    producer = Producer(ours, database, field.log)
    try:
        producer.do("setup")
        for round_ in range(scale.table_rounds):
            found = producer.do("fetch_limited", calls=scale.table_calls)
            for name, took in found.items():
                field.results.add(name, ours.name, round_, took)
    finally:
        producer.close()
        field.server.drop(database)


# The rest runs in a producer's process.


def fetch_limited(contender: Contender, *, calls: int) -> dict[str, float]:
    """Return how many milliseconds a claim takes, in the median."""
    import statistics

    from django_ojs.extensions.limits.models import LimitedQueue
    from django_ojs.operations import fetch, queues
    from django_ojs.operations.push import BATCH, push_batch
    from django_ojs.spec.envelope import Envelope

    contender.reset()
    LimitedQueue.primary.all().delete()
    config: dict[str, Any] = {
        "concurrency": 1_000_000,
        "rate_limit": {"limit": 1_000_000, "period": "PT1M"},
    }
    queues.configure("limited", config)
    full = [f"full-{n}" for n in range(_QUEUES - 1)]
    wanted = {PLAIN: ["plain"], LIMITED: ["limited"], FULL: [*full, "beside"], KEYS: ["keys"]}
    for name in full:
        queues.configure(name, {"concurrency": 1})
        push_batch([Envelope(type="bench.noop", queue=name) for _ in range(_JOBS)], BATCH)
        fetch.fetch([name], count=_JOBS, worker_id="bench", due=False)
    for name in ("plain", "limited", "beside"):
        for _ in range(calls):
            push_batch([Envelope(type="bench.noop", queue=name) for _ in range(_JOBS)], BATCH)
    _fill_keys(calls)
    took: dict[str, list[float]] = {name: [] for name in wanted}
    for _ in range(calls):
        for name, names in wanted.items():
            began = time.perf_counter()
            jobs = fetch.fetch(names, count=_JOBS, worker_id="bench", due=False)
            took[name].append((time.perf_counter() - began) * 1000)
            assert len(jobs) == _JOBS
    return {name: statistics.median(each) for name, each in took.items()}


def _fill_keys(calls: int) -> None:
    """Fill the queue "keys": all keys but ten run one job, as many as they may."""
    from django_ojs.operations import fetch
    from django_ojs.operations.push import BATCH, push_batch
    from django_ojs.spec.envelope import Envelope

    def add(key: str, number: int, concurrency: int, priority: int) -> None:
        jobs.extend(
            Envelope(
                type="bench.noop",
                queue="keys",
                priority=priority,
                rate_limit={"key": key, "concurrency": concurrency},
            )
            for _ in range(number)
        )

    jobs: list[Envelope] = []
    for n in range(_KEYS - _FREE_KEYS):
        add(f"full-{n}", 2, 1, 1)
    for start in range(0, len(jobs), 1000):
        push_batch(jobs[start : start + 1000], BATCH)
    while fetch.fetch(["keys"], count=1000, worker_id="bench", due=False):
        pass
    jobs = []
    for n in range(_FREE_KEYS):
        add(f"free-{n}", calls * _JOBS, 1_000_000, 0)
    for start in range(0, len(jobs), 1000):
        push_batch(jobs[start : start + 1000], BATCH)

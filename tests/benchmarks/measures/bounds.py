"""What a bound costs: enqueues into a queue that is less than half full, with one and without.

Each call goes to one queue after the other, so that both see the same weather.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.measures.tables import label
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field
    from tests.benchmarks.producer import Producer

SINGLE, MANY = "enqueue, bounded", "batch, bounded"
BOUNDED, UNBOUNDED = "a bounded queue", "no bound"

_BATCH = 100
#: Twice what is ever in it is less.
_BOUND = 1_000_000


def name_of(queue: str, finished: int = 0) -> str:
    """Return the name of a queue in the results, by what else is in the table."""
    return f"{queue}, {label(finished=finished)}{'' if finished else ' table'}"


def measure(field: Field, scale: Scale) -> None:
    """Fill a database for each size, then let them take turns."""
    from tests.benchmarks import contenders
    from tests.benchmarks.producer import Producer

    ours = contenders.by_name(contenders.OURS)
    producers: dict[int, Producer] = {}
    try:
        for number, finished in enumerate((0, *scale.finished)):
            database = field.server.create(field.database_name(f"bounds_{number}"))
            producers[finished] = producer = Producer(ours, database, field.log)
            producer.do("setup")
            producer.do("fill_table", finished=finished)
        for round_ in range(scale.rounds):
            for finished, producer in producers.items():
                _take_turn(field, scale, producer, finished, round_)
    finally:
        for producer in producers.values():
            producer.close()
            field.server.drop(producer.database)


def _take_turn(field: Field, scale: Scale, producer: Producer, finished: int, round_: int) -> None:
    took = producer.do("bounded", calls=scale.singles, batches=max(1, scale.singles // 20))
    for measure_, rates in took.items():
        for queue, rate in rates.items():
            field.results.add(measure_, name_of(queue, finished), round_, rate)


# The rest runs in a producer's process.


def bounded(contender: Contender, *, calls: int, batches: int) -> dict[str, dict[str, float]]:
    """Return jobs a second, one by one and in batches of 100, for both queues; empty them."""
    import django_ojs as ojs
    from django_ojs.models import Job
    from django_ojs.operations import queues
    from django_ojs.storage.figures import counts

    names = {UNBOUNDED: "free", BOUNDED: "bounded"}
    queues.configure(names[BOUNDED], {"backpressure": {"max_depth": _BOUND}})
    took = {measure_: dict.fromkeys(names, 0.0) for measure_ in (SINGLE, MANY)}
    for number in range(-3, calls):
        for queue, name in names.items():
            began = time.perf_counter()
            ojs.enqueue("bench.noop", [number], queue=name)
            if number >= 0:
                took[SINGLE][queue] += time.perf_counter() - began
    for number in range(-1, batches):
        for queue, name in names.items():
            wanted = [ojs.request("bench.noop", [n], queue=name) for n in range(_BATCH)]
            began = time.perf_counter()
            ojs.enqueue_batch(wanted)
            if number >= 0:
                took[MANY][queue] += time.perf_counter() - began
    Job.objects.filter(queue__in=names.values()).delete()
    counts.fold()
    jobs = {SINGLE: calls, MANY: batches * _BATCH}
    return {
        measure_: {queue: jobs[measure_] / seconds for queue, seconds in of_queue.items()}
        for measure_, of_queue in took.items()
    }

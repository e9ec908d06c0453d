"""What a big table costs: PUSH, FETCH and ACK on it, and the counts, beside an empty one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field
    from tests.benchmarks.producer import Producer

PUSH, FETCH, FETCH_DUE, ACK = "PUSH", "FETCH", "FETCH, due jobs first", "ACK"
PUSH_MANY, FETCH_MANY, ACK_MANY = "PUSH 100", "FETCH 100", "ACK 100"
OPERATIONS = (PUSH, FETCH, FETCH_DUE, ACK, PUSH_MANY, FETCH_MANY, ACK_MANY)
DEPTH, COUNTS = "depth", "counts"

EMPTY = "empty"
FINISHED = " finished"
FRESH = ", just filled"

_MANY = 100
_WORKER = "bench"


def label(finished: int = 0, waiting: int = 0) -> str:
    """Return the name of a table in the results."""
    if not finished and not waiting:
        return EMPTY
    return f"{finished:,}{FINISHED}" if finished else f"{waiting:,} waiting"


def measure(field: Field, scale: Scale) -> None:
    """Fill a database for each size, then let them take turns."""
    from tests.benchmarks import contenders
    from tests.benchmarks.producer import Producer

    ours = contenders.by_name(contenders.OURS)
    sizes = [{}, *({"finished": rows} for rows in scale.finished), {"waiting": scale.waiting}]
    producers = {}
    try:
        for number, size in enumerate(sizes):
            database = field.server.create(field.database_name(f"table_{number}"))
            producers[label(**size)] = producer = Producer(ours, database, field.log)
            producer.do("setup")
            producer.do("fill_table", **size)
        # As they are filled, then worn in: see `filling.wear_in` for the difference.
        fresh = max(1, scale.table_rounds // 3)
        for round_ in range(fresh):
            for name, producer in producers.items():
                worn = not name.endswith(FINISHED)
                _take_turn(field, scale, producer, name if worn else name + FRESH, round_)
        for name, producer in producers.items():
            if name.endswith(FINISHED):
                producer.do("wear_in")
        for round_ in range(fresh, fresh + scale.table_rounds):
            for name, producer in producers.items():
                _take_turn(field, scale, producer, name, round_)
    finally:
        for producer in producers.values():
            producer.close()
            field.server.drop(producer.database)


def _take_turn(field: Field, scale: Scale, producer: Producer, name: str, round_: int) -> None:
    took = producer.do("operations", calls=scale.table_calls)
    took |= producer.do("counts", calls=scale.table_calls)
    for operation, milliseconds in took.items():
        field.results.add(operation, name, round_, milliseconds)


# The rest runs in a producer's process.


def fill_table(contender: Contender, *, finished: int = 0, waiting: int = 0) -> None:
    """Fill the database of this process."""
    from tests.benchmarks import filling

    filling.fill(finished=finished, waiting=waiting)


def wear_in(contender: Contender) -> None:
    """Make the table of this process one that has been in use for a while."""
    from tests.benchmarks import filling

    filling.wear_in()


def operations(contender: Contender, *, calls: int) -> dict[str, float]:
    """Return the median of each operation, in milliseconds; what comes in goes out again."""
    import django_ojs as ojs
    from django_ojs.extension import Known
    from django_ojs.operations.ack import ack_batch
    from django_ojs.operations.fetch import fetch
    from django_ojs.storage.figures import counts as stored_counts

    took: dict[str, list[float]] = {name: [] for name in OPERATIONS}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        response = step()
        took[name].append((time.perf_counter() - began) * 1000)
        return response

    def claim(count: int, *, due: bool = False) -> Any:
        return fetch(["default"], count=count, worker_id=_WORKER, due=due)

    def finish(jobs: Any) -> Any:
        # As a worker, which still has the jobs that it claimed.
        known = Known(jobs={job.id: job for job in jobs})
        return ack_batch(_WORKER, [(job.id, job.run, None) for job in jobs], known)

    stored_counts.fold()
    many = [ojs.request("bench.noop", [number]) for number in range(_MANY)]
    for number in range(calls):
        timed(PUSH, lambda: ojs.enqueue("bench.noop", [number]))  # noqa: B023 - called at once
        jobs = timed(FETCH, lambda: claim(1))
        timed(ACK, lambda: finish(jobs))  # noqa: B023 - called at once
        ojs.enqueue("bench.noop", [number])
        finish(timed(FETCH_DUE, lambda: claim(1, due=True)))
    for _ in range(max(1, calls // 10)):
        timed(PUSH_MANY, lambda: ojs.enqueue_batch(many))
        jobs = timed(FETCH_MANY, lambda: claim(_MANY))
        timed(ACK_MANY, lambda: finish(jobs))  # noqa: B023 - called at once
    return {name: statistics.median(values) for name, values in took.items()}


def counts(contender: Contender, *, calls: int) -> dict[str, float]:
    """Return the medians of a queue's depth and of all counts by state, in milliseconds."""
    from django_ojs.storage.figures import counts as stored_counts

    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        (DEPTH, lambda: stored_counts.depth("default")),
        (COUNTS, stored_counts.by_queue),
    )
    took: dict[str, list[float]] = {DEPTH: [], COUNTS: []}
    for _ in range(calls):
        for name, step in steps:
            began = time.perf_counter()
            step()
            took[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values) for name, values in took.items()}

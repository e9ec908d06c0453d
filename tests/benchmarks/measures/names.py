"""What lists and figures cost where producers have made up very many names of queues and types."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field
    from tests.benchmarks.producer import Producer

METRICS, QUEUES, STATISTICS = "/ojs/metrics", "GET /queues", "GET /admin/stats"

#: And how many milliseconds each may take. Prometheus waits ten seconds by default.
READS = {METRICS: 10_000, QUEUES: 1_000, STATISTICS: 1_000}

_FEW = 20


def label(names: int) -> str:
    """Return the row of a number of names."""
    return f"{names:,} queues"


FEW = label(_FEW)


def measure(field: Field, scale: Scale) -> None:
    """Make a database with few names and one with many, then let them take turns."""
    from tests.benchmarks import contenders
    from tests.benchmarks.producer import Producer

    ours = contenders.by_name(contenders.OURS)
    producers: dict[int, Producer] = {}
    try:
        for names in (_FEW, scale.names):
            database = field.server.create(field.database_name(f"names_{names}"))
            producers[names] = producer = Producer(ours, database, field.log)
            producer.do("setup")
            producer.do("make_names", names=names)
            field.server.settle(database)
        for round_ in range(scale.table_rounds):
            for names, producer in producers.items():
                for name, took in producer.do("read_names").items():
                    field.results.add(name, label(names), round_, took)
    finally:
        for producer in producers.values():
            producer.close()
            field.server.drop(producer.database)


# The rest runs in a producer's process.

# As a producer makes them up within some minutes: a job for each, and a row of its figures.
_JOBS = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, dead_letter)
SELECT gen_random_uuid(), 'bench.type_' || n, 'queue-' || n, 'available', 0, '[]', '{}', '{}', 0, 3,
       0, 0, now(), now(), false
FROM generate_series(1, %s) AS n
"""
_FIGURES = """
INSERT INTO ojs_rollup (minute, queue, type, enqueued, completed, failed, discarded, rejected,
                        dropped, lost, progress_updates, waited, ran)
SELECT date_trunc('minute', now()) - n %% 5 * interval '1 minute', 'queue-' || n,
       'bench.type_' || n, 1, 0, 0, 0, 0, 0, 0, 0, %s, %s
FROM generate_series(1, %s) AS n
"""


def make_names(contender: Contender, *, names: int) -> None:
    """Store a job and a row of figures for each of so many queues and types."""
    import json

    from django.db import connection

    from django_ojs.extensions.statistics.rollups import BUCKETS
    from django_ojs.storage.figures import counts

    histogram = json.dumps([0] * BUCKETS)
    with connection.cursor() as cursor:
        cursor.execute(_JOBS, [names])
        cursor.execute(_FIGURES, [histogram, histogram, names])
    counts.fold()


def read_names(contender: Contender) -> dict[str, float]:
    """Return how many milliseconds each figure takes, in a process that has read it before."""
    from django_ojs.extensions.statistics import stats
    from django_ojs.http import metrics
    from django_ojs.operations import queues
    from django_ojs.operations.keyset import PageRequest

    reads = {
        METRICS: lambda: metrics.render(None),
        QUEUES: lambda: queues.listing(PageRequest(limit=50)),
        STATISTICS: stats.totals,
    }
    took = {}
    for name, read in reads.items():
        read()
        began = time.perf_counter()
        read()
        took[name] = (time.perf_counter() - began) * 1000
    return took

"""How fast maintenance catches up with a backlog, and what it costs those beside it.

One process does the maintenance. Another one enqueues, claims and completes jobs of its own queue,
and waits for a job of a third queue that is due a second after the burst.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field
    from tests.benchmarks.producer import Producer

PROMOTION, LAPSE, PRUNING = "promotion", "lapse", "pruning"
DELAY, ENQUEUE, CLAIM = "delay of another queue", "enqueue beside", "claim beside"
IDLE = "no backlog"

_BURST, _OTHER, _BESIDE = "burst", "other", "beside"
#: Seconds that a process without a backlog is measured.
_IDLE_SECONDS = 2.0
#: Seconds after which a backlog is left as it is: its rate is known by then.
_LONGEST = 30.0


def measure(field: Field, scale: Scale) -> None:
    """Make a backlog of each kind and let maintenance work it off, in every round."""
    with maintained(field, "maintenance") as (database, keeper, beside):
        for round_ in range(scale.worker_rounds):
            for kind in (IDLE, PROMOTION, LAPSE, PRUNING):
                keeper.do("backlog", kind=kind, jobs=scale.backlog)
                field.server.settle(database)
                keeper.do("maintain")
                try:
                    found = beside.do("beside", kind=kind, jobs=scale.backlog)
                finally:
                    keeper.do("rest")
                _keep(field, kind, round_, found)


@contextmanager
def maintained(field: Field, name: str) -> Iterator[tuple[str, Producer, Producer]]:
    """Create a database, a process that can maintain it, and one beside it; set the tables up."""
    from tests.benchmarks import contenders
    from tests.benchmarks.producer import Producer

    ours = contenders.by_name(contenders.OURS)
    database = field.server.create(field.database_name(name))
    keeper, beside = (Producer(ours, database, field.log) for _ in range(2))
    try:
        keeper.do("setup")
        yield database, keeper, beside
    finally:
        for producer in (keeper, beside):
            producer.close()
        field.server.drop(database)


def _keep(field: Field, kind: str, round_: int, found: dict[str, float]) -> None:
    from tests.benchmarks import contenders

    if kind != IDLE:
        field.results.add(kind, contenders.OURS, round_, found["rate"])
    if kind == PROMOTION:
        field.results.add(DELAY, contenders.OURS, round_, found["delay"])
    for name in (ENQUEUE, CLAIM):
        field.results.add(name, kind, round_, found[name])


# The rest runs in a producer's process.

# As clients generate them: in the order of their creation.
_ID = """(lpad(to_hex((extract(epoch FROM created) * 1000)::bigint), 12, '0') || '7000'
         || '8' || lpad(to_hex(n), 15, '0'))::uuid"""
_JOBS = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, due_at, started_at, finished_at,
                     worker_id, lease_until, lease_ms, dead_letter)
SELECT {_ID}, 'bench.type_' || n %% 40, '{_BURST}', %(state)s, 0,
       jsonb_build_array(n, 'customer-' || n %% 100000 || '@example.com', 'order_confirmation'),
       '{{}}', '{{}}', 0, 3, 0, 0, created, created,
       CASE WHEN %(state)s = 'scheduled' THEN now() END,
       CASE WHEN %(state)s = 'active' THEN now() ELSE created END,
       CASE WHEN %(state)s = 'completed' THEN created END, 'worker_' || n %% 8,
       CASE WHEN %(state)s = 'active' THEN now() - interval '1 minute' END, 1000, false
FROM (
    SELECT n, now() - interval '30 days' + n * interval '0.1 milliseconds' AS created
    FROM generate_series(1, %(jobs)s) AS n
) AS jobs
"""
_STATES = {PROMOTION: "scheduled", LAPSE: "active", PRUNING: "completed"}
_threads: list[Any] = []


def backlog(contender: Contender, *, kind: str, jobs: int) -> None:
    """Store jobs that are due, or whose leases have lapsed, or that are to be pruned."""
    from django.db import connection

    from django_ojs.storage.figures import counts

    contender.reset()
    if kind in _STATES:
        with connection.cursor() as cursor:
            cursor.execute(_JOBS, {"state": _STATES[kind], "jobs": jobs})
            if kind == LAPSE:
                cursor.execute("UPDATE ojs_job SET attempt = 1, run = 1")
                _let_leases_lapse()
    counts.fold()


def _let_leases_lapse() -> None:
    """Store a worker that sends heartbeats: no lease lapses while the database stores none."""
    from django.utils import timezone

    from django_ojs.models import Worker

    now = timezone.now()
    Worker.primary.update_or_create(
        id="witness",
        defaults={
            "seen_at": now,
            "beat_at": now,
            "steady_since": now - timedelta(minutes=1),
            "beat_interval_ms": 600_000,
            "dead_after_ms": 1_800_000,
        },
    )


def maintain(contender: Contender) -> None:
    """Do the maintenance in this process, in a thread, as a worker does."""
    from django_ojs.worker.job_log import JobLog
    from django_ojs.worker.maintenance import MaintenanceThread

    _threads.append(MaintenanceThread("bench", JobLog()))


def rest(contender: Contender) -> None:
    """Stop the maintenance."""
    _threads.pop().close()


def beside(contender: Contender, *, kind: str, jobs: int) -> dict[str, float]:
    """Do other work until the backlog is worked off.

    Return the rate in jobs a second; the medians of the other work, in milliseconds; and how many
    milliseconds after its time the job of another queue was promoted.
    """
    import django_ojs as ojs
    from django_ojs.operations.ack import ack_batch
    from django_ojs.operations.fetch import fetch

    took: dict[str, list[float]] = {ENQUEUE: [], CLAIM: []}
    other = ojs.enqueue("bench.noop", [0], queue=_OTHER, scheduled_at=timedelta(seconds=1))
    began, first = time.perf_counter(), 0.0
    left = jobs
    while time.perf_counter() - began < (_IDLE_SECONDS if kind == IDLE else _LONGEST):
        before = time.perf_counter()
        ojs.enqueue("bench.noop", [0], queue=_BESIDE)
        between = time.perf_counter()
        claimed = fetch([_BESIDE], count=1, worker_id=_BESIDE, due=False)
        took[CLAIM].append((time.perf_counter() - between) * 1000)
        took[ENQUEUE].append((between - before) * 1000)
        ack_batch(_BESIDE, [(job.id, job.run, None) for job in claimed])
        if kind in _STATES:
            left = _left(_STATES[kind])
            first = first or (time.perf_counter() if left < jobs else 0.0)
            if not left:
                break
        time.sleep(0.005)
    seconds = time.perf_counter() - (first or began)
    return {
        "rate": (jobs - left) / seconds,
        "delay": _delay(other.id) if kind == PROMOTION else 0.0,
        **{name: statistics.median(values) for name, values in took.items()},
    }


def _left(state: str) -> int:

    from django_ojs.storage.figures import counts

    return counts.by_queue([_BURST]).get(_BURST, {}).get(state, 0)  # type: ignore[call-overload]  # a State is a str


def _delay(job_id: Any) -> float:
    from django_ojs.models import Job

    deadline = time.perf_counter() + _LONGEST
    while time.perf_counter() < deadline:
        job = Job.primary.get(pk=job_id)
        if job.state == "available":
            return (job.enqueued_at - job.due_at) / timedelta(milliseconds=1)
        time.sleep(0.05)
    # It is not promoted yet: at least so late.
    return (2 * _LONGEST - 1) * 1000

"""How much is measured: enough to trust, or just enough to see that it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Counts of one run. Rounds take turns: all contenders once, then all again."""

    #: Rounds of the short measures, of those that start a worker, and of those on big tables.
    rounds: int
    worker_rounds: int
    table_rounds: int
    #: Calls in a round.
    singles: int
    transactions: int
    batches: int
    #: Jobs to drain, as a share of what each worker does in about three seconds.
    drain: float
    #: Jobs in the trickle, and the seconds between two.
    trickle: int
    gap: float = 0.05
    #: Seconds an idle worker is watched.
    idle: float
    #: Finished jobs in the big tables, and calls in a round on each.
    finished: tuple[int, ...]
    waiting: int
    table_calls: int
    #: Rounds over HTTP, and requests of a kind in each.
    http_rounds: int
    http_requests: int
    #: Jobs that maintenance has to catch up with.
    backlog: int
    #: Cron jobs, and the seconds that their runs are watched.
    cron_jobs: int
    cron_seconds: float
    #: Names of queues that producers have made up.
    names: int
    #: Contenders other than django_ojs in the measures with two processes and of pickup.
    thorough: bool = True


WHOLE = Scale(
    rounds=25,
    worker_rounds=3,
    table_rounds=9,
    singles=100,
    transactions=40,
    batches=2,
    drain=1.0,
    trickle=200,
    idle=20.0,
    finished=(10_000, 1_000_000),
    waiting=1_000_000,
    table_calls=100,
    http_rounds=7,
    http_requests=1_200,
    backlog=300_000,
    cron_jobs=10_000,
    cron_seconds=60.0,
    names=100_000,
)

QUICK = Scale(
    rounds=8,
    worker_rounds=1,
    table_rounds=5,
    singles=50,
    transactions=20,
    batches=1,
    drain=0.4,
    trickle=50,
    idle=5.0,
    finished=(10_000,),
    waiting=10_000,
    table_calls=50,
    http_rounds=3,
    http_requests=600,
    backlog=50_000,
    cron_jobs=10_000,
    cron_seconds=20.0,
    names=10_000,
    thorough=False,
)

#: For the suite: that every line of it works.
SMOKE = Scale(
    rounds=1,
    worker_rounds=1,
    table_rounds=1,
    singles=3,
    transactions=2,
    batches=1,
    drain=0.002,
    trickle=3,
    gap=0.02,
    idle=0.2,
    finished=(200,),
    waiting=100,
    table_calls=2,
    http_rounds=1,
    http_requests=12,
    backlog=600,
    cron_jobs=120,
    cron_seconds=6.0,
    names=100,
    thorough=False,
)

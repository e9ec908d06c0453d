"""How late the jobs of many cron jobs are available.

One process does the maintenance, as a worker does. Another one sees when the runs are committed.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.measures.maintenance import maintained
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

#: Of the cron jobs, a sixtieth is due each second.
LAG, LAG_MOST = "cron lag, 99th percentile", "cron lag, most"
#: All of them are due in the same second.
BURST = "cron lag of a burst"

#: Seconds between two checks for new runs, which is how exact a lag is.
_POLL = 0.005
_LONGEST = 60.0


def measure(field: Field, scale: Scale) -> None:
    """Register cron jobs and let maintenance fire them, in every round."""
    from tests.benchmarks import contenders

    ours = contenders.by_name(contenders.OURS)
    with maintained(field, "cron") as (database, keeper, beside):
        for round_ in range(scale.worker_rounds):
            for together in (False, True):
                keeper.do("register_cron", number=scale.cron_jobs, together=together)
                field.server.settle(database)
                keeper.do("make_due", together=together)
                keeper.do("maintain")
                try:
                    found = beside.do("cron_lags", seconds=scale.cron_seconds, together=together)
                finally:
                    keeper.do("rest")
                if together:
                    field.results.add(BURST, ours.name, round_, found["p99"])
                else:
                    field.results.add(LAG, ours.name, round_, found["p99"], runs=found["runs"])
                    field.results.add(LAG_MOST, ours.name, round_, found["most"])


# The rest runs in a producer's process.


def register_cron(contender: Contender, *, number: int, together: bool) -> None:
    """Store cron jobs that run every minute, or all at midnight."""
    from django_ojs.extensions.cron.models import CronJob, CronRun
    from django_ojs.extensions.cron.operations import schedule

    contender.reset()
    CronRun.primary.all().delete()
    CronJob.primary.all().delete()
    midnight = schedule.first("@daily", "UTC", datetime.now(UTC))
    rows = []
    for n in range(number):
        expression = "@daily" if together else f"{n % 60} * * * * *"
        rows.append(
            CronJob(
                name=f"bench-{n}",
                expression=expression,
                template={"type": "bench.noop", "args": [n], "options": {"queue": "bench"}},
                type="bench.noop",
                queue="bench",
                overlap_policy="allow",
                due_at=midnight.due_at,
                next_run_at=midnight.next_run_at,
            )
        )
    CronJob.primary.bulk_create(rows, batch_size=1_000)


def make_due(contender: Contender, *, together: bool) -> None:
    """Let the cron jobs be due soon: together, or spread over a minute."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ojs_cron_job SET (due_at, next_run_at) = (SELECT at, at FROM (SELECT"
            " date_trunc('second', now()) + interval '3 seconds'"
            " + %s * split_part(name, '-', 2)::int %% 60 * interval '1 second' AS at) AS t)",
            [0 if together else 1],
        )


def cron_lags(contender: Contender, *, seconds: float, together: bool) -> dict[str, float]:
    """Wait for runs for so long, or for one of each cron job.

    Return their number, and how many milliseconds after its time a run was committed.
    """
    from django_ojs.extensions.cron.models import CronJob, CronRun

    number = CronJob.primary.count()
    began, last = time.perf_counter(), 0
    lags: list[float] = []
    while (took := time.perf_counter() - began) < (_LONGEST if together else seconds):
        runs = CronRun.primary.filter(pk__gt=last).order_by("pk")
        found = list(runs.values_list("pk", "scheduled_at"))
        seen = datetime.now(UTC)
        if found:
            last = found[-1][0]
            lags += [(seen - at) / timedelta(milliseconds=1) for _, at in found]
        if together and len(lags) >= number:
            break
        time.sleep(_POLL)
    assert lags, f"no run in {took:.0f} seconds"
    lags.sort()
    return {"runs": len(lags), "p99": lags[math.ceil(len(lags) * 0.99) - 1], "most": lags[-1]}

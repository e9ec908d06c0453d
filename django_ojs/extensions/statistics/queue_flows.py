"""The jobs that come to queues and leave them, by minute, from the rollups."""

from collections.abc import Collection

from django.db.models import Sum
from django.utils import timezone

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollup_queries import MINUTE, minute_of
from django_ojs.reports.queue_overview import FLOW_MINUTES, Flow


def flows(queues: Collection[str]) -> dict[str, Flow]:
    """Return the flows of these queues over the last minutes."""
    # Write this process's own figures if they are due: it may be a process that seldom does.
    rollups.flush_if_due()
    start = minute_of(timezone.now()) - MINUTE * (FLOW_MINUTES - 1)
    rows = (
        Rollup.primary.filter(minute__gte=start, queue__in=queues)
        .values("queue", "minute")
        .annotate(
            came=Sum("enqueued"),
            done=Sum("completed"),
            gone=Sum("discarded"),
            no=Sum("rejected"),
            lost=Sum("dropped"),
        )
        .order_by()
    )
    found = {queue: Flow() for queue in queues}
    for row in rows:
        flow, index = found[row["queue"]], (row["minute"] - start) // MINUTE
        if 0 <= index < FLOW_MINUTES:  # Other minutes come from processes whose clock is ahead.
            flow.came[index] += row["came"]
            flow.went[index] += row["done"] + row["gone"]
            flow.rejected[index] += row["no"]
            flow.dropped[index] += row["lost"]
    return found

"""All-time sums of the rollups by queue and type, which never decrease.

A process sums up the old minutes once, and later only those that were added since.
"""

import heapq
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from django_ojs.conf import settings
from django_ojs.models import Rollup
from django_ojs.storage import database, process_state, queue_configs
from django_ojs.storage.figures.rollup_compaction import EVER
from django_ojs.storage.figures.rollups import BUCKETS, COLUMNS

#: Minutes that are older than this do not change any more.
_SETTLED = timedelta(minutes=10)

#: The name that stands for all queues, or all types, that are not listed. No name may begin so.
OTHERS: Final = "_other"
#: Producers choose names freely: a process keeps the sums of this many pairs of queue and type.
MAX_KEPT: Final = 20_000


@dataclass(slots=True)
class Total:
    """The sums of a queue and type. Histograms as `rollups.bucket` has them."""

    counts: list[int] = field(default_factory=lambda: [0] * len(COLUMNS))
    waited: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    ran: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, counts: Iterable[int], waited: Iterable[int], ran: Iterable[int]) -> None:
        """Add the sums of other rows."""
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        self.waited = [a + b for a, b in zip(self.waited, waited, strict=True)]
        self.ran = [a + b for a, b in zip(self.ran, ran, strict=True)]


#: By (queue, type), in the order of their first rows.
Totals = dict[tuple[str, str], Total]


class AllTime:
    """The sums by alias: those of old minutes are kept in memory, the others are read each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: dict[str, tuple[datetime, Totals]] = {}

    def totals(self) -> Totals:
        """Return the sums of all rollups, as of now."""
        rows = Rollup.objects.using(alias := database.alias())
        over = datetime.now(UTC) - _SETTLED
        with self._lock:
            since, settled = self._settled.get(alias, (EVER, {}))
            if over - since > _SETTLED:
                settled = _added(settled, rows.filter(minute__gte=since, minute__lt=over))
                settled = largest(settled, MAX_KEPT)
                since, _ = self._settled[alias] = over, settled
        return _added(settled, rows.filter(minute__gte=since))

    def reset(self) -> None:
        """Sum up everything again the next time."""
        with self._lock:
            self._settled.clear()


sums = process_state.register(AllTime())


def largest(totals: Totals, number: int) -> Totals:
    """Return the sums of the pairs with the most jobs, and the others as one.

    A configured queue is never among the others: the rest of its types are one pair of the queue.
    """
    if len(totals) <= number:
        return totals
    configs = queue_configs.current()
    configured = {*settings().queues, *(configs.stored if configs is not None else ())}
    kept = heapq.nlargest(number, totals, key=lambda key: sum(totals[key].counts))
    found = {key: totals[key] for key in kept}
    rest: dict[tuple[str, str], list[Total]] = {}
    for key in totals.keys() - found.keys():
        queue = key[0] if key[0] in configured else OTHERS
        rest.setdefault((queue, OTHERS), []).append(totals[key])
    for key, others in rest.items():
        found[key] = _sum([*others, *([found[key]] if key in found else [])])
    return found


def _sum(totals: Collection[Total]) -> Total:
    counts, waited, ran = (
        [sum(column) for column in zip(*lists, strict=True)]
        for lists in zip(*((each.counts, each.waited, each.ran) for each in totals), strict=True)
    )
    return Total(counts, waited, ran)


def _added(totals: Totals, rows: QuerySet[Rollup]) -> Totals:
    added: Totals = {}
    found = rows.order_by("pk").values_list("queue", "type", "waited", "ran", *COLUMNS)
    for queue, type, waited, ran, *counts in found.iterator(chunk_size=2000):
        key = (queue, type)
        new, known = Total(counts, waited, ran), added.get(key) or totals.get(key)
        added[key] = new if known is None else _sum([known, new])
    return totals | added

"""All-time sums of the rollups by queue and type, which never decrease.

A process sums up the old minutes once, and later only adds newer ones.
"""

import heapq
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Case, JSONField, Q, QuerySet, When

from django_ojs.conf import settings
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollup_compaction import EVER
from django_ojs.extensions.statistics.rollups import BUCKETS, COLUMNS
from django_ojs.storage import in_memory_state, queue_configs
from django_ojs.storage.figures.known_queues import OTHERS

#: Minutes that are older than this do not change any more.
_SETTLED = timedelta(minutes=10)

#: The most pairs of queue and type whose sums a process keeps, because producers choose names
#: freely.
MAX_KEPT: Final = 20_000


#: The histogram of no jobs. Very many names share this one, because none of their jobs was
#: completed.
_EMPTY: Final[Sequence[int]] = (0,) * BUCKETS


@dataclass(slots=True)
class Total:
    """The sums of a queue and type. Histograms have the form of `rollups.bucket`."""

    counts: Sequence[int] = (0,) * len(COLUMNS)
    waited: Sequence[int] = _EMPTY
    ran: Sequence[int] = _EMPTY

    @property
    def runs(self) -> int:
        """How many runs have ended.

        Queues that a producer makes up have none, because no worker claims them.
        """
        return self.counts[rollups.COMPLETED] + self.counts[rollups.FAILED]

    def add(self, other: "Total") -> None:
        """Add other sums. The lists themselves stay as they are: a copy may share them."""
        self.counts = list(map(int.__add__, self.counts, other.counts))
        if other.waited is not _EMPTY or other.ran is not _EMPTY:
            self.waited = [a + b for a, b in zip(self.waited, other.waited, strict=True)]
            self.ran = [a + b for a, b in zip(self.ran, other.ran, strict=True)]


#: The sums by (queue, type).
Totals = dict[tuple[str, str], Total]


class AllTime:
    """The sums. Old minutes are kept in memory; the others are read each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: tuple[datetime, Totals] = (EVER, {})

    def totals(self) -> Totals:
        """Return the sums of all rollups, as of now."""
        over = datetime.now(UTC) - _SETTLED
        with self._lock:
            since, settled = self._settled
            if over - since > _SETTLED:
                old = Rollup.primary.filter(minute__gte=since, minute__lt=over)
                settled = largest(_added(settled, old), MAX_KEPT)
                since, _ = self._settled = over, settled
        return _added(settled, Rollup.primary.filter(minute__gte=since))

    def reset(self) -> None:
        """Sum up everything again the next time."""
        with self._lock:
            self._settled = (EVER, {})


sums = in_memory_state.register(AllTime())


def largest(totals: Totals, number: int) -> Totals:
    """Return the sums of the pairs with the most runs, then the most jobs; the others as one pair.

    A configured queue keeps its name: the rest of its types are one pair of this queue.
    """
    if len(totals) <= number:
        return totals
    configs = queue_configs.current()
    configured = {*settings().queues, *(configs.stored if configs is not None else ())}
    # Reports of progress are not counted, because one job may report very often.
    kept = heapq.nlargest(
        number,
        totals,
        key=lambda key: (totals[key].runs, sum(totals[key].counts[: rollups.PROGRESS_UPDATES])),
    )
    found = {key: totals[key] for key in kept}
    rest: Totals = {}
    for key in totals.keys() - found.keys():
        queue = key[0] if key[0] in configured else OTHERS
        rest.setdefault((queue, OTHERS), Total()).add(totals[key])
    for key in rest.keys() & found.keys():
        rest[key].add(found[key])
    return found | rest


def _added(totals: Totals, rows: QuerySet[Rollup]) -> Totals:
    added: Totals = {}
    # Empty histograms are not parsed: most rows of made-up names have them.
    histograms = [
        Case(When(~Q((column, list(_EMPTY))), then=column), output_field=JSONField())
        for column in ("waited", "ran")
    ]
    found = rows.order_by("pk").values_list("queue", "type", *histograms, *COLUMNS)
    for queue, type, waited, ran, *counts in found.iterator(chunk_size=2000):
        key = (queue, type)
        total = Total(counts, waited or _EMPTY, ran or _EMPTY)
        if key in added:
            added[key].add(total)
        else:
            # The known sums are not changed, because others read them.
            if key in totals:
                total.add(totals[key])
            added[key] = total
    return totals | added

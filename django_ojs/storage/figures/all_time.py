"""All-time sums of the rollups by queue and type, which never decrease.

A process sums up the old minutes once, and later only those that were added since.
"""

import threading
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import QuerySet

from django_ojs.models import Rollup
from django_ojs.storage import database, process_state
from django_ojs.storage.figures.rollup_compaction import EVER
from django_ojs.storage.figures.rollups import BUCKETS, COLUMNS

#: Minutes that are older than this do not change any more.
_SETTLED = timedelta(minutes=10)


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
                added = deepcopy(settled)
                _add(added, rows.filter(minute__gte=since, minute__lt=over))
                since, settled = self._settled[alias] = over, added
            totals = deepcopy(settled)
        _add(totals, rows.filter(minute__gte=since))
        return totals

    def reset(self) -> None:
        """Sum up everything again the next time."""
        with self._lock:
            self._settled.clear()


sums = process_state.register(AllTime())


def _add(totals: Totals, rows: QuerySet[Rollup]) -> None:
    found = rows.order_by("pk").values_list("queue", "type", "waited", "ran", *COLUMNS)
    for queue, type, waited, ran, *counts in found.iterator(chunk_size=2000):
        totals.setdefault((queue, type), Total()).add(counts, waited, ran)

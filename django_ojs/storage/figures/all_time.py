"""What ever happened, by queue and type: the sum of the rollups, which only grows.

A process adds up the minutes that are over once, and then only what came since.
"""

import threading
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import QuerySet

from django_ojs.models import Rollup
from django_ojs.storage import database
from django_ojs.storage.figures.rollup_compaction import EVER
from django_ojs.storage.figures.rollups import BUCKETS, COLUMNS

#: Minutes that are older than this do not change any more.
_SETTLED = timedelta(minutes=10)


@dataclass(slots=True)
class Total:
    """What happened to the jobs of a queue and type. Histograms as `rollups.bucket` has them."""

    counts: list[int] = field(default_factory=lambda: [0] * len(COLUMNS))
    waited: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    ran: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, counts: Iterable[int], waited: Iterable[int], ran: Iterable[int]) -> None:
        """Add what happened beside."""
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        self.waited = [a + b for a, b in zip(self.waited, waited, strict=True)]
        self.ran = [a + b for a, b in zip(self.ran, ran, strict=True)]


#: By (queue, type), in the order in which they first came.
Totals = dict[tuple[str, str], Total]

_lock = threading.Lock()
_settled: dict[str, tuple[datetime, Totals]] = {}


def ever() -> Totals:
    """Return the sums of all that was ever written down, as of now."""
    rows = Rollup.objects.using(alias := database.alias())
    over = datetime.now(UTC) - _SETTLED
    with _lock:
        since, settled = _settled.get(alias, (EVER, {}))
        if over - since > _SETTLED:
            added = deepcopy(settled)
            _add(added, rows.filter(minute__gte=since, minute__lt=over))
            since, settled = _settled[alias] = over, added
        totals = deepcopy(settled)
    _add(totals, rows.filter(minute__gte=since))
    return totals


def forget() -> None:
    """Add up anew the next time."""
    with _lock:
        _settled.clear()


def _add(totals: Totals, rows: QuerySet[Rollup]) -> None:
    found = rows.order_by("pk").values_list("queue", "type", "waited", "ran", *COLUMNS)
    for queue, type, waited, ran, *counts in found.iterator(chunk_size=2000):
        totals.setdefault((queue, type), Total()).add(counts, waited, ran)

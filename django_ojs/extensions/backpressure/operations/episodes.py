"""Episodes of a bounded queue: since when it has been full or nearly full, for operators.

A queue near its bound crosses it many times a minute. So an episode has hysteresis: it begins when
the pressure reaches the warning threshold (nearly full) or with the first rejection (full), and
ends when the pressure has been a tenth under the threshold for a minute. Three columns of the queue
have its state; they are written when it changes, and never by an enqueue that has room.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.models import Queue
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.times import elapsed
from django_ojs.storage import database

#: An episode ends when the pressure has been below this part of the warning threshold for a while.
EASED: Final = 0.9
#: How long the pressure must have been that low.
ENDS_AFTER: Final = timedelta(minutes=1)

_COLUMNS: Final = ("near_full_at", "full_at", "eased_at")


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """Since when a queue has been nearly full and full; and since when the pressure is low again.

    `full_at` may be the time of the first rejection, or when the queue was found at its bound.
    """

    near_full_at: datetime | None = None
    full_at: datetime | None = None
    eased_at: datetime | None = None

    def at(self, now: datetime) -> "Episode":
        """Return the episode, or NONE if it is over."""
        return NONE if self.eased_at and elapsed(self.eased_at, now) >= ENDS_AFTER else self

    def after(self, pressure: float, threshold: float, full: bool, now: datetime) -> "Episode":
        """Return the episode after a check of the pressure."""
        past = self.at(now)
        if full or pressure >= threshold:
            return Episode(
                near_full_at=past.near_full_at or now,
                full_at=past.full_at or (now if full else None),
            )
        if past == NONE or pressure >= threshold * EASED:
            return replace(past, eased_at=None)
        return replace(past, eased_at=past.eased_at or now)


NONE: Final = Episode()


def of(queues: Collection[str]) -> dict[str, Episode]:
    """Return the episodes of these queues, without those that are over."""
    rows = Queue.primary.filter(pk__in=queues, near_full_at__isnull=False).annotate(now=Now())
    found = {
        name: Episode(near_full_at=near_full_at, full_at=full_at, eased_at=eased_at).at(now)
        for name, now, near_full_at, full_at, eased_at in rows.values_list("name", "now", *_COLUMNS)
    }
    return {name: episode for name, episode in found.items() if episode != NONE}


def check(queue: str, bound: Backpressure, found: Load) -> None:
    """Compare the load of a queue with its bound. Called inside a write transaction."""
    full = bounds.is_bounded(bound) and not found.with_(1, 0).fits(bound)
    # If another session has locked the row, the next check does this.
    _advance(queue, found.pressure(bound), bound.warning_threshold, full, database.update_free)


def rejected(queue: str) -> None:
    """Record that a queue rejected a job. Called inside a write transaction."""
    _advance(queue, 1.0, 1.0, True, QuerySet.update)


def _advance(
    queue: str, pressure: float, threshold: float, full: bool, update: Callable[..., int]
) -> None:
    rows = Queue.primary.filter(pk=queue)
    row = rows.annotate(now=Now()).values("now", *_COLUMNS).first()
    if row is None:
        if not full and pressure < threshold:
            return
        # The queue has no row yet: it is configured in the settings, or inherits its bound.
        Queue.primary.bulk_create([Queue(name=queue)], ignore_conflicts=True)
        row = rows.annotate(now=Now()).values("now", *_COLUMNS).get()
    now = row.pop("now")
    past = Episode(**row)
    following = past.after(pressure, threshold, full, now)
    if following != past:
        update(rows, **{name: getattr(following, name) for name in _COLUMNS})

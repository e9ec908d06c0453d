"""Signs of life: how long a claim and a worker last without one.

ojs-core §7.5, worker-protocol §5 and §10.
"""

from datetime import timedelta
from typing import Any

from django.db.models import F, Func
from django.db.models.functions import Greatest, Now

from django_ojs.models import Worker
from django_ojs.storage.dialects.expressions import Milliseconds

#: A worker is dead after this many missed heartbeats.
MISSED_BEATS = 3

#: The shortest silence after which a worker that does not send its interval is dead: three of the
#: intervals that ojs-core §7.5 recommends.
SHORTEST_SILENCE = timedelta(seconds=45)

_MILLISECOND = timedelta(milliseconds=1)


def after_beat(worker_id: str, interval: timedelta | None) -> dict[str, Any]:
    """Return the columns of the worker that a BEAT changes, besides what the worker reports.

    `interval` is the time to its next beat, if it sends one, now or earlier. If it does not, the
    interval is the time since its last beat.
    """
    seen = {"seen_at": Now(), "beat_at": Now()}
    if interval is not None:
        milliseconds = interval // _MILLISECOND
        return seen | {
            "beat_interval_ms": milliseconds,
            "dead_after_ms": MISSED_BEATS * milliseconds,
        }
    return seen | {"dead_after_ms": _silence(worker_id) // _MILLISECOND}


def extended(by: timedelta | None = None) -> Func:
    """Return the new end of a reservation that a sign of life extends, never an earlier one.

    Without `by`, it is extended by the length that it was claimed with.
    """
    return Greatest(F("lease_until"), Now() + (by or Milliseconds(F("lease_ms"))))


def _silence(worker_id: str) -> timedelta:
    known = Worker.primary.filter(pk=worker_id).annotate(now=Now()).first()
    if known is None or known.beat_at is None:
        return SHORTEST_SILENCE
    if known.beat_interval_ms is not None:
        return MISSED_BEATS * known.beat_interval_ms * _MILLISECOND
    return max(
        SHORTEST_SILENCE,
        MISSED_BEATS * (known.now - known.beat_at),
        # An extra beat, for example by a handler, is no shorter interval: the limit falls slowly.
        known.dead_after_ms * _MILLISECOND / 2,
    )

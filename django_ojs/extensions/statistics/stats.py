"""The numbers and rates of jobs: totals, and by queue (ojs-admin-api §10.1).

Nothing here reads the jobs: the figures come from the counts and the rollups.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django_ojs.extensions.statistics import rollup_queries, rollups
from django_ojs.operations import queues
from django_ojs.operations.workers import registry
from django_ojs.spec.states import State
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import ByState

#: Rates are means over this time, which ends now.
RATE_OVER = timedelta(minutes=5)

_started = time.monotonic()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Rates per minute over the last five minutes.

    Processed runs ended with a result or an error, failed runs with an error.
    `latency_ms` are percentiles of the time from available to started, of the jobs that were
    completed; None when there were none.
    """

    processed_per_minute: float = 0.0
    failed_per_minute: float = 0.0
    latency_ms: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """All queues together. `uptime_seconds` is the uptime of this process."""

    queues: int
    workers: int
    jobs: ByState
    rates: Rates
    uptime_seconds: int


def totals(*, within: Collection[str] | None = None) -> Totals:
    """Return the sums over all queues, or over those that the caller may use."""
    jobs = counts.totals(within)
    return Totals(
        queues=queues.number(within),
        workers=registry.listing(limit=0, within=within).total,
        jobs={state: jobs.get(state, 0) for state in State},
        rates=_rates(rollup_queries.recent(RATE_OVER, within)),
        uptime_seconds=int(time.monotonic() - _started),
    )


def rates(names: Collection[str]) -> dict[str, Rates]:
    """Return the rates of these queues; a queue without activity has zeros."""
    lately = rollup_queries.recent_by_queue(RATE_OVER, names)
    return {name: _rates(lately.get(name, rollup_queries.RecentTotals())) for name in names}


def rendered(rates: Rates) -> dict[str, Any]:
    """Return the jobs per minute and how long jobs waited, without percentiles that are unknown."""
    return {
        "throughput": {
            "processed_per_minute": rates.processed_per_minute,
            "failed_per_minute": rates.failed_per_minute,
        },
        "latency_ms": {
            name: value for name, value in rates.latency_ms.items() if value is not None
        },
    }


def percentiles(
    histogram: Collection[int], shares: Iterable[int] = (50, 95, 99)
) -> dict[str, float | None]:
    """Return percentiles of a histogram in milliseconds, as `p50` and so on."""
    found: dict[str, float | None] = {}
    for share in shares:
        seconds = rollups.percentile(list(histogram), share / 100)
        found[f"p{share}"] = None if seconds is None else round(seconds * 1000, 1)
    return found


def _rates(lately: rollup_queries.RecentTotals) -> Rates:
    minutes = RATE_OVER / timedelta(minutes=1)
    return Rates(
        processed_per_minute=round((lately.completed + lately.failed) / minutes, 2),
        failed_per_minute=round(lately.failed / minutes, 2),
        latency_ms=percentiles(lately.waited),
    )

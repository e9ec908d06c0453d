"""The metrics of jobs and queues for Prometheus: counts now, and counters from the rollups."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from django_ojs.conf import settings
from django_ojs.extensions.statistics import all_time, rollup_queries, rollups, scheduling
from django_ojs.extensions.statistics.all_time import Total
from django_ojs.http.metrics import MAX_SERIES
from django_ojs.operations.maintenance import stalled
from django_ojs.operations.workers import registry as workers
from django_ojs.spec.states import State
from django_ojs.storage.figures import counts, known_queues
from django_ojs.storage.figures.known_queues import OTHERS

_COUNTERS: Final = (
    ("ojs_job_enqueued", "Jobs enqueued.", (rollups.ENQUEUED,)),
    ("ojs_job_completed", "Jobs completed.", (rollups.COMPLETED,)),
    ("ojs_job_failed", "Jobs discarded.", (rollups.DISCARDED, rollups.DROPPED)),
    ("ojs_job_errors", "Runs that ended with an error.", (rollups.FAILED,)),
)
_QUEUE_COUNTERS: Final = (
    ("ojs_backpressure_rejected", "Jobs rejected by a full queue.", rollups.REJECTED),
    ("ojs_backpressure_dropped", "Jobs dropped by a full queue.", rollups.DROPPED),
    (
        "ojs_history_write_failures",
        "Runs that are not in the history of their job.",
        rollups.HISTORY_FAILURES,
    ),
)


def metrics(within: Collection[str] | None) -> Iterator[Metric]:
    """Yield the metrics of these queues."""
    totals = _totals(within)
    yield from _jobs(totals)
    yield from _queues(within, totals)
    yield from _pools(within)


def _jobs(found: all_time.Totals) -> Iterator[Metric]:
    labels = ["queue", "type"]
    for name, text, columns in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=labels)
        for key, total in found.items():
            counter.add_metric(key, sum(total.counts[column] for column in columns))
        yield counter
    reports = CounterMetricFamily(
        "ojs_progress_updates", "Reports of progress.", labels=["queue", "job_type"]
    )
    for key, total in found.items():
        reports.add_metric(key, total.counts[rollups.PROGRESS_UPDATES])
    yield reports
    ran = HistogramMetricFamily(
        "ojs_job_duration_seconds", "How long jobs ran.", labels=[*labels, "state"]
    )
    waited = HistogramMetricFamily(
        "ojs_job_queue_time_seconds", "How long jobs waited for their start.", labels=labels
    )
    for (queue, type), total in found.items():
        _add(ran, (queue, type, State.COMPLETED.value), total.ran)
        _add(waited, (queue, type), total.waited)
    yield from (ran, waited)
    by_queue: dict[str, Total] = {}
    for (queue, _), total in found.items():
        by_queue.setdefault(queue, Total()).add(total)
    for name, text, column in _QUEUE_COUNTERS:
        counter = CounterMetricFamily(name, text, labels=["queue"])
        for queue, total in by_queue.items():
            counter.add_metric([queue], total.counts[column])
        yield counter


def _totals(within: Collection[str] | None) -> all_time.Totals:
    totals = all_time.sums.totals()
    if within is not None:
        totals = {key: total for key, total in totals.items() if key[0] in within}
    return all_time.largest(totals, MAX_SERIES)


def _add(family: HistogramMetricFamily, key: tuple[str, ...], histogram: Sequence[int]) -> None:
    # The n-th bucket ends at 2**n ms; the last one has no end.
    total, buckets = 0, []
    for index, number in enumerate(histogram[:-1]):
        total += number
        buckets.append((repr(2.0**index / 1000), float(total)))
    total += histogram[-1]
    buckets.append(("+Inf", float(total)))
    # The sum is estimated from the buckets: it may be off by a third.
    family.add_metric(
        list(key), buckets, sum_value=(rollup_queries.mean(histogram) or 0) * total / 1000
    )


def _queues(within: Collection[str] | None, totals: all_time.Totals) -> Iterator[Metric]:
    depth = GaugeMetricFamily(
        "ojs_queue_depth", "Stored jobs, by state.", labels=["queue", "state"]
    )
    busy = GaugeMetricFamily("ojs_workers_busy", "Jobs that run.", labels=["queue"])
    stalled_jobs = GaugeMetricFamily(
        "ojs_progress_stalled_jobs", "Running jobs that have stopped reporting.", labels=["queue"]
    )
    # Most jobs may wait in queues that a producer has made up, so queues that workers serve are
    # listed first.
    served = {queue for (queue, _), total in totals.items() if total.runs and queue != OTHERS}
    known = known_queues.by_load(limit=MAX_SERIES, within=within, emptied=True, known=served)
    by_queue = counts.by_queue(known.names)
    shown = {queue: by_queue.get(queue, {}) for queue in sorted(known.names)}
    if known.total > len(shown):
        others = Counter(counts.totals(within))
        for states in shown.values():
            others.subtract(states)
        # The two queries have no common snapshot.
        shown[OTHERS] = {state: max(0, number) for state, number in others.items()}
    reported = any(total.counts[rollups.PROGRESS_UPDATES] for total in totals.values())
    silent = stalled.by_queue(within) if reported else Counter[str]()
    silent[OTHERS] = sum(number for queue, number in silent.items() if queue not in shown)
    for queue, states in shown.items():
        for state in State:
            depth.add_metric([queue, state.value], states.get(state, 0))
        busy.add_metric([queue], states.get(State.ACTIVE, 0))
        stalled_jobs.add_metric([queue], silent[queue])
    active = GaugeMetricFamily("ojs_workers_active", "Workers that run.")
    active.add_metric([], workers.listing(limit=0, within=within).running)
    yield from (depth, busy, stalled_jobs, active)


def _pools(within: Collection[str] | None) -> Iterator[Metric]:
    """Yield how the queues are served (ojs-fair-scheduling §11.2), if there are pools."""
    if not settings().pools:
        return
    ratio = GaugeMetricFamily(
        "ojs_scheduling_dispatch_ratio",
        "The share of a queue in the runs of the last minute.",
        labels=["queue"],
    )
    for figures in scheduling.scheduling(within=within).queues[:MAX_SERIES]:
        ratio.add_metric([figures.queue], figures.ratio)
    yield ratio

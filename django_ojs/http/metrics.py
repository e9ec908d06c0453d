"""Metrics for Prometheus (ojs-observability §8, ojs-backpressure §10.2).

They come from the database, so that every process returns the same. The queries read counts and not
jobs, except one, which reads the running jobs where jobs report their progress.
Counters and histograms come from the rollups, which processes write every ten seconds.
"""

from collections.abc import Collection, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from django_ojs.hooks import registry

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Producers choose names freely. So at most this many pairs of queue and type, and this many queues
#: without a configuration, have their own series: first those with the most runs, then those with
#: the most jobs. The others are counted together.
MAX_SERIES: Final = 1_000


def render(within: Collection[str] | None) -> bytes:
    """Return all metrics as text, or those of some queues."""
    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(_DatabaseCollector(within))
    return generate_latest(collectors)


class _DatabaseCollector(Collector):
    def __init__(self, within: Collection[str] | None) -> None:
        self._within = within

    def collect(self) -> Iterator[Metric]:
        yield from registry.brought("metrics", self._within)

"""Metrics for Prometheus (ojs-observability §8, ojs-backpressure §10.2).

They come from the database, so that every process returns the same. No query reads jobs; only where
jobs report their progress, one reads those that run.
Counters and histograms come from the rollups, which processes write every ten seconds.
"""

import logging
from collections.abc import Collection, Iterator
from typing import Final

from django.db import DatabaseError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from django_ojs.extension import Extension
from django_ojs.hooks import registry

logger = logging.getLogger("django_ojs.http")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Producers choose names freely. Of the pairs of queue and type, and of the queues without a
#: configuration, this many have series of their own: those with the most runs, then with the most
#: jobs. The others are counted as one.
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
        for extension in registry.extensions():
            yield from _of(extension, self._within)


def _of(extension: Extension, within: Collection[str] | None) -> list[Metric]:
    """Return the metrics of an extension. One that fails leaves those of the others."""
    try:
        return list(extension.metrics(within))
    except DatabaseError:
        raise
    except Exception:
        logger.exception("The extension %s of django_ojs has no metrics.", extension.name)
        return []

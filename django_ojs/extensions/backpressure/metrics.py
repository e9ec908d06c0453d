"""The metrics of bounds for Prometheus (ojs-backpressure §10.2)."""

from collections.abc import Collection, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.storage.queue_configs import config_of


def metrics(within: Collection[str] | None) -> Iterator[Metric]:
    """Yield the pressure of the bounded queues."""
    pressure = GaugeMetricFamily(
        "ojs_backpressure_pressure", "Depth divided by bound.", labels=["queue"]
    )
    for queue in bounds.bounded():
        if within is not None and queue not in within:
            continue
        bound = config_of(queue).backpressure
        if bounds.is_bounded(bound):
            pressure.add_metric([queue], min(1.0, bounds.load(queue).pressure(bound)))
    yield pressure

"""The metrics of limit keys."""

from collections.abc import Collection, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from django_ojs.extensions.limits import limit_keys


def metrics(within: Collection[str] | None) -> Iterator[Metric]:
    """Yield the number of keys that hold jobs."""
    # There is no series for each key, because each customer may have one. The jobs of a key may be
    # in any queue, so a caller who may use only some queues gets no number.
    if within is None:
        keys = GaugeMetricFamily(
            "ojs_rate_limit_keys", "Limit keys whose jobs are held.", labels=["strategy"]
        )
        for strategy, number in limit_keys.at_limit().items():
            keys.add_metric([strategy], number)
        yield keys

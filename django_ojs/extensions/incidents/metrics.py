"""The incidents as a gauge."""

from collections.abc import Collection, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from django_ojs.reports import incidents


def metrics(within: Collection[str] | None) -> Iterator[Metric]:
    """Yield a gauge with the value 1 for each incident, until it is over.

    The text of an incident is not a label: it has numbers, and each change would be a new series.
    A scrape writes nothing.
    """
    gauge = GaugeMetricFamily(
        "ojs_incident",
        "What is wrong now, as the overview of the admin and ojs doctor tell it.",
        labels=["identity", "kind", "severity"],
    )
    for each in incidents.look(within, and_keep=False):
        if each.is_incident:
            gauge.add_metric([each.identity, each.kind, each.severity], 1)
    yield gauge

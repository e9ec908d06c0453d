"""The incidents: the maintenance looks for them, HTTP and the metrics show them."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from django_ojs.extension import DueStep, Extension


class IncidentsExtension(Extension):
    """Keeps the incidents."""

    name = "incidents"
    number = 21
    openapi = Path(__file__).with_name("openapi.yaml")

    def due_steps(self) -> Sequence[DueStep]:
        """Look for incidents, because one may begin and end while no operator looks."""
        from django_ojs.reports import incidents

        return (DueStep(run=incidents.look_and_forget, interval=15.0),)

    def routes(self) -> Sequence[Any]:
        """Return the route of what is wrong now."""
        from django_ojs.extensions.incidents import views
        from django_ojs.http.routing import route

        return (route("v1/health/findings", views.Findings, "ojs-health-findings"),)

    def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
        """Return a gauge for each incident."""
        from django_ojs.extensions.incidents.metrics import metrics

        return metrics(within)

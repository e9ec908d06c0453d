"""What is wrong now, over HTTP."""

from typing import Any

from django.http import HttpRequest

from django_ojs.finding import as_json
from django_ojs.http.views.base import OJSView
from django_ojs.reports import health_queries, incidents, verdict
from django_ojs.spec.scopes import Scope


class Findings(OJSView):
    """The detail of `GET /health`: what was found, worst first, for a caller with a key."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        """Return what concerns the queues that the caller may use.

        The verdict is about all queues, so a key that is limited to some does not get it.
        """
        within = self.access.queues
        found, figures = incidents.look_at_all(within)
        is_well = not any(each.is_incident for each in found)
        return {
            "status": "ok" if is_well else "degraded",
            "verdict": (
                str(verdict.of(figures, health_queries.maintained())) if within is None else None
            ),
            "findings": [as_json(each) for each in found],
        }

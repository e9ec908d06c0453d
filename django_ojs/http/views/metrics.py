"""Metrics for Prometheus (ojs-observability §8)."""

from importlib.util import find_spec

from django.http import HttpRequest, HttpResponse

from django_ojs.http.views.base import OJSView
from django_ojs.spec.errors import NotFound
from django_ojs.spec.scopes import Scope


class Metrics(OJSView):
    """The metrics of the queues that the caller may use, as text; errors are JSON.

    The package needs its extra `metrics` for this.
    """

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest) -> HttpResponse:
        if find_spec("prometheus_client") is None:
            raise NotFound(
                "Metrics need the package prometheus-client.",
                hint="Install the server with django-ojs[metrics].",
            )
        from django_ojs.http.metrics import CONTENT_TYPE, render

        return HttpResponse(
            render(self.access.queues),
            content_type=CONTENT_TYPE,
            headers={"Cache-Control": "no-store"},
        )

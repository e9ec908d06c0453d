"""Metrics for Prometheus (ojs-observability §8)."""

from importlib.util import find_spec
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from django_ojs.http.access import Scope
from django_ojs.http.views.base import OJSView
from django_ojs.spec.errors import NotFound


class Metrics(OJSView):
    """All metrics, or those of the queues that the caller may use; errors as everywhere.

    The one answer that is no JSON. Needs the extra `metrics`.
    """

    needs = {"GET": Scope.READ}

    def get(self, request: Request) -> HttpResponse:
        """Look into the database and write down what is there."""
        if find_spec("prometheus_client") is None:
            raise NotFound(
                "Metrics need the package prometheus-client.",
                hint="Install the server with django-ojs[metrics].",
            )
        from django_ojs.http.metrics import CONTENT_TYPE, render

        response = HttpResponse(render(self.access.queues), content_type=CONTENT_TYPE)
        response["Cache-Control"] = "no-store"
        return response

    def finalize_response(  # type: ignore[override]  # as in OJSView
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Leave the text's own type on it."""
        kind = response["Content-Type"] if isinstance(response, HttpResponse) else None
        done = super().finalize_response(request, response, *args, **kwargs)
        if kind is not None:
            done["Content-Type"] = kind
        return done

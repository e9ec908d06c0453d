"""How a route is written down: `route("v1/jobs", Jobs, "ojs-jobs")`."""

from collections.abc import Callable

from django.db import connections
from django.http import HttpResponseBase
from django.urls import URLPattern, path

from django_ojs.http.views.base import OJSView


def route(pattern: str, view: type[OJSView], name: str) -> URLPattern:
    """Serve a view under `ojs/`. Each operation is a transaction of its own."""
    return path(f"ojs/{pattern}", _own_transactions(view.as_view()), name=name)


def _own_transactions(
    view: Callable[..., HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    # ATOMIC_REQUESTS would hold a FETCH's row locks until its answer is rendered, and would roll
    # back what an error's answer says was stored.
    view._non_atomic_requests = set(connections)  # type: ignore[attr-defined]  # Django's own mark
    return view

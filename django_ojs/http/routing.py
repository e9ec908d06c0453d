"""A route of the API: `route("v1/jobs", Jobs, "ojs-jobs")`."""

from django.db import connections
from django.urls import URLPattern, path

from django_ojs.http.views.base import OJSView


def route(pattern: str, view: type[OJSView], name: str, **attributes: str) -> URLPattern:
    """Serve a view with these attributes under `ojs/`, without ATOMIC_REQUESTS.

    That setting would hold the row locks of a FETCH until the response is rendered, and roll back
    what an error response reports as stored. Each operation is a transaction of its own.
    """
    function = view.as_view(**attributes)
    function._non_atomic_requests = set(connections)  # type: ignore[attr-defined]  # as non_atomic_requests() sets it
    return path(f"ojs/{pattern}", function, name=name)

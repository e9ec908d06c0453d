"""Manifest, health and readiness (http-binding §8, §21)."""

import time
from typing import Any, Final

from django.db import Error
from django.http import HttpRequest, HttpResponse

from django_ojs.http import readiness
from django_ojs.http.headers import VERSION
from django_ojs.http.manifest import manifest
from django_ojs.http.responses import json_response
from django_ojs.http.views.base import PublicView
from django_ojs.storage import database

_STARTED: Final = time.monotonic()
_probe: Final = readiness.Probe()


class ManifestView(PublicView):
    """The manifest (http-binding §21)."""

    def get(self, request: HttpRequest) -> dict[str, Any]:
        # A project may include the URLs under a prefix.
        return manifest(request.build_absolute_uri(request.path.removesuffix("/manifest")))


class Health(PublicView):
    """Whether the server reaches its database (http-binding §8.1)."""

    status = "ok"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Return 200, or 503 without the reason if the check of the database fails."""
        began = time.monotonic()
        backend: dict[str, Any] = {"type": database.kind()}
        try:
            is_well = self.is_well()
        except Error:
            # A connection that was lost fails until it is closed.
            database.connection().close_if_unusable_or_obsolete()
            is_well = False
        if not is_well:
            backend["status"] = "disconnected"
            return json_response(_report("degraded", backend), 503, {"Retry-After": "1"})
        backend["status"] = "connected"
        backend["latency_ms"] = round((time.monotonic() - began) * 1000)
        return json_response(_report(self.status, backend))

    def is_well(self) -> bool:
        """Ask the database. Raises Error."""
        with database.connection().cursor() as cursor:
            cursor.execute("SELECT 1")
        return True


class Ready(Health):
    """Whether the server is ready for requests: its database is migrated, and takes writes."""

    status = "ready"

    def is_well(self) -> bool:
        if database.dialect().is_server:
            return _probe.is_ready()
        return readiness.is_ready(database.connection())


def _report(status: str, backend: dict[str, Any]) -> dict[str, Any]:
    uptime = int(time.monotonic() - _STARTED)
    return {"status": status, "version": VERSION, "uptime_seconds": uptime, "backend": backend}

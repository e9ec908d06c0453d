"""Manifest, health and readiness (http-binding §8, §21)."""

import time
from typing import Any, Final

from django.db import Error
from django.http import HttpResponse
from rest_framework.request import Request

from django_ojs.http.headers import VERSION
from django_ojs.http.manifest import manifest
from django_ojs.http.responses import json_response
from django_ojs.http.views.base import PublicView
from django_ojs.models import Job
from django_ojs.storage import database

_STARTED: Final = time.monotonic()


class ManifestView(PublicView):
    """The manifest (http-binding §21)."""

    def get(self, request: Request) -> dict[str, Any]:
        # A project may include the URLs under a prefix.
        return manifest(request.build_absolute_uri(request.path.removesuffix("/manifest")))


class Health(PublicView):
    """Whether the server reaches its database (http-binding §8.1)."""

    def get(self, request: Request) -> HttpResponse:
        return self.check("SELECT 1", "ok")

    def check(self, statement: str, status: str) -> HttpResponse:
        """Run a statement; return 200, or 503 where it fails, without the reason."""
        began = time.monotonic()
        backend: dict[str, Any] = {"type": database.kind()}
        try:
            with database.connection().cursor() as cursor:
                cursor.execute(statement)
        except Error:
            # A connection that was lost fails until it is closed.
            database.connection().close_if_unusable_or_obsolete()
            backend["status"] = "disconnected"
            return json_response(_report("degraded", backend), 503, {"Retry-After": "1"})
        backend["status"] = "connected"
        backend["latency_ms"] = round((time.monotonic() - began) * 1000)
        return json_response(_report(status, backend))


class Ready(Health):
    """Whether the server is ready for requests: its database is migrated."""

    def get(self, request: Request) -> HttpResponse:
        # The newest column of the table.
        return self.check(f"SELECT unique_key FROM {Job._meta.db_table} WHERE false", "ready")


def _report(status: str, backend: dict[str, Any]) -> dict[str, Any]:
    uptime = int(time.monotonic() - _STARTED)
    return {"status": status, "version": VERSION, "uptime_seconds": uptime, "backend": backend}

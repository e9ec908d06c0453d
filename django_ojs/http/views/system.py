"""Manifest, health and readiness (http-binding §8, §21)."""

import time
from typing import Any, Final

from django.db import Error
from django.http import HttpResponse
from rest_framework.request import Request

from django_ojs.http.headers import VERSION
from django_ojs.http.manifest import manifest
from django_ojs.http.views.base import PublicView
from django_ojs.models import Job
from django_ojs.storage import database

_STARTED: Final = time.monotonic()


class Manifest(PublicView):
    """What is served here (http-binding §21)."""

    def get(self, request: Request) -> dict[str, Any]:
        """Return the manifest."""
        # Where we are is where the manifest was asked for: a project may serve all under a prefix.
        return manifest(request.build_absolute_uri(request.path.removesuffix("/manifest")))


class Health(PublicView):
    """Whether the server and its database are well (http-binding §8.1)."""

    def get(self, request: Request) -> HttpResponse:
        """Ask the database for a one."""
        return self.ask("SELECT 1", "ok")

    def ask(self, statement: str, status: str) -> HttpResponse:
        """Run a statement; answer 200, or 503 where it fails. Nothing of the failure is told."""
        began = time.monotonic()
        backend: dict[str, Any] = {"type": database.connection().vendor}
        try:
            with database.connection().cursor() as cursor:
                cursor.execute(statement)
        except Error:
            # A connection that died stays dead until it is closed.
            database.connection().close_if_unusable_or_obsolete()
            backend["status"] = "disconnected"
            return self.answer(self._about("degraded", backend), 503, {"Retry-After": "1"})
        backend["status"] = "connected"
        backend["latency_ms"] = round((time.monotonic() - began) * 1000, 1)
        return self.answer(self._about(status, backend))

    def _about(self, status: str, backend: dict[str, Any]) -> dict[str, Any]:
        uptime = int(time.monotonic() - _STARTED)
        return {"status": status, "version": VERSION, "uptime_seconds": uptime, "backend": backend}


class Ready(Health):
    """Whether requests should come here: the database answers, and its tables are there."""

    def get(self, request: Request) -> HttpResponse:
        """Look at the newest column of the jobs' table."""
        return self.ask(f"SELECT unique_key FROM {Job._meta.db_table} WHERE false", "ready")

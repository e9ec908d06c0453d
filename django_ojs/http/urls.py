"""The routes of the HTTP binding: `path("", include("django_ojs.http.urls"))`."""

from collections.abc import Callable
from typing import Any

from django.db import connections
from django.http import HttpResponseBase
from django.urls import URLPattern, URLResolver, path, re_path

from django_ojs.http.views import jobs, openapi, system, workers
from django_ojs.http.views.base import OJSView, Unknown


def route(pattern: str, view: type[OJSView], name: str) -> URLPattern:
    """Serve a view under `ojs/`. Each operation is a transaction of its own."""
    return path(f"ojs/{pattern}", _own_transactions(view.as_view(route=name)), name=name)


def _own_transactions(
    view: Callable[..., HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    # ATOMIC_REQUESTS would hold a FETCH's row locks until its answer is rendered, and would roll
    # back what an error's answer says was stored.
    view._non_atomic_requests = set(connections)  # type: ignore[attr-defined]  # Django's own mark
    return view


_JOB = "v1/jobs/<str:key>"

urlpatterns: list[URLPattern | URLResolver | Any] = [
    route("manifest", system.Manifest, "ojs-manifest"),
    route("v1/health", system.Health, "ojs-health"),
    route("v1/ready", system.Ready, "ojs-ready"),
    route("v1/openapi.json", openapi.OpenAPI, "ojs-openapi"),
    # Jobs
    route("v1/jobs", jobs.Jobs, "ojs-jobs"),
    route("v1/jobs/batch", jobs.JobBatch, "ojs-jobs-batch"),
    route(_JOB, jobs.JobDetail, "ojs-job"),
    route(f"{_JOB}/activate", jobs.JobActivate, "ojs-job-activate"),
    route(f"{_JOB}/cancel", jobs.JobCancel, "ojs-job-cancel"),
    route(f"{_JOB}/ack", workers.Ack, "ojs-job-ack"),
    route(f"{_JOB}/nack", workers.Nack, "ojs-job-nack"),
    # Workers
    route("v1/workers/fetch", workers.Fetch, "ojs-fetch"),
    route("v1/workers/ack", workers.Ack, "ojs-ack"),
    route("v1/workers/nack", workers.Nack, "ojs-nack"),
    route("v1/workers/heartbeat", workers.Heartbeat, "ojs-heartbeat"),
    route("v1/workers/beat", workers.Heartbeat, "ojs-beat"),
    # Anything else under ojs/
    re_path(r"^ojs(/.*)?$", Unknown.as_view(), name="ojs-unknown"),
]

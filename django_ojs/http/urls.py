"""The routes of the HTTP binding: `path("", include("django_ojs.http.urls"))`."""

from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, re_path

from django_ojs.hooks import registry

try:
    from django_ojs.http import unsupported_routes, urls_admin
    from django_ojs.http.routing import route
    from django_ojs.http.views import (
        dead_letter,
        history,
        jobs,
        metrics,
        openapi,
        progress,
        queues,
        system,
        workers,
    )
    from django_ojs.http.views.base import UnknownPath
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("rest_framework", "yaml"):
        raise
    raise ImproperlyConfigured(
        f"The HTTP API needs the module {missing}: install django-ojs[http]."
    ) from error

_JOB = "v1/jobs/<str:key>"
_QUEUE = "v1/queues/<str:name>"
_DEAD_LETTER = "v1/dead-letter/<str:key>"

urlpatterns: list[URLPattern] = [
    # Frequent paths come first, because a path is compared with one pattern after the other.
    route("v1/jobs", jobs.Jobs, "ojs-jobs"),
    route("v1/jobs/batch", jobs.JobBatch, "ojs-jobs-batch"),
    route("v1/workers/fetch", workers.Fetch, "ojs-fetch"),
    route("v1/workers/ack", workers.Ack, "ojs-ack"),
    route("v1/workers/nack", workers.Nack, "ojs-nack"),
    route("v1/workers/heartbeat", workers.Beat, "ojs-heartbeat"),
    route("v1/workers/beat", workers.Beat, "ojs-beat"),
    route("v1/workers/progress", progress.WorkerProgress, "ojs-worker-progress"),
    # The server
    route("manifest", system.ManifestView, "ojs-manifest"),
    route("v1/health", system.Health, "ojs-health"),
    route("v1/ready", system.Ready, "ojs-ready"),
    route("v1/openapi.json", openapi.OpenAPI, "ojs-openapi"),
    route("metrics", metrics.Metrics, "ojs-metrics"),
    unsupported_routes.unsupported,
    # One job
    route(_JOB, jobs.JobDetail, "ojs-job"),
    route(f"{_JOB}/activate", jobs.JobActivate, "ojs-job-activate"),
    route(f"{_JOB}/cancel", jobs.JobCancel, "ojs-job-cancel"),
    route(f"{_JOB}/ack", workers.Ack, "ojs-job-ack"),
    route(f"{_JOB}/nack", workers.Nack, "ojs-job-nack"),
    route(f"{_JOB}/progress", progress.JobProgress, "ojs-job-progress"),
    route(f"{_JOB}/history", history.JobHistory, "ojs-job-history"),
    route(f"{_JOB}/lineage", history.JobLineage, "ojs-job-lineage"),
    # Queues
    route("v1/queues", queues.QueueList, "ojs-queues"),
    route(_QUEUE, queues.QueueDetail, "ojs-queue"),
    route(f"{_QUEUE}/config", queues.QueueConfiguration, "ojs-queue-config"),
    route(f"{_QUEUE}/pause", queues.QueueChange, "ojs-queue-pause", change="pause"),
    route(f"{_QUEUE}/drain", queues.QueueChange, "ojs-queue-drain", change="drain"),
    route(f"{_QUEUE}/resume", queues.QueueChange, "ojs-queue-resume", change="resume"),
    # Dead letters
    route("v1/dead-letter", dead_letter.DeadLetters, "ojs-dead-letters"),
    route("v1/dead-letter/stats", dead_letter.DeadLetterFigures, "ojs-dead-letter-stats"),
    route(_DEAD_LETTER, dead_letter.DeadLetterDetail, "ojs-dead-letter"),
    route(f"{_DEAD_LETTER}/retry", dead_letter.DeadLetterRetry, "ojs-dead-letter-retry"),
    # The routes of extensions follow.
    *registry.brought("routes"),
    *unsupported_routes.of_extensions(registry.extensions()),
    # The control plane
    *urls_admin.urlpatterns,
    # Any other path under ojs/. It may contain a line feed, which a dot does not match.
    re_path(r"^ojs(?:/[\s\S]*)?\Z", UnknownPath.as_view(), name="ojs-unknown"),
]

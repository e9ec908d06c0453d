"""Progress of a job: workers report it, clients read it (ojs-progress §6, §7)."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.http import http_date

from django_ojs.hooks import registry
from django_ojs.http import fields
from django_ojs.http.responses import json_response
from django_ojs.http.unsupported_routes import not_installed
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.models import Job
from django_ojs.operations.progress import report
from django_ojs.spec import ids, times
from django_ojs.spec.progress import Report, shown
from django_ojs.spec.scopes import Scope


class ProgressView(JobView):
    def report(self, key: UUID, data: Mapping[str, Any]) -> HttpResponse:
        """Store a report for a job that the caller may use. Raises as the operation does.

        A worker may not read jobs, so the response has no data that others reported for this job.
        """
        claim, principal = self.claim_in(data), self.access.principal
        reported = Report.parse(data)
        if reported.checkpoint is not None and "checkpoint" not in registry.context:
            raise not_installed("checkpoints")
        job = report(key, reported, claim=claim, principal=principal)
        found = job.progress or {}
        if found.get("data") != reported.data and not self.access.may_read(job.queues):
            job.progress = {name: value for name, value in found.items() if name != "data"}
        return _render(job)


class JobProgress(ProgressView):
    """The progress of the latest run of a job, null without a report."""

    needs = {"GET": Scope.READ, "PUT": Scope.WORKER}

    def get(self, request: HttpRequest, key: str) -> HttpResponse:
        return _render(self.info(job_id(key)))

    def put(self, request: HttpRequest, key: str) -> HttpResponse:
        """Store a report. A late report changes nothing, and is no error."""
        data = self.body()
        self.check_queue_of(job_id(key))
        return self.report(job_id(key), data)


class WorkerProgress(ProgressView):
    """A report whose body names the job, as in the other routes of workers."""

    needs = {"POST": Scope.WORKER}

    def post(self, request: HttpRequest) -> HttpResponse:
        data = self.body()
        key = ids.parse_id(fields.required(data, "job_id", "id"), "job_id")
        self.check_queue_of(key)
        return self.report(key, data)


def _render(job: Job) -> HttpResponse:
    found = shown(job.progress, run=job.run, attempt=job.attempt, state=job.state)
    headers = {"Cache-Control": "no-cache"}
    if found.progress is not None:
        headers["X-OJS-Progress"] = str(found.progress)
    if found.updated_at is not None:
        since = times.parse_timestamp(found.updated_at, "updated_at")
        headers["Last-Modified"] = http_date(since.timestamp())
    data = {
        "job_id": str(job.pk),
        "state": job.state,
        "progress": found.progress,
        "data": found.data,
        "updated_at": found.updated_at,
    }
    message = (found.data or {}).get("message")
    if isinstance(message, str):
        data["message"] = message
    return json_response(data, headers=headers)

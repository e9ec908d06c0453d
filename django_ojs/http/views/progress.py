"""Progress of a job: a worker reports it, anybody may ask for it (ojs-progress §6, §7)."""

from typing import Any

from django.http import HttpResponse
from django.utils.http import http_date
from rest_framework.request import Request

from django_ojs.http import fields
from django_ojs.http.access import Scope
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.models import Job
from django_ojs.operations.info import info
from django_ojs.operations.progress import report
from django_ojs.spec import times
from django_ojs.spec.progress import Report, shown
from django_ojs.storage.transitions import Claim


class JobProgress(JobView):
    """How far the latest run of a job is."""

    needs = {"GET": Scope.READ, "PUT": Scope.WORKER}

    def get(self, request: Request, key: str) -> HttpResponse:
        """Return it; null where nothing was reported."""
        job = info(job_id(key))
        self.access.check_queue(job.queue)
        return self._answer(job)

    def put(self, request: Request, key: str) -> HttpResponse:
        """Keep what a worker reports. What comes too late changes nothing, and is no error."""
        data = self.body()
        self.check_queue_of(job_id(key))
        claim = Claim(
            worker_id=fields.string(data, "worker_id"),
            attempt=fields.integer(data, "attempt", minimum=0),
        )
        return self._answer(report(job_id(key), Report.parse(data), claim=claim))

    def _answer(self, job: Job) -> HttpResponse:
        found = shown(job.progress, run=job.run, attempt=job.attempt, state=job.state)
        answer: dict[str, Any] = {
            "job_id": str(job.pk),
            "state": job.state,
            "progress": found.progress,
            "data": found.data,
            "updated_at": found.updated_at,
        }
        headers = {"Cache-Control": "no-cache"}
        if found.progress is not None:
            headers["X-OJS-Progress"] = str(found.progress)
        if found.updated_at is not None:
            since = times.parse_timestamp(found.updated_at, "updated_at")
            headers["Last-Modified"] = http_date(since.timestamp())
        return self.answer(answer, headers=headers)

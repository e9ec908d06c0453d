"""Dead letters of the data plane (http-binding §12, ojs-dead-letter §10)."""

from datetime import timedelta
from functools import partial
from typing import Any

from django.http import HttpRequest

from django_ojs.conf import settings
from django_ojs.http import fields, pagination
from django_ojs.http.responses import timestamps
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.jobs import job_id
from django_ojs.models import Attempt, Job
from django_ojs.operations.jobs import dead_letters
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.spec import envelope, times
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.scopes import Scope


class DeadLetterView(OJSView):
    """The base of the routes of one dead letter, on both planes."""

    def find(self, key: str) -> Job:
        """Return the dead letter of a path. Raises PermissionDenied if it is in other queues."""
        job = dead_letters.get(job_id(key, "dead_letter_job"))
        self.access.check_any_queue(job.queues)
        return job

    def delete_one(self, key: str) -> Job:
        """Delete a dead letter for a caller that may use the queue where it is."""
        job = self.find(key)
        self.access.check_queue(job.queue)
        dead_letters.delete(job.pk)
        return job

    def retry(self, key: str) -> Job:
        """RETRY a dead letter, with the changes in the body (ojs-dead-letter §6.1, §6.3)."""
        job = self.find(key)
        for queue in job.queues:
            self.access.check_queue(queue)
        override = fields.object_(self.body(required=False), "override") or {}
        if isinstance(override.get("queue"), str):
            self.access.check_queue(override["queue"])
            check_queue(override["queue"], settings().limits, field="override.queue")
            self.make_known(queues=[override["queue"]])
        return dead_letters.retry(job.pk, override=override)


class DeadLetters(OJSView):
    """The dead letters of the queues that the caller may use, newest first (§12.1)."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET
        queue = query.get("queue") or None
        if queue is not None:
            self.access.check_queue(queue)
        which = JobFilter(
            queue=queue,
            type=query.get("type") or None,
            error_type=query.get("error_type") or None,
            ended_since=fields.query_timestamp(query, "since"),
            ended_until=fields.query_timestamp(query, "until"),
            within=self.access.queues,
        )
        return pagination.listed(query, "jobs", partial(_page, which), dict)


class DeadLetterDetail(DeadLetterView):
    """One dead letter, with all its errors (ojs-dead-letter §9.2)."""

    needs = {"GET": Scope.READ, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return {"job": self.find(key).envelope()}

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        job = self.delete_one(key)
        return {"deleted": True, "job_id": str(job.pk)}


class DeadLetterRetry(DeadLetterView):
    needs = {"POST": Scope.OPERATOR}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        shown = self.retry(key).envelope()
        return {"job": {**shown, "re_enqueued_at": shown["enqueued_at"]}}


class DeadLetterFigures(OJSView):
    """The number of dead letters by queue and error, in the queues of the caller (§10.1)."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        found = dead_letters.figures(self.access.queues)
        return {
            "total": found.total,
            "by_queue": found.by_queue,
            "by_error_type": found.by_error_type,
            "retention": {"max_age": _days(settings().keep_dead_letters)},
            **timestamps(oldest_at=found.oldest_at, newest_at=found.newest_at),
        }


def _page(which: JobFilter, wanted: PageRequest) -> Page[dict[str, Any]]:
    page = dead_letters.page(which, wanted)
    errors = Attempt.errors_of([job.pk for job in page.rows])
    return page.showing([envelope.render(job, errors=errors.get(job.pk)) for job in page.rows])


def _days(duration: timedelta) -> str:
    days, rest = divmod(duration, timedelta(days=1))
    return times.format_duration(duration) if rest else f"P{days}D"

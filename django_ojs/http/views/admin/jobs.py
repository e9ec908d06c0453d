"""Look for jobs, look at one, cancel and retry it (ojs-admin-api §7)."""

from typing import Any

from rest_framework.request import Request

from django_ojs.http import fields
from django_ojs.http.access import Scope
from django_ojs.http.views.admin.answers import changed, detail, summary
from django_ojs.http.views.admin.base import AdminView
from django_ojs.http.views.jobs import job_id
from django_ojs.operations.cancel import cancel
from django_ojs.operations.info import info
from django_ojs.operations.jobs import search
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.retry import retry
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import transitions


def found(view: AdminView, which: JobFilter, default: search.Sort) -> dict[str, Any]:
    """Return the page of these jobs that the query asks for."""
    query = view.request.query_params
    sort = fields.choice(query, "sort", search.SORTS, default)
    order = fields.choice(query, "order", ("asc", "desc"), "desc")
    page = view.page()
    result = search.search(
        which,
        sort=next(one for one in search.SORTS if one == sort),
        descending=order == "desc",
        page=page.page,
        per_page=page.per_page,
    )
    return view.listed(map(summary, result.jobs), result.total, capped=result.capped)


class AdminJobs(AdminView):
    """The jobs that meet a filter, a page at a time."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        """List jobs."""
        return found(self, self.query_filter(), "created_at")


class AdminJob(AdminView):
    """One job."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        """Return the job with its history."""
        job = info(job_id(key))
        self.access.check_queue(job.queue)
        return detail(job)


class AdminJobCancel(AdminView):
    """CANCEL, on the control plane."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, key: str) -> dict[str, Any]:
        """Cancel the job. One that has ended is a conflict."""
        self.check_queue_of(job_id(key))
        job, before = cancel(job_id(key))
        if before is State.CANCELLED:
            transitions.refuse(Trigger.CANCEL, State.CANCELLED, job)
        return changed(job, before)


class AdminJobRetry(AdminView):
    """RETRY by hand."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, key: str) -> dict[str, Any]:
        """Make the job available again. Only a discarded one can be."""
        self.check_queue_of(job_id(key))
        return changed(retry(job_id(key)), State.DISCARDED)

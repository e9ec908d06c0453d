"""Jobs on the control plane: search, details, CANCEL and RETRY (ojs-admin-api §7)."""

from typing import Any

from django.http import HttpRequest

from django_ojs.http.views.admin.base import AdminView
from django_ojs.http.views.admin.job_rendering import changed, detail
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations.retry import retry
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State


class AdminJobs(AdminView):
    """The jobs that match a filter, a page at a time."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        return self.search(self.query_filter(), "created_at")


class AdminJob(JobView):
    """One job with its history."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return detail(self.info(job_id(key)))


class AdminJobCancel(JobView):
    needs = {"POST": Scope.OPERATOR}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return changed(*self.cancel(job_id(key)))


class AdminJobRetry(JobView):
    """RETRY by an operator. The job must be discarded."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        self.check_queue_of(job_id(key))
        return changed(retry(job_id(key)), State.DISCARDED)

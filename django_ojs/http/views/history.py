"""The history of a job across its attempts (ojs-execution-history §7.1)."""

from typing import Any

from rest_framework.request import Request

from django_ojs.http import pagination
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations.jobs import execution_history
from django_ojs.spec.scopes import Scope


class JobHistory(JobView):
    """The events of a job, oldest first. Who may read the job may read its history."""

    needs = {"GET": Scope.READ}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        page = pagination.cursor_page(request.query_params, int, int)
        job = self.info(job_id(key))
        events = execution_history.read(job)
        found = [event for event in events if page.cursor is None or event.position > page.cursor]
        shown = found[page.offset :][: page.limit]
        more = bool(shown) and shown[-1] is not found[-1]
        return {
            "events": [event.render(job) for event in shown],
            "next_cursor": pagination.encode(shown[-1].position) if more else None,
            "total": len(events),
        }

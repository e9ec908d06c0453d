"""The histories of jobs and of workflows (ojs-execution-history §7)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from rest_framework.request import Request

from django_ojs.http import pagination
from django_ojs.http.pagination import CursorPage
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.http.views.workflows import WorkflowView
from django_ojs.operations import workflows
from django_ojs.operations.jobs import execution_history
from django_ojs.spec import times
from django_ojs.spec.scopes import Scope


class _Event(Protocol):
    @property
    def position(self) -> tuple[Any, ...]: ...


E = TypeVar("E", bound=_Event)


class JobHistory(JobView):
    """The events of a job, oldest first. Who may read the job may read its history."""

    needs = {"GET": Scope.READ, "DELETE": Scope.ADMIN}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        page = pagination.cursor_page(request.query_params, int, int)
        job = self.info(job_id(key))
        events = execution_history.read(job)
        shown, more = _shown(events, page, page.cursor)
        return {
            "events": [event.render(job) for event in shown],
            "next_cursor": pagination.encode(shown[-1].position) if more else None,
            "total": len(events),
        }

    def delete(self, request: Request, key: str) -> dict[str, Any]:
        """Delete the history, not the job (§7.3)."""
        wanted = job_id(key)
        self.check_queue_of(wanted)
        return {"deleted": True, "events_deleted": execution_history.delete(wanted)}


class WorkflowHistory(WorkflowView):
    """The events of a workflow, oldest first (§3.3); the document names no route for them."""

    needs = {"GET": Scope.READ}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        page = pagination.cursor_page(request.query_params, str, int)
        after = None
        if page.cursor is not None:
            after = times.parse_timestamp(page.cursor[0], "cursor"), page.cursor[1]
        workflow = self.find(key)
        events = workflows.history_of(workflow)
        shown, more = _shown(events, page, after)
        end = _encoded(*shown[-1].position) if more else None
        return {
            "events": [event.render(workflow) for event in shown],
            "next_cursor": end,
            "total": len(events),
        }


def _encoded(time: datetime, order: int) -> str:
    return pagination.encode((time.isoformat(), order))


def _shown(
    events: Sequence[E], page: CursorPage, after: tuple[Any, ...] | None
) -> tuple[Sequence[E], bool]:
    """Return the events of a page, and whether others follow."""
    found = [event for event in events if after is None or event.position > after]
    shown = found[page.offset :][: page.limit]
    return shown, bool(shown) and shown[-1] is not found[-1]

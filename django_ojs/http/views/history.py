"""The histories of jobs and of workflows (ojs-execution-history §7)."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from rest_framework.request import Request

from django_ojs.http import pagination
from django_ojs.http.pagination import CursorPage
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.http.views.workflows import WorkflowView
from django_ojs.operations import workflows
from django_ojs.operations.enqueue.lineage import root_of
from django_ojs.operations.jobs import execution_history, lineage
from django_ojs.operations.jobs.lineage import Descendant
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


class JobLineage(JobView):
    """The parent of a job and its descendants (§7.2), as far as they are there."""

    needs = {"GET": Scope.READ}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        job = self.info(job_id(key))
        children, more = lineage.descendants(job.pk, queues=self.access.queues)
        return {
            "job_id": str(job.pk),
            "parent_id": _text(job.parent_id),
            "workflow_id": _text(job.workflow_id),
            "root_id": str(root_of(job)),
            "children": [_rendered(each) for each in children],
            "has_more": more,
        }


def _text(key: UUID | None) -> str | None:
    return None if key is None else str(key)


def _rendered(descendant: Descendant) -> dict[str, Any]:
    job = descendant.job
    return {
        "job_id": str(job.pk),
        "type": job.type,
        "queue": job.queue,
        "state": job.state,
        "children": [_rendered(each) for each in descendant.children],
    }


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
        next_cursor = None
        if more:
            moment, order = shown[-1].position
            next_cursor = pagination.encode((moment.isoformat(), order))
        return {
            "events": [event.render(workflow) for event in shown],
            "next_cursor": next_cursor,
            "total": len(events),
        }


def _shown(
    events: Sequence[E], page: CursorPage, after: tuple[Any, ...] | None
) -> tuple[Sequence[E], bool]:
    """Return the events of a page, and whether others follow."""
    found = [event for event in events if after is None or event.position > after]
    shown = found[page.offset :][: page.limit]
    return shown, bool(shown) and shown[-1] is not found[-1]

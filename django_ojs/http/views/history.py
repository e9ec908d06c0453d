"""The history and the lineage of a job (ojs-execution-history §7)."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest

from django_ojs.http import pagination
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations import keyset
from django_ojs.operations.enqueue.parents import root_of
from django_ojs.operations.jobs import execution_history, family
from django_ojs.operations.jobs.family import Descendant
from django_ojs.operations.keyset import Page
from django_ojs.spec.scopes import Scope


class JobHistory(JobView):
    """The events of a job, oldest first. A caller that may read the job may read them too."""

    needs = {"GET": Scope.READ, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        wanted = pagination.cursor_page(request.GET)
        job = self.info(job_id(key))
        page = keyset.page_of_all(execution_history.read(job), {"run": int, "step": int}, wanted)
        return history_of([event.render(job) for event in page.rows], page)

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Delete the history, not the job (§7.3)."""
        wanted = job_id(key)
        self.check_queue_of(wanted)
        return {"deleted": True, "events_deleted": execution_history.delete(wanted)}


class JobLineage(JobView):
    """The parent of a job and its descendants (§7.2), as far as they still exist."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        job = self.info(job_id(key))
        children, more = family.descendants(job.pk, queues=self.access.queues)
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


def history_of(events: list[dict[str, Any]], page: Page[Any]) -> dict[str, Any]:
    """Return the response for a page of a history."""
    total, _ = page.count()
    return {"events": events, "next_cursor": page.after, "total": total}

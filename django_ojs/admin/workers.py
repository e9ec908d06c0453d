"""Workers: their state, last heartbeat, busy slots and jobs in flight."""

from collections.abc import Iterable
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import job_list, payload_permission
from django_ojs.admin.base import OperatorModelAdmin, page_of
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.admin.worker_actions import ACTIONS
from django_ojs.models import Worker
from django_ojs.operations.workers import registry
from django_ojs.operations.workers.registry import is_possible, queues_of
from django_ojs.reports import ended_workers, latest_runs
from django_ojs.spec.errors import OJSError

PER_PAGE: Final = 100

#: The most workers in the list, and the most jobs and labels that are shown of a worker.
_MAX_WORKERS: Final = 10_000
_MAX_JOBS: Final = 100
_MAX_LABELS: Final = 20


class WorkerAdmin(OperatorModelAdmin):
    """The workers that have sent a heartbeat and were not deregistered since."""

    place = 40
    object_actions = ACTIONS

    def objects_by_key(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        return {key: _worker(key) for key in keys}

    def list_page(self, request: HttpRequest) -> HttpResponse:
        with timed_queries() as query:
            found = query(gettext_noop("workers"), lambda: registry.listing(limit=_MAX_WORKERS))
            stale_first = sorted(
                found.workers if found else [], key=lambda each: each.condition != registry.STALE
            )
            shown, paging = page_of(stale_first, request.GET.get("p", ""), PER_PAGE)
            keys = [status.worker.pk for status in shown]
            in_flight = query(gettext_noop("jobs in flight"), lambda: registry.held(keys))
            dead = query(gettext_noop("workers that died"), ended_workers.dead) or []
        return self.render(
            request,
            "workers",
            _("Workers"),
            {
                **paging,
                "rows": [
                    (
                        status,
                        labels_of(status.worker),
                        None if in_flight is None else in_flight.get(status.worker.pk, 0),
                    )
                    for status in shown
                ],
                "found": found,
                "dead": dead,
                "unread": query.unread,
                "buttons": self.selection_buttons(request),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        with timed_queries() as query:
            worker = query(gettext_noop("worker"), lambda: _worker(key))
            if worker is None and not query.unread:
                return self._ended_page(request, key)
            jobs = None
            if worker is not None:
                jobs = query(gettext_noop("jobs in flight"), lambda: registry.jobs_of(key))
            runs = (
                query(gettext_noop("its last runs"), lambda: latest_runs.of(key))
                if worker
                else None
            )
            shown = (jobs or [])[:_MAX_JOBS]
            shares = job_list.shares(query, shown)
            arguments = None
            if shown and payload_permission.has_permission(request):
                arguments = query(gettext_noop("arguments"), lambda: job_list.previews(shown))
        return self.render(
            request,
            "worker",
            key,
            {
                "worker": worker,
                "queues": queues_of(worker) if worker else (),
                "labels": labels_of(worker) if worker else (),
                "jobs": None
                if jobs is None
                else [
                    (job, shares.get(job.pk), (arguments or {}).get(job.pk, "")) for job in shown
                ],
                "more_jobs": max(0, len(jobs or ()) - _MAX_JOBS),
                "runs": runs,
                "unread": query.unread,
                "buttons": self.buttons(request, worker) if worker else (),
            },
        )

    def _ended_page(self, request: HttpRequest, key: str) -> HttpResponse:
        with timed_queries() as query:
            worker = (
                query(gettext_noop("worker"), lambda: ended_workers.get(key))
                if is_possible(key)
                else None
            )
            if worker is None and not query.unread:
                raise Http404(_("There is no such worker, and no event of its end is kept."))
            jobs = query(gettext_noop("its jobs"), lambda: ended_workers.lost_jobs(key))
            runs = query(gettext_noop("its last runs"), lambda: latest_runs.of(key))
        return self.render(
            request,
            "ended_worker",
            key,
            {"worker": worker, "jobs": jobs, "runs": runs, "unread": query.unread},
        )


def _worker(key: str) -> Worker | None:
    try:
        status = registry.get(key)
    except OJSError:
        return None
    status.worker.condition = status.condition  # type: ignore[attr-defined]  # for `applies_to`
    return status.worker


def labels_of(worker: Worker) -> list[str]:
    # Any client can send a heartbeat, so the labels may be any JSON value.
    labels: Any = worker.labels
    return [str(label) for label in labels[:_MAX_LABELS]] if isinstance(labels, list) else []

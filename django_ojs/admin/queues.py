"""Queues: a list by pressure, and a page of charts for each queue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import job_list, payload_permission
from django_ojs.admin.base import OperatorModelAdmin, page_of
from django_ojs.admin.finding_remedies import remedies
from django_ojs.admin.panels import columns_of
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.admin.queue_actions import ACTIONS
from django_ojs.admin.workers import labels_of
from django_ojs.finding import Finding
from django_ojs.models import Job, Queue
from django_ojs.operations import queues
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queue_rows import RESERVED, is_deleted
from django_ojs.operations.workers import registry as workers_known
from django_ojs.operations.workers.registry import Listening, WorkerStatus
from django_ojs.reports import findings, latest_runs
from django_ojs.reports.current_findings import queue_rows
from django_ojs.reports.queue_overview import OverviewRow
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State
from django_ojs.storage.figures import oldest_available

PER_PAGE: Final = 50
#: The list shows at most this many queues without a configuration: those with the most waiting
#: jobs.
MAX_LISTED: Final = 1_000
#: The most workers on the page of a queue, and the most running jobs of each.
_MAX_WORKERS: Final = 50
_MAX_RUNNING: Final = 3

#: Orders of the list; the default is by pressure.
_SORT_KEYS: Final[dict[str, Callable[[OverviewRow], Any]]] = {
    "name": lambda row: row.name,
    "depth": lambda row: (-row.depth, row.name),
    "in": lambda row: (-row.flow.came_per_minute, row.name),
    "out": lambda row: (-row.flow.went_per_minute, row.name),
}


class QueueAdmin(OperatorModelAdmin):
    """The queues that have a row or jobs."""

    place = 10
    object_actions = ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[Queue]:
        # The reserved rows are not queues.
        return super().get_queryset(request).exclude(pk__in=RESERVED)

    def _objects(self, request: HttpRequest, keys: list[Any]) -> Iterable[Any]:
        # A deleted queue keeps a row; `listing` knows whether its jobs make it a queue again.
        found = [each for each in super()._objects(request, keys) if not is_deleted(each)]
        if missing := set(keys) - {queue.pk for queue in found}:
            # A queue that only has jobs has no row.
            found += [Queue(name=each.name) for each in queues.listing(within=missing).rows]
        return found

    def list_page(self, request: HttpRequest) -> HttpResponse:
        text = request.GET.get("q", "").strip().replace("\0", "")
        sort = request.GET.get("sort", "")
        with timed_queries() as query:
            listing = query(
                gettext_noop("queues"), lambda: queues.busiest(limit=MAX_LISTED, text=text)
            )
            found = queue_rows(query, listing.rows if listing else [])
            rows = sorted(found.rows, key=_SORT_KEYS[sort]) if sort in _SORT_KEYS else found.rows
            shown, paging = page_of(rows, request.GET.get("p", ""), PER_PAGE)
            names = [row.name for row in shown]
            oldest = (
                query(gettext_noop("oldest jobs"), lambda: oldest_available.oldest(names)) or {}
            )
            columns, cells = columns_of(Queue, query, {row.name: row for row in shown})
            total = listing.total if listing and found.are_known else None
            if text and total == 0:
                total = query(gettext_noop("number of queues"), queues.number)
        return self.render(
            request,
            "queues",
            _("Queues"),
            {
                **paging,
                "rows": [(row, oldest.get(row.name), cells[row.name]) for row in shown],
                "columns": columns,
                "found": len(rows),
                "total": total,
                "workers_known": found.listening is not None,
                "text": text,
                "sort": sort,
                "sorts": ["", *_SORT_KEYS],
                "unread": query.unread,
                "buttons": self.selection_buttons(request),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        with timed_queries() as query:
            try:
                status = query(gettext_noop("queue"), lambda: queues.get(key))
            except OJSError:
                raise Http404(
                    _("There is no such queue: it has no jobs and no configuration.")
                ) from None
            payload = payload_permission.has_permission(request)
            context = {} if status is None else _context(query, status, payload=payload)
            found = query(gettext_noop("findings"), lambda: _findings(context.get("row"))) or ()
            if status is not None:
                context["panels"] = self.panels(request, query, status)
        queue = Queue(
            name=key,
            paused_at=status.paused_at if status else None,
            draining_at=status.draining_at if status else None,
        )
        context |= {
            "findings": [(each, remedies(self, request, each)) for each in found],
            "unread": query.unread,
            "buttons": self.buttons(request, queue),
        }
        return self.render(request, "queue", key, context)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningJob:
    """A job that a worker runs now; `preview` is empty for a user who may not see arguments."""

    job: Job
    share: float | None
    preview: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListeningWorker:
    """A worker of the queue.

    `running` is None if its jobs are not known; `more` is how many others it runs. If `capped`,
    there may be further jobs, which were not read.
    """

    status: WorkerStatus
    labels: list[str]
    running: list[RunningJob] | None
    more: int
    capped: bool


def _workers(
    query: TimedQueries, queue: str, found: Listening, *, payload: bool
) -> list[ListeningWorker]:
    ids = [each.worker.pk for each in found.workers]
    jobs = (
        query(gettext_noop("running jobs"), lambda: latest_runs.running(queue, ids)) if ids else {}
    )
    shown = [job for held in (jobs or {}).values() for job in held[:_MAX_RUNNING]]
    # If more jobs run than are read, a worker may seem to have none although it has some.
    capped = sum(map(len, (jobs or {}).values())) >= latest_runs.MOST_RUNNING
    shares = job_list.shares(query, shown)
    previews: dict[Any, str] = {}
    if payload and shown:
        previews = query(gettext_noop("arguments"), lambda: job_list.previews(shown)) or {}

    def of(status: WorkerStatus) -> ListeningWorker:
        held = (jobs or {}).get(status.worker.pk, [])
        running = [
            RunningJob(job=job, share=shares.get(job.pk), preview=previews.get(job.pk, ""))
            for job in held[:_MAX_RUNNING]
        ]
        return ListeningWorker(
            status=status,
            labels=labels_of(status.worker),
            running=None if jobs is None or (capped and not held) else running,
            more=max(0, len(held) - _MAX_RUNNING),
            capped=capped,
        )

    return [of(status) for status in found.workers]


def _context(query: TimedQueries, status: queues.QueueStatus, *, payload: bool) -> dict[str, Any]:
    name = status.name
    oldest = query(gettext_noop("oldest job"), lambda: oldest_available.oldest([name]))
    rows = queue_rows(query, [status], oldest).rows
    listeners = query(
        gettext_noop("its workers"), lambda: workers_known.listening(name, limit=_MAX_WORKERS)
    )
    return {
        "row": rows[0] if rows else None,
        "status": status,
        "listeners": listeners,
        "workers": _workers(query, name, listeners, payload=payload) if listeners else (),
        "counts": [(state.value, status.counts.get(state, 0)) for state in State],
    }


def _findings(row: OverviewRow | None) -> list[Finding]:
    if row is None:
        return []
    return findings.of_queue(row, is_stopped=mode.status().enabled)

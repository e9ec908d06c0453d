"""The histories of jobs and of workflows (ojs-execution-history §7)."""

import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request

from django_ojs.conf import settings
from django_ojs.http import fields, pagination
from django_ojs.http.pagination import CursorPage
from django_ojs.http.responses import json_response, timestamps
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.http.views.workflows import WorkflowView
from django_ojs.operations import workflows
from django_ojs.operations.enqueue.lineage import root_of
from django_ojs.operations.figures.history import Period, Point, history
from django_ojs.operations.figures.stats import percentiles
from django_ojs.operations.jobs import execution_history, history_rebuild, lineage
from django_ojs.operations.jobs.history_search import (
    NOTHING,
    TYPES,
    HistoryFilter,
    Position,
    delete_before,
    search,
)
from django_ojs.operations.jobs.lineage import Descendant
from django_ojs.operations.operator_texts import check_text
from django_ojs.spec import times
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope
from django_ojs.storage.figures.rollup_queries import mean

#: Events of a page of the search, at most.
MAX_EVENTS: Final = 1_000
#: What triggers events (§4.1).
ACTORS: Final = ("worker", "client", "system", "user")


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
        end = _encoded(*shown[-1].position) if more else None
        return {
            "events": [event.render(workflow) for event in shown],
            "next_cursor": end,
            "total": len(events),
        }


class Histories(OJSView):
    """The events of all jobs, newest first (§7.4), and their deletion (§7.6)."""

    needs = {"GET": Scope.READ, "DELETE": Scope.ADMIN}

    def get(self, request: Request) -> HttpResponse:
        began = time.monotonic()
        query = request.query_params
        wanted = fields.query_integer(
            query, "limit", default=pagination.DEFAULT_LIMIT, minimum=1, maximum=sys.maxsize
        )
        limit = min(wanted, MAX_EVENTS)
        headers = {"X-OJS-Limit-Clamped": "true"} if wanted > limit else {}
        which, after = self._filter(), _position(query.get("cursor", ""))
        found = search(which, after=after, limit=limit) if which else NOTHING
        body = {
            "events": [event.render(job) for job, event in found.events],
            "next_cursor": None if found.end is None else _cursor(found.end),
            "total_estimate": found.total,
            "query_time_ms": round((time.monotonic() - began) * 1000),
        }
        return json_response(body, headers=headers)

    def delete(self, request: Request) -> dict[str, Any]:
        """Delete the events before a moment, of 10,000 jobs at most; the jobs stay."""
        query = request.query_params
        before = fields.query_timestamp(query, "before")
        if before is None:
            raise InvalidRequest.of("before", "is required")
        if query.get("event_types"):
            raise InvalidRequest.of("event_types", "cannot be chosen: a history is deleted whole")
        after = query.get("cursor", "")
        found = delete_before(
            before,
            queues=_queues(self),
            within=self.access.queues,
            after=_uuid(*pagination.decode(after, str)) if after else None,
        )
        return {
            "purged": found.end is None,
            "events_purged": found.events,
            "async": False,
            "next_cursor": None if found.end is None else pagination.encode([found.end.hex]),
        }

    def _filter(self) -> HistoryFilter | None:
        """Return the filter that the query asks for; None: no event can match it."""
        query = self.request.query_params
        types = fields.query_list(query.getlist("event_types"))
        for each in types:
            if each not in TYPES:
                raise InvalidRequest.of("event_types", f"must be among {', '.join(sorted(TYPES))}")
        actor = query.get("actor_type", "")
        if actor and actor not in ACTORS:
            raise InvalidRequest.of("actor_type", f"must be one of {', '.join(ACTORS)}")
        text = query.get("query") or None
        if text is not None:
            check_text(text, "query")
        which = HistoryFilter(
            start=fields.query_timestamp(query, "start"),
            end=fields.query_timestamp(query, "end"),
            types=frozenset(types),
            queues=_queues(self),
            job_types=_job_types(self),
            text=text,
            by_worker=True if actor else None,
            within=self.access.queues,
        )
        # Others than workers are not recorded: the audit trail has operators.
        return which if actor in ("", "worker") else None


class HistoryStatistics(OJSView):
    """How many events there were in each minute, hour or day (§7.5), from the statistics."""

    needs = {"GET": Scope.READ}

    def get(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        group_by = fields.choice(query, "group_by", tuple(_PERIODS), "hour")
        end = fields.query_timestamp(query, "end") or timezone.now()
        queues = _queues(self)
        points = history(
            _PERIODS[group_by],
            since=fields.query_timestamp(query, "start") or end - timedelta(days=1),
            until=end,
            types=_job_types(self),
            within=queues or self.access.queues,
            names=("start", "end"),
        )
        return {"buckets": [_bucket(point) for point in points]}


class HistoryRebuild(JobView):
    """The lost part of the history of a job, from the job itself (§9.5)."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request) -> dict[str, Any]:
        key = request.query_params.get("job_id", "")
        if not key:
            raise InvalidRequest.of("job_id", "is required, as a parameter of the path")
        wanted = job_id(key)
        self.check_queue_of(wanted)
        rebuilt = history_rebuild.rebuild(wanted)
        return {
            "job_id": str(wanted),
            "events_reconstructed": rebuilt.events,
            "approximate": rebuilt.approximate,
            "gaps": list(rebuilt.gaps),
        }


_PERIODS: Final[dict[str, Period]] = {"minute": "1m", "hour": "1h", "day": "1d"}


def _bucket(point: Point) -> dict[str, Any]:
    average = mean(point.ran)
    return {
        **timestamps(timestamp=point.timestamp),
        "events": {
            "job.created": point.enqueued,
            "job.attempt_completed": point.completed,
            "job.attempt_failed": point.failed,
            "job.discarded": point.discarded,
        },
        "avg_duration_ms": None if average is None else round(average, 1),
        "p95_duration_ms": percentiles(point.ran)["p95"],
    }


def _queues(view: OJSView) -> tuple[str, ...]:
    queues = fields.query_list(view.request.query_params.getlist("queues"))
    for queue in queues:
        check_queue(queue, settings().limits, field="queues")
        view.access.check_queue(queue)
    return tuple(queues)


def _job_types(view: OJSView) -> tuple[str, ...]:
    types = fields.query_list(view.request.query_params.getlist("job_types"))
    for type in types:
        check_type(type, settings().limits, field="job_types")
    return tuple(types)


def _cursor(position: Position) -> str:
    moment, key, run, step = position
    return pagination.encode((moment.isoformat(), key.hex, run, step))


def _position(cursor: str) -> Position | None:
    if not cursor:
        return None
    moment, key, run, step = pagination.decode(cursor, str, str, int, int)
    return times.parse_timestamp(moment, "cursor"), _uuid(key), run, step


def _uuid(text: str) -> UUID:
    try:
        return UUID(hex=text)
    except ValueError:
        raise InvalidRequest.of("cursor", "must be a next_cursor of this list") from None


def _encoded(moment: datetime, order: int) -> str:
    return pagination.encode((moment.isoformat(), order))


def _shown(
    events: Sequence[E], page: CursorPage, after: tuple[Any, ...] | None
) -> tuple[Sequence[E], bool]:
    """Return the events of a page, and whether others follow."""
    found = [event for event in events if after is None or event.position > after]
    shown = found[page.offset :][: page.limit]
    return shown, bool(shown) and shown[-1] is not found[-1]

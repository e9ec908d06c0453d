"""The recorded events, read by polling (ojs-events §6.4) or as a stream (ojs-realtime §2)."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from django_ojs.conf import settings
from django_ojs.extensions.events.event_messages import Channel, position_of
from django_ojs.extensions.events.event_stream import (
    CONTENT_TYPE,
    EventStreamResponse,
    events_of,
    has_seen_end,
)
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.progress_stream import progress_of
from django_ojs.http import fields, pagination
from django_ojs.http.compression import quality_of
from django_ojs.http.parsers import MEDIA_TYPES
from django_ojs.http.responses import json_response
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations import queues
from django_ojs.spec import ids
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.scopes import Scope


class EventView(JobView):
    """The events that match all filters, in the order of the commits, without gaps.

    The scope for reading jobs suffices, because an event has no results, and arguments only in
    limit keys.
    """

    needs = {"GET": Scope.READ}

    def filters(self) -> dict[str, Any]:
        """Return the filters of the query. Raises InvalidRequest, PermissionDenied."""
        query = self.request.GET
        # ojs-realtime §5.6 has `event_types` instead of `types`.
        types = fields.query_list([*query.getlist("types"), *query.getlist("event_types")])
        names = fields.query_list(query.getlist("queues"))
        job_types = fields.query_list(query.getlist("job_types"))
        for name in names:
            self.check_queue(name, "queues")
        try:
            for name in job_types:
                check_type(name, settings().limits)
        except OJSError:
            raise InvalidRequest.of("job_types", "must be types of jobs") from None
        return {
            "types": types or None,
            "queues": names or None,
            "job_types": job_types or None,
            # A caller that is limited to some queues gets only events of these: none of workers.
            "within": self.access.queues,
        }

    def check_queue(self, name: str, field: str) -> None:
        check_queue(name, settings().limits, field=field)
        self.access.check_queue(name)

    def stream(
        self, name: str = "all", *, job: UUID | None = None, queue: str | None = None
    ) -> HttpResponseBase:
        """Return a stream of the events of a channel."""
        filters = self.filters()
        if queue is not None:
            filters["queues"] = self._of_queue(queue, filters["queues"])
        if job is not None:
            followed = self.info(job)
            if has_seen_end(followed, self.request.headers.get("Last-Event-ID", "")):
                # An EventSource connects again whenever a stream ends, unless the status is 204.
                return json_response(None, 204)
        if filters["types"] is not None:
            log.matching_types(filters["types"])
        if self.request.method == "HEAD":
            return HttpResponse(content_type=CONTENT_TYPE)
        channel = Channel(name=name, job=job, **filters)
        return EventStreamResponse(self.request, partial(events_of, channel, self._start()))

    def _start(self) -> log.Resumed:
        """Return where the stream begins: after the client's last event, or now."""
        if last := self.request.headers.get("Last-Event-ID"):
            try:
                return log.resume(position_of(last), self.access.queues)
            except InvalidRequest:
                # A client cannot correct this header (ojs-realtime §2.5).
                return log.resume_from_unknown(last)
        if after := self.request.GET.get("after"):
            return log.resume(after, self.access.queues)
        return log.Resumed(log.latest())

    @staticmethod
    def _of_queue(queue: str, names: Collection[str] | None) -> list[str]:
        return [queue] if names is None or queue in names else []


class Events(EventView):
    """The events after a cursor, oldest first, or a stream of them if the client accepts one."""

    def get(self, request: HttpRequest) -> dict[str, Any] | HttpResponseBase:
        query = request.GET
        sources = fields.query_list(query.getlist("sources"))
        if _wants_stream(request.headers.get("Accept", "")):
            if sources:
                raise InvalidRequest.of("sources", "cannot filter a stream")
            return self.stream()
        limit = pagination.read_limit(query, default=log.DEFAULT_LIMIT, maximum=log.MAX_LIMIT)
        offset = pagination.read_offset(query, limit, "after")
        where = log.of_sources(sources) if sources else None
        read = partial(log.read, **self.filters(), where=where)
        page = read(after=_cursor_after(offset, query.get("after") or None, read), limit=limit)
        found = {"events": page.events, "cursor": page.cursor, "has_more": page.has_more}
        return {**found, "tail_lost": True} if page.tail_lost else found


def _wants_stream(accept: str) -> bool:
    """Return whether this Accept header prefers a stream to a page."""
    accepted = [each.partition(";") for each in accept.lower().split(",")]
    named = [name.strip() for name, _, parameters in accepted if quality_of(parameters) > 0]
    known = [each for each in named if each in (CONTENT_TYPE, *MEDIA_TYPES)]
    return known[:1] == [CONTENT_TYPE]


def _cursor_after(count: int, after: str | None, read: Callable[..., log.EventPage]) -> str | None:
    """Return the cursor after this many more events, or the end of the log if that comes first."""
    has_more = True
    while count and has_more:
        page = read(after=after, limit=min(count, log.MAX_LIMIT))
        count -= len(page.events)
        after, has_more = page.cursor, page.has_more
    return after


class EventStream(EventView):
    """A stream of the events of a channel: `job:ID`, `queue:NAME`, or `all`."""

    def get(self, request: HttpRequest) -> HttpResponseBase:
        channel = request.GET.get("channel") or "all"
        kind, _, name = channel.partition(":")
        if channel == "all":
            return self.stream()
        if kind == "job":
            return self.stream(channel, job=ids.parse_id(name, "channel"))
        if kind == "queue":
            self.check_queue(name, "channel")
            return self.stream(channel, queue=name)
        raise InvalidRequest.of("channel", "must be job:ID, queue:NAME or all")


class JobEvents(EventView):
    """A stream of the events of a job, which ends with the job (ojs-realtime §2.1)."""

    def get(self, request: HttpRequest, key: str) -> HttpResponseBase:
        return self.stream(f"job:{key}", job=job_id(key))


class QueueEvents(EventView):
    """A stream of the events of a queue (ojs-realtime §2.2)."""

    def get(self, request: HttpRequest, name: str) -> HttpResponseBase:
        self.access.check_queue(name)
        # This raises NotFound for an unknown queue.
        queues.get(name)
        return self.stream(f"queue:{name}", queue=name)


class JobProgressStream(JobView):
    """A stream of the progress of a job, which ends with the job (ojs-progress §7.2)."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest, key: str) -> HttpResponseBase:
        job = self.info(job_id(key))
        last_id = request.headers.get("Last-Event-ID", "")
        if has_seen_end(job, last_id):
            # An EventSource connects again whenever a stream ends, unless the status is 204.
            return json_response(None, 204)
        if request.method == "HEAD":
            return HttpResponse(content_type=CONTENT_TYPE)
        steps = partial(progress_of, job.pk, self.access.queues, last_id)
        return EventStreamResponse(request, steps)

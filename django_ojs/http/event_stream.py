"""Streams of events in the format of server-sent events (ojs-realtime §2).

A stream reads the log of events as polling does, one page at a time, when its client has taken the
page before. The log is its buffer: a slow client gets events later, and none is dropped. Between
two pages it waits for the feed of the process.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Collection, Generator, Iterator
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, InterfaceError, connections
from django.http import HttpRequest, StreamingHttpResponse

from django_ojs.conf import settings
from django_ojs.http import long_poll
from django_ojs.models import Job
from django_ojs.operations.events import log
from django_ojs.operations.events.feed import feed
from django_ojs.spec import json
from django_ojs.spec.errors import RateLimited, UnsupportedFeature
from django_ojs.spec.states import TERMINAL
from django_ojs.spec.times import format_timestamp

CONTENT_TYPE: Final = "text/event-stream"

#: Seconds of silence until a comment is sent, for proxies that end idle connections (§2.4).
HEARTBEAT: Final = 15.0
#: Seconds between two queries for the state of the job that a stream follows: by default no event
#: is recorded when it is completed.
STATE_CHECK: Final = 1.0
#: Milliseconds after which a client connects again (§2.3).
RETRY: Final = 3000

#: Streams under ASGI, which occupy no thread.
_streams: Final = long_poll.WaitingRequests(lambda: settings().http_event_streams)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The events of a stream. `job` is the only job that it follows, `name` names the channel."""

    name: str
    job: UUID | None = None
    types: Collection[str] | None = None
    queues: Collection[str] | None = None
    job_types: Collection[str] | None = None
    within: Collection[str] | None = None

    def read(self, position: int) -> tuple[log.Page, Job | None]:
        """Return the events after a position, and the followed job if it has ended.

        The job is read first: all events of its end are then in the page, or in the next ones.
        """
        ended = None
        if self.job is not None:
            ended = Job.primary.filter(pk=self.job, state__in=TERMINAL).first()
        page = log.read(
            types=self.types,
            queues=self.queues,
            job_types=self.job_types,
            subject=None if self.job is None else str(self.job),
            after=str(position),
            within=self.within,
        )
        return page, ended


class _Slot:
    """The right to stream: one of a limited number. Releasing it twice does no harm."""

    def __init__(self, waiting: long_poll.WaitingRequests) -> None:
        feed.enter()
        # A request whose client goes before the response is sent leaves a response that no server
        # closes.
        self.release = weakref.finalize(self, _leave, waiting)
        # The interpreter ends: there is nothing to count any more.
        self.release.atexit = False


def _leave(waiting: long_poll.WaitingRequests) -> None:
    feed.leave()
    waiting.leave()


@dataclass(frozen=True, slots=True)
class _Wait:
    """A step of a stream that waits: until a future is done, at most this long."""

    future: "Future[Any]"
    timeout: float | None = None


#: Text to send, or a wait.
_Steps = Generator[str | _Wait, None, None]


class EventStreamResponse(StreamingHttpResponse):
    """A response that streams events until its maximum time, or until its client has gone."""

    def __init__(self, request: HttpRequest, selection: Selection, start: log.Resumed) -> None:
        slot = _slot(request)
        steps = _steps(selection, start)
        streams = _async_stream if isinstance(request, ASGIRequest) else _stream
        super().__init__(
            streams(steps, slot),
            content_type=CONTENT_TYPE,
            # nginx would collect the events before it passes them on.
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._slot = slot

    def close(self) -> None:
        super().close()
        self._slot.release()


def _slot(request: HttpRequest) -> _Slot:
    """Return the right to stream. Raises UnsupportedFeature, RateLimited."""
    if isinstance(request, ASGIRequest):
        waiting = _streams
    elif request.META.get("wsgi.multithread"):
        waiting = long_poll.waiting
    else:
        raise UnsupportedFeature(
            "This server handles one request at a time, and a stream would occupy it.",
            details={"feature": "realtime"},
            hint="Serve with ASGI or with threads (gunicorn --threads), or poll GET /events.",
        )
    if not waiting.enter():
        raise RateLimited(
            "This process has as many streams as it may have.",
            details={"retry_after_seconds": RETRY // 1000},
            hint="Try again, or poll GET /events.",
        )
    return _Slot(waiting)


def _steps(selection: Selection, start: log.Resumed) -> _Steps:
    position, end = start.position, time.monotonic() + _longest()
    yield f"retry: {RETRY}\n\n"
    if start.has_gap:
        yield _event("system.gap", position, _gap(selection, start.missed))
    last_sent = time.monotonic()
    while (left := end - time.monotonic()) > 0:
        reading = feed.call(partial(selection.read, position))
        yield _Wait(reading)
        try:
            page, ended = reading.result()
        except (DatabaseError, InterfaceError):
            # The client connects again, and continues from its last event.
            return
        position = int(page.cursor)
        if page.events:
            last_sent = time.monotonic()
            yield "".join(
                _event(event["type"], at, event)
                for event, at in zip(page.events, page.positions, strict=True)
            )
        if ended is not None and not page.has_more:
            yield _event("job.state_changed", _end_id(position, ended), _ending(ended))
            return
        silence = HEARTBEAT - (time.monotonic() - last_sent)
        if silence <= 0:
            last_sent, silence = time.monotonic(), HEARTBEAT
            # The id moves the client's cursor over events that its filters omit.
            yield f":heartbeat\nid: {position}\n\n"
        if page.has_more:
            continue
        check = HEARTBEAT if selection.job is None else STATE_CHECK
        changed = feed.changed(position)
        try:
            yield _Wait(changed, min(silence, left, check))
        finally:
            changed.cancel()


def _longest() -> float:
    return settings().http_event_stream_time.total_seconds()


def _event(name: str, key: int | str, data: dict[str, Any]) -> str:
    # JSON has no line feeds, which would end the field.
    return f"id: {key}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def _end_id(position: int, job: Job) -> str:
    """Return the id of the last event of a job: a client that has it has seen this end."""
    return f"{position}-{_finished_ms(job)}"


def has_seen_end(job: Job, last_id: str) -> bool:
    """Whether a client has got the last event of a job, which has not been retried since."""
    _, separator, finished = last_id.partition("-")
    return bool(separator) and job.state in TERMINAL and finished == str(_finished_ms(job))


def position_of(last_id: str) -> str:
    """Return the cursor that the id of an event of a stream contains."""
    position, _, finished = last_id.partition("-")
    return position if position.isdigit() and finished.isdigit() else last_id


def _finished_ms(job: Job) -> int:
    assert job.finished_at is not None
    return int(job.finished_at.timestamp() * 1000)


def _gap(selection: Selection, missed: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"channel": selection.name}
    if missed is not None:
        found["estimated_missed_count"] = missed
    return found


def _ending(job: Job) -> dict[str, Any]:
    assert job.finished_at is not None
    return {
        "job_id": str(job.pk),
        "queue": job.queue,
        "type": job.type,
        "to": job.state,
        "timestamp": format_timestamp(job.finished_at),
    }


def _stream(steps: _Steps, slot: _Slot) -> Iterator[bytes]:
    _close_connections()
    try:
        for step in steps:
            if isinstance(step, str):
                yield step.encode()
            else:
                futures.wait([step.future], step.timeout)
    finally:
        steps.close()
        slot.release()


async def _async_stream(steps: _Steps, slot: _Slot) -> AsyncIterator[bytes]:
    await sync_to_async(_close_connections)()
    try:
        for step in steps:
            if isinstance(step, str):
                yield step.encode()
            else:
                done, _ = await asyncio.wait(
                    [asyncio.wrap_future(step.future)], timeout=step.timeout
                )
                for future in done:
                    # The loop logs errors that are not retrieved; `steps` handles them.
                    future.exception()
    finally:
        steps.close()
        slot.release()


def _close_connections() -> None:
    """Close the connections of the thread of the request: a stream reads with those of the feed.

    Tests keep theirs, which are in a transaction.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()

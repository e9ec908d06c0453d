"""Streams of events in the format of server-sent events (ojs-realtime §2).

A stream reads the log of events as polling does, one page at a time, when its client has taken the
previous page. The log is its buffer: a slow client gets events later, and none is dropped. Between
two pages it waits for the feed of the process.
"""

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, InterfaceError, connections
from django.http import HttpRequest, StreamingHttpResponse

from django_ojs.conf import of
from django_ojs.extensions.events import event_messages, server_stop
from django_ojs.extensions.events.event_messages import (
    Channel,
    Follower,
    Message,
    Pace,
    finished_ms,
    read,
)
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.operations.feed import feed
from django_ojs.extensions.events.settings import EventSettings
from django_ojs.http import long_poll
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.errors import RateLimited, UnsupportedFeature
from django_ojs.spec.states import TERMINAL

CONTENT_TYPE: Final = "text/event-stream"

#: Seconds of silence until a comment is sent, for proxies that end idle connections (§2.4).
HEARTBEAT: Final = 15.0
#: Seconds between two queries for the state of the job that a stream follows: by default no event
#: is recorded when it is completed.
STATE_CHECK: Final = 1.0
#: Milliseconds after which a client connects again (§2.3).
RETRY: Final = 3000

#: Streams under ASGI, which occupy no thread.
_streams: Final = long_poll.WaitingRequests(lambda: of(EventSettings).http_event_streams)


class _Slot:
    """The right to stream: one of a limited number. Releasing it twice does no harm."""

    def __init__(self, waiting: long_poll.WaitingRequests) -> None:
        feed.enter()
        # If the client goes before the response is sent, no server closes the response.
        self.release = weakref.finalize(self, _leave, waiting)
        # When the interpreter ends, nothing needs to be counted any more.
        self.release.atexit = False


def _leave(waiting: long_poll.WaitingRequests) -> None:
    feed.leave()
    waiting.leave()


@dataclass(frozen=True, slots=True)
class Wait:
    """A step of a stream that waits: until a future is done, at most this long."""

    future: "Future[Any]"
    timeout: float | None = None


#: Text to send, or a wait.
Steps: TypeAlias = Generator[str | Wait, None, None]


class EventStreamResponse(StreamingHttpResponse):
    """A response that streams messages until its maximum time, or until its client has gone."""

    def __init__(self, request: HttpRequest, steps: Callable[[], Steps]) -> None:
        slot = _enter(request)
        streams = _async_stream if isinstance(request, ASGIRequest) else _stream
        super().__init__(
            streams(steps(), slot),
            content_type=CONTENT_TYPE,
            # nginx would collect the events before it passes them on.
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._slot = slot

    def close(self) -> None:
        super().close()
        self._slot.release()


def _enter(request: HttpRequest) -> _Slot:
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
            "This process cannot serve another stream: it has reached its limit.",
            details={"retry_after_seconds": RETRY // 1000},
            hint="Try again, or poll GET /events.",
        )
    return _Slot(waiting)


def events_of(channel: Channel, start: log.Resumed) -> Steps:
    """Yield the messages of a channel. If it follows a job, the last one is the job's end."""
    end, pace = time.monotonic() + event_messages.longest(), Pace()
    follower = Follower(channel, start.position)
    yield f"retry: {RETRY}\n\n"
    if start.has_gap:
        yield render(event_messages.gap(start, channel.name))
    last_sent = time.monotonic()
    while (left := end - time.monotonic()) > 0:
        if feed.is_stopping:
            yield render(event_messages.shutdown(follower.after))
            return
        reading = feed.call(partial(read, follower, event_messages.batch(pace.rate)))
        yield Wait(reading)
        try:
            page, ending = reading.result()
        except (DatabaseError, InterfaceError):
            # The client connects again, and continues from its last event.
            return
        if found := follower.messages(page):
            last_sent = time.monotonic()
            yield "".join(map(render, found))
            pace.sent(len(found))
        if ending is not None and not page.has_more:
            yield render(event_messages.at(follower.after, ending))
            return
        silence = HEARTBEAT - (time.monotonic() - last_sent)
        if silence <= 0:
            last_sent, silence = time.monotonic(), HEARTBEAT
            # The id moves the client's cursor over events that its filters omit.
            yield f":heartbeat\nid: {follower.after}\n\n"
        if pace.left > 0:
            yield from wait(feed.stopping(), pace.left)
        if not page.has_more:
            check = HEARTBEAT if channel.job is None else STATE_CHECK
            changed = feed.changed(follower.after)
            yield from wait(changed, min(silence, left, check))


def wait(future: "Future[None]", seconds: float) -> Steps:
    """Wait for a future of the feed, at most this long, and then cancel it."""
    try:
        yield Wait(future, seconds)
    finally:
        future.cancel()


def render(message: Message) -> str:
    """Return a message in the format of server-sent events."""
    # JSON has no line feeds, which would end the field.
    return f"id: {message.id}\nevent: {message.event}\ndata: {json.dumps(message.data)}\n\n"


def has_seen_end(job: Job, last_id: str) -> bool:
    """Whether a client has got the last message of a job that has not been retried since."""
    _, separator, finished = last_id.partition("-")
    return bool(separator) and job.state in TERMINAL and finished == str(finished_ms(job))


def _stream(steps: Steps, slot: _Slot) -> Iterator[bytes]:
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


async def _async_stream(steps: Steps, slot: _Slot) -> AsyncIterator[bytes]:
    # By now the server has set its signal handlers. Only the main thread can replace them.
    if threading.current_thread() is threading.main_thread():
        server_stop.watch_signals()
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
    """Close the connections of the request's thread, because a stream reads on the feed's.

    Tests keep their connections, which are in a transaction.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()

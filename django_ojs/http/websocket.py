"""Events over a WebSocket (ojs-realtime §3), as the ASGI protocol has them.

A connection reads the log of events as a stream does: one page at a time, when its client has taken
the page before. The log is its buffer, so its memory is bounded and nothing is dropped.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from django_ojs.conf import settings
from django_ojs.http import event_messages
from django_ojs.http.access import Access
from django_ojs.http.event_messages import Channel, Follower, Message, Pace
from django_ojs.http.event_stream import HEARTBEAT, STATE_CHECK, Slot
from django_ojs.operations import queues
from django_ojs.operations.events import log
from django_ojs.operations.events.feed import feed
from django_ojs.operations.info import info
from django_ojs.spec import events, ids, json
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import InvalidRequest, OJSError, RateLimited

T = TypeVar("T")

Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

SUBPROTOCOL: Final = "ojs.v1"

#: In the scope of the request that opens a connection: its `Handshake`.
HANDSHAKE: Final = "django_ojs.handshake"

#: The status of the response to that request, if the connection is to be opened.
OPENED: Final = 204

#: Channels that one connection may follow.
MAX_CHANNELS: Final = 50
#: Characters of one message of a client.
MAX_MESSAGE: Final = 4_096
#: The types that one subscription may name.
MAX_TYPES: Final = 50
#: Seconds between two messages of a client: each may read the database, which all streams share.
MESSAGE_EVERY: Final = 0.02
#: Seconds in which a client takes one message. One that does not is disconnected.
SEND_TIMEOUT: Final = 30.0

# Codes of RFC 6455 and of the registry of IANA.
GOING_AWAY: Final = 1001
NO_TEXT: Final = 1003
TOO_SLOW: Final = 1008
TOO_BIG: Final = 1009
INTERNAL_ERROR: Final = 1011
RESTART: Final = 1012


@dataclass(slots=True)
class Handshake:
    """What the request that opens a connection leaves for it: who the caller is, and its slot."""

    access: Access | None = None
    slot: Slot | None = None


class _Closed(Exception):
    """The connection ends, with this code. 0: the client has ended it."""

    def __init__(self, code: int = 0, reason: str = "") -> None:
        self.code = code
        self.reason = reason


class Connection:
    """One connection: a task reads what the client sends, another one sends it events."""

    def __init__(self, access: Access, receive: Receive, send: Send) -> None:
        self._access = access
        self._receive = receive
        self._send = send
        self._followers: dict[str, Follower] = {}
        self._resumed: log.Resumed | None = None
        self._sending = asyncio.Lock()
        #: Held while a page is sent, and while a follower is replaced: the new one begins where the
        #: events that were sent end.
        self._paging = asyncio.Lock()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Serve the connection until it ends."""
        tasks = [asyncio.ensure_future(each) for each in (self._listen(), self._follow())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            error = task.exception()
            if not isinstance(error, _Closed):
                await self._close(INTERNAL_ERROR, "Something went wrong here.")
                raise error or RuntimeError("a connection ended without a reason")
            if error.code:
                await self._close(error.code, error.reason)

    async def _close(self, code: int, reason: str) -> None:
        message = {"type": "websocket.close", "code": code, "reason": reason}
        try:
            await asyncio.wait_for(self._send(message), event_messages.GRACE_MS / 1000)
        except Exception:
            # The client has gone meanwhile, or takes nothing: servers differ in what they raise.
            return

    # What the client sends

    async def _listen(self) -> None:
        while True:
            received = await self._receive()
            if received["type"] == "websocket.disconnect":
                raise _Closed
            text = received.get("text")
            if text is None:
                raise _Closed(NO_TEXT, "Messages are JSON texts.")
            if len(text) > MAX_MESSAGE:
                raise _Closed(TOO_BIG, "This message is too long.")
            await self._act(text)
            await asyncio.sleep(MESSAGE_EVERY)

    async def _act(self, text: str) -> None:
        channel = None
        try:
            message = _parsed(text)
            action, channel = message.get("action"), message.get("channel")
            if action == "subscribe":
                await self._subscribe(message)
            elif action == "unsubscribe":
                channel = _text(channel, "channel")
                self._followers.pop(channel, None)
                await self._write({"type": "unsubscribed", "channel": channel})
            elif action == "resume":
                await self._resume(message)
            elif action == "ping":
                await self._write({"type": "pong"})
            else:
                raise InvalidRequest.of("action", "must be subscribe, unsubscribe, resume or ping")
        except OJSError as error:
            found = {"type": "error", "code": error.code, "message": error.message}
            if isinstance(channel, str):
                found["channel"] = channel
            await self._write(found)

    async def _subscribe(self, message: dict[str, Any]) -> None:
        name, types = _text(message.get("channel"), "channel"), message.get("event_types")
        if name not in self._followers and len(self._followers) >= MAX_CHANNELS:
            raise RateLimited(f"A connection follows {MAX_CHANNELS} channels at most.")
        channel = await self._call(partial(_channel, name, types, self._access))
        async with self._paging:
            await self._replace(channel, types)
        self._wake.set()

    async def _replace(self, channel: Channel, types: object) -> None:
        name, resumed = channel.name, self._resumed
        known = self._followers.get(name)
        if known is not None:
            # Another filter, and no other place.
            start = log.Resumed(known.after)
        elif resumed is not None:
            start = resumed
        else:
            start = log.Resumed(await self._call(log.latest))
        confirmed: dict[str, Any] = {"type": "subscribed", "channel": name}
        if types is not None:
            confirmed["event_types"] = types
        await self._write(confirmed)
        if start.has_gap:
            gap = event_messages.gap(start, name)
            await self._write(_rendered(gap, name))
        self._followers[name] = Follower(channel, start.position)

    async def _resume(self, message: dict[str, Any]) -> None:
        last = _text(message.get("last_event_id"), "last_event_id")
        position = event_messages.position_of(last)
        try:
            start = await self._call(partial(log.resume, position, self._access.queues))
        except InvalidRequest:
            await self._write(
                {
                    "type": "error",
                    "code": "unknown_event_id",
                    "message": "This event is not known (any more). Read the state of the jobs.",
                }
            )
            return
        self._resumed = start
        await self._write({"type": "resumed", "last_event_id": last})
        async with self._paging:
            for name, follower in list(self._followers.items()):
                if start.has_gap:
                    gap = event_messages.gap(start, name)
                    await self._write(_rendered(gap, name))
                self._followers[name] = Follower(follower.channel, start.position)
        self._wake.set()

    # What the client gets

    async def _follow(self) -> None:
        end, pace = time.monotonic() + event_messages.longest(), Pace()
        stopping = feed.stopping()
        stopping.add_done_callback(self._waker())
        try:
            while (left := end - time.monotonic()) > 0:
                if feed.is_stopping:
                    last = max((each.after for each in self._followers.values()), default=0)
                    await self._write(_rendered(event_messages.shutdown(last)))
                    raise _Closed(RESTART, "The server stops; connect again.")
                followers = list(self._followers.values())
                if pace.left > 0:
                    await self._pause(min(pace.left, left))
                elif followers:
                    await self._send_page(followers, pace, left)
                else:
                    await self._pause(left)
        finally:
            stopping.cancel()
        raise _Closed(GOING_AWAY, "This connection has reached its time; connect again.")

    async def _send_page(self, followers: list[Follower], pace: Pace, left: float) -> None:
        limit = event_messages.batch(pace.rate)
        page, endings = await self._call(partial(event_messages.read, followers, limit))
        async with self._paging:
            sent = await self._send_events(followers, page)
            if not page.has_more:
                await self._send_endings(followers, endings)
        pace.sent(sent)
        if page.has_more:
            return
        has_jobs = any(each.channel.job is not None for each in self._followers.values())
        check = STATE_CHECK if has_jobs else HEARTBEAT
        changed = feed.changed(max(each.after for each in followers))
        changed.add_done_callback(self._waker())
        try:
            await self._pause(min(check, left))
        finally:
            changed.cancel()

    async def _send_events(self, followers: list[Follower], page: log.Page) -> int:
        """Send the events of a page. Return how many messages."""
        found = [
            (each, message)
            for each in followers
            if self._followers.get(each.channel.name) is each
            for message in each.messages(page)
        ]
        # In the order of the events, whatever their channels are.
        found.sort(key=lambda pair: int(pair[1].id.partition(".")[0]))
        for follower, message in found:
            await self._write_of(follower, message)
        return len(found)

    async def _send_endings(self, followers: list[Follower], endings: dict[UUID, Message]) -> None:
        for follower in followers:
            job = follower.channel.job
            if job is not None and job in endings:
                await self._write_of(follower, event_messages.at(follower.after, endings[job]))
                await self._end(follower)

    async def _write_of(self, follower: Follower, message: Message) -> None:
        """Send a message, unless its channel was given up or replaced meanwhile."""
        name = follower.channel.name
        if self._followers.get(name) is follower:
            await self._write(_rendered(message, name))

    async def _end(self, follower: Follower) -> None:
        """Say that a channel is followed no longer, because its job has ended."""
        name = follower.channel.name
        if self._followers.get(name) is follower:
            del self._followers[name]
            await self._write({"type": "unsubscribed", "channel": name})

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return
        finally:
            self._wake.clear()

    def _waker(self) -> Callable[["Future[None]"], None]:
        loop = asyncio.get_running_loop()

        def wake(future: "Future[None]") -> None:
            if not future.cancelled():
                loop.call_soon_threadsafe(self._wake.set)

        return wake

    async def _call(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(feed.call(function))
        except (DatabaseError, InterfaceError):
            raise _Closed(INTERNAL_ERROR, "The database cannot be reached.") from None

    async def _write(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT), self._sending:
                await self._send({"type": "websocket.send", "text": json.dumps(message)})
        except TimeoutError:
            raise _Closed(TOO_SLOW, "The client reads too slowly; resume later.") from None
        except OSError:
            # Servers raise an OSError for a client that has gone.
            raise _Closed from None


def _parsed(text: str) -> dict[str, Any]:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise InvalidRequest("A message must be an object of JSON.")
    return message


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest.of(field, "must be a text that is not empty")
    return value


def _channel(name: str, types: object, access: Access) -> Channel:
    """Return a channel that the caller may follow. Raises OJSError."""
    if types is not None:
        if not isinstance(types, list) or not 0 < len(types) <= MAX_TYPES:
            raise InvalidRequest.of("event_types", f"must be an array of 1 to {MAX_TYPES} types")
        try:
            events.matching(types)
        except ValueError as error:
            raise InvalidRequest(
                f"event_types: {error}.", details={"field": "event_types"}
            ) from None
    kind, _, rest = name.partition(":")
    if kind == "job":
        key = ids.parse_id(rest, "channel")
        access.check_any_queue(info(key).queues)
        return Channel(name=name, job=key, types=types, within=access.queues)
    if kind == "queue":
        check_queue(rest, settings().limits, field="channel")
        access.check_queue(rest)
        # A queue that is not known is not found.
        queues.get(rest)
        return Channel(name=name, queues=[rest], types=types, within=access.queues)
    if name == "all":
        return Channel(name=name, types=types, within=access.queues)
    raise InvalidRequest.of("channel", "must be job:ID, queue:NAME or all")


def _rendered(message: Message, channel: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "event",
        "event": message.event,
        "data": message.data,
        "id": message.id,
        "timestamp": message.time,
    }
    return found if channel is None else {**found, "channel": channel}

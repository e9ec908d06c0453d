"""Events over WebSockets (ojs-realtime §3, §5), as a server hands them to the application."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.test import Client

from django_ojs.http import event_stream, server_stop, websocket
from django_ojs.http.asgi import with_websockets
from django_ojs.models import Event
from django_ojs.operations.events.feed import feed
from django_ojs.spec import times
from tests.factories import own_connections, push
from tests.http.api import Api, make_key
from tests.http.test_event_stream import happen
from tests.worker.waiting import BOUND, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

api = Api()

KEYS = ["django_ojs.http.authentication.ApiKeyAuthentication"]
OPEN = ["django_ojs.http.authentication.AllowAny"]


@pytest.fixture(autouse=True)
def _no_connection_is_left(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The handlers of signals are those of this process.
    monkeypatch.setattr(server_stop, "watch_signals", lambda loop: None)
    settings.OJS = {"HTTP_AUTHENTICATION": OPEN, "HTTP_EVENT_STREAM_TIME": BOUND / 2}
    yield
    eventually(lambda: not feed.readers, "each connection leaves")
    assert event_stream._streams.count == 0


class Socket:
    """One connection of a client."""

    def __init__(
        self, key: str | None = None, subprotocols: tuple[str, ...] = (), **headers: str
    ) -> None:
        given = {"host": "testserver"} | headers
        if key is not None:
            given["authorization"] = f"Bearer {key}"
        self.scope = {
            "type": "websocket",
            "scheme": "ws",
            "http_version": "1.1",
            "path": "/ojs/v1/ws",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "subprotocols": list(subprotocols),
            "extensions": {"websocket.http.response": {}},
        }

    async def __aenter__(self) -> Socket:
        application = with_websockets(get_asgi_application())
        self.server = ApplicationCommunicator(application, self.scope)
        await self.server.send_input({"type": "websocket.connect"})
        self.first = await self.output()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.server.wait(BOUND)

    async def output(self) -> Any:
        return await self.server.receive_output(BOUND)

    async def send(self, **message: Any) -> None:
        await self.server.send_input({"type": "websocket.receive", "text": json.dumps(message)})

    async def read(self) -> Any:
        """Return the next message."""
        output = await self.output()
        assert output["type"] == "websocket.send", output
        return json.loads(output["text"])

    async def ask(self, **message: Any) -> Any:
        await self.send(**message)
        return await self.read()

    async def subscribe(self, channel: str, **more: Any) -> Any:
        return await self.ask(action="subscribe", channel=channel, **more)


def scene(act: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(act())


async def do(function: Callable[..., Any], *arguments: Any, **values: Any) -> Any:
    """Call what reads or writes the database in another thread, with its own connections."""

    def call() -> Any:
        with own_connections():
            return function(*arguments, **values)

    return await asyncio.to_thread(call)


@pytest.mark.requirement("RT-R011")
def test_a_client_that_changes_its_types_in_the_middle_of_a_page_misses_nothing(
    settings: Any,
) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["job.enqueued"]}
    keys = {str(push(queue="mail").pk) for _ in range(60)}
    sent: asyncio.Queue[Any] = asyncio.Queue()
    inbox: asyncio.Queue[Any] = asyncio.Queue()

    async def send(message: Any) -> None:
        # So that the next message of the client is read while a page is sent.
        await asyncio.sleep(0.01)
        sent.put_nowait(message)

    async def act() -> None:
        application = with_websockets(get_asgi_application())
        server = asyncio.create_task(application(Socket().scope, inbox.get, send))
        subscribe = {"action": "subscribe", "channel": "queue:mail"}
        inbox.put_nowait({"type": "websocket.connect"})
        for message in (
            {"action": "resume", "last_event_id": "0"},
            {**subscribe, "event_types": ["job.enqueued"]},
        ):
            inbox.put_nowait({"type": "websocket.receive", "text": json.dumps(message)})
        seen: list[str] = []
        async with asyncio.timeout(BOUND):
            while len(seen) < len(keys):
                message = await sent.get()
                found = json.loads(message.get("text") or "{}")
                if found.get("event") == "job.enqueued":
                    seen.append(found["data"]["subject"])
                if len(seen) == 5:
                    change = json.dumps({**subscribe, "event_types": ["job.*"]})
                    inbox.put_nowait({"type": "websocket.receive", "text": change})
        inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await server
        assert sorted(seen) == sorted(keys)

    scene(act)


@pytest.mark.requirement("RT-R005", "RT-R007", "RT-R008", "RT-R013")
def test_a_client_subscribes_gets_events_and_unsubscribes(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["*"]}
    api.push(queue="mail")

    async def act() -> None:
        async with Socket(subprotocols=("other", "ojs.v1")) as socket:
            assert socket.first["type"] == "websocket.accept"
            assert socket.first["subprotocol"] == "ojs.v1"
            assert dict(socket.first["headers"])[b"ojs-version"] == b"1.0"
            assert await socket.ask(action="ping") == {"type": "pong"}
            for name in ("queue:mail", "all"):
                assert await socket.subscribe(name) == {"type": "subscribed", "channel": name}
            filtered = await socket.subscribe("queue:mail", event_types=["job.state_changed"])
            assert filtered["event_types"] == ["job.state_changed"]
            await do(happen, "other")
            (job,) = await do(api.fetch, "mail")
            found = [await socket.read() for _ in range(4)]
            assert [(each["channel"], each["event"]) for each in found] == [
                ("all", "queue.paused"),
                ("queue:mail", "job.state_changed"),
                ("all", "job.state_changed"),
                ("all", "job.started"),
            ]
            assert found[1]["data"] == found[2]["data"]
            assert found[1]["data"].items() >= {"from": "available", "to": "active"}.items()
            assert found[1]["data"]["job_id"] == job["id"] == found[3]["data"]["subject"]
            assert found[1]["timestamp"] == found[3]["data"]["time"]
            left = await socket.ask(action="unsubscribe", channel="all")
            assert left == {"type": "unsubscribed", "channel": "all"}
            await do(happen, "other")
            await do(api.post, "workers/ack", {"job_id": job["id"]})
            last = await socket.read()
            assert (last["channel"], last["data"]["to"]) == ("queue:mail", "completed")

    scene(act)


@pytest.mark.requirement("RT-R005")
def test_a_job_is_followed_to_its_end_whatever_is_recorded(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": []}
    job, ended = api.active(), api.active()
    api.post("workers/ack", {"job_id": ended["id"]}).ok()

    async def act() -> None:
        async with Socket() as socket:
            for each in (ended, job):
                channel = f"job:{each['id']}"
                await socket.subscribe(channel)
                if each is job:
                    await do(api.post, "workers/ack", {"job_id": job["id"]})
                end = await socket.read()
                assert (end["event"], end["data"]["to"]) == ("job.state_changed", "completed")
                assert await socket.read() == {"type": "unsubscribed", "channel": channel}

    scene(act)


@pytest.mark.requirement("RT-R005", "RT-R010")
def test_a_client_that_connects_again_resumes(settings: Any) -> None:
    async def act() -> None:
        async with Socket() as socket:
            await socket.subscribe("all")
            await do(happen, "a")
            last = (await socket.read())["id"]
        await do(happen, "b", "c")
        async with Socket() as socket:
            resumed = await socket.ask(action="resume", last_event_id=last)
            assert resumed == {"type": "resumed", "last_event_id": last}
            await socket.subscribe("all")
            assert [(await socket.read())["data"]["subject"] for _ in "bc"] == ["b", "c"]
            # What is followed already goes back too.
            await socket.ask(action="resume", last_event_id=last)
            assert [(await socket.read())["data"]["subject"] for _ in "bc"] == ["b", "c"]
            for unknown in ("x", "evt_019539a4-b68c-7def-8000-aabbccddeeff"):
                error = await socket.ask(action="resume", last_event_id=unknown)
                assert (error["type"], error["code"]) == ("error", "unknown_event_id")
        first, *_ = [each.pk for each in await do(lambda: list(Event.objects.order_by("pk")))]
        await do(lambda: Event.objects.filter(pk__lte=first + 1).delete())
        async with Socket() as socket:
            await socket.ask(action="resume", last_event_id="1")
            await socket.subscribe("all")
            gap = await socket.read()
            assert gap["event"] == "system.gap"
            (kept,) = await do(lambda: list(Event.objects.values_list("time", flat=True)))
            assert gap["data"]["gap_end"] == times.format_timestamp(kept)
            assert (await socket.read())["data"]["subject"] == "c"

    scene(act)


@pytest.mark.requirement("RT-010", "RT-R005")
def test_who_may_use_one_queue_follows_no_other(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_AUTHENTICATION": KEYS, "KEEP_EVENTS": ["*"]}
    admin = Api(make_key("admin"))
    mine, other = admin.push(queue="mine"), admin.push(queue="other")
    limited, worker = make_key("read", queues=("mine",)), make_key("worker")

    async def act() -> None:
        for key, status in ((None, 401), ("ojs_x", 401), (worker, 403)):
            async with Socket(key) as socket:
                assert socket.first["type"] == "websocket.http.response.start"
                assert socket.first["status"] == status
                assert b'"error"' in (await socket.output())["body"]
        async with Socket(limited) as socket:
            for channel in ("queue:other", f"job:{other['id']}"):
                error = await socket.subscribe(channel)
                assert (error["code"], error["channel"]) == ("PERMISSION_DENIED", channel)
            for channel in ("all", "queue:mine", f"job:{mine['id']}"):
                assert (await socket.subscribe(channel))["type"] == "subscribed"
            await do(admin.post, f"jobs/{other['id']}/cancel")
            await do(admin.post, f"jobs/{mine['id']}/cancel")
            found = [await socket.read() for _ in range(6)]
            assert "other" not in json.dumps(found)
            assert {mine["id"]} == {
                each["data"].get("job_id", each["data"].get("subject")) for each in found
            }

    scene(act)


@pytest.mark.requirement("RT-R012")
def test_only_pages_of_trusted_sites_may_open_a_connection(settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://a.example", "https://*.b.example"]
    settings.OJS = {
        **settings.OJS,
        "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.StaffSessionAuthentication"],
    }
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    cookie = f"sessionid={client.cookies['sessionid'].value}"

    async def act() -> None:
        for origin, may in {
            "http://testserver": True,
            "https://a.example": True,
            "https://x.b.example": True,
            "http://a.example": False,
            "https://b.example.evil": False,
            "http://x.b.example": False,
            "null": False,
        }.items():
            async with Socket(cookie=cookie, origin=origin) as socket:
                assert (socket.first["type"] == "websocket.accept") is may, origin
                assert may or socket.first["status"] == 403

    scene(act)


@pytest.mark.requirement("RT-R009")
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("x", "invalid_payload"),
        ("[]", "invalid_request"),
        ("{}", "invalid_request"),
        ('{"action": "subscribe"}', "invalid_request"),
        ('{"action": "subscribe", "channel": "job:1"}', "invalid_request"),
        ('{"action": "subscribe", "channel": "queue:A"}', "invalid_request"),
        ('{"action": "subscribe", "channel": "queue:unknown"}', "not_found"),
        ('{"action": "subscribe", "channel": "worker:w"}', "invalid_request"),
        ('{"action": "subscribe", "channel": "all", "event_types": []}', "invalid_request"),
        ('{"action": "subscribe", "channel": "all", "event_types": [1]}', "invalid_request"),
        (
            '{"action": "subscribe", "channel": "job:01a1fc00-0000-7000-8000-000000000001"}',
            "not_found",
        ),
        ('{"action": "unsubscribe", "channel": {}}', "invalid_request"),
        ('{"action": "resume"}', "invalid_request"),
    ],
)
def test_a_message_that_is_wrong_is_an_error_and_the_connection_stays(sent: str, code: str) -> None:
    async def act() -> None:
        async with Socket() as socket:
            await socket.server.send_input({"type": "websocket.receive", "text": sent})
            error = await socket.read()
            assert (error["type"], error["code"]) == ("error", code)
            assert error["message"]
            assert await socket.ask(action="ping") == {"type": "pong"}

    scene(act)


@pytest.mark.requirement("RT-R003")
def test_connections_channels_and_messages_are_bounded(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OJS = {**settings.OJS, "HTTP_EVENT_STREAMS": 1}
    monkeypatch.setattr(websocket, "MAX_CHANNELS", 1)

    async def act() -> None:
        async with Socket() as socket:
            async with Socket() as second:
                assert second.first["status"] == 429
            await socket.subscribe("all")
            assert (await socket.subscribe("queue:a"))["code"] == "rate_limited"
            assert (await socket.subscribe("all"))["type"] == "subscribed"
            await socket.send(action="x" * websocket.MAX_MESSAGE)
            closed = await socket.output()
            assert (closed["type"], closed["code"]) == ("websocket.close", 1009)
        async with Socket() as socket:
            await socket.server.send_input({"type": "websocket.receive", "bytes": b"{}"})
            assert (await socket.output())["code"] == 1003

    scene(act)


@pytest.mark.requirement("RT-007")
def test_a_client_that_takes_no_message_is_disconnected_with_a_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "SEND_TIMEOUT", 0.05)

    async def act() -> None:
        closed: asyncio.Queue[Any] = asyncio.Queue()
        begin = [{"type": "websocket.connect"}]
        begin += [{"type": "websocket.receive", "text": '{"action": "ping"}'}]

        async def receive() -> Any:
            return begin.pop(0) if begin else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "websocket.send":
                # What is sent is full, and the client does not read.
                await asyncio.Event().wait()
            elif message["type"] == "websocket.close":
                closed.put_nowait(message)

        await with_websockets(get_asgi_application())(Socket().scope, receive, send)
        end = closed.get_nowait()
        assert (end["code"], "slowly" in end["reason"]) == (1008, True)

    scene(act)


@pytest.mark.requirement("RT-R006")
def test_no_more_messages_than_the_rate_are_sent_and_none_is_dropped(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_EVENT_RATE": 10}

    async def act() -> None:
        async with Socket() as socket:
            await socket.subscribe("all")
            names = [f"q{number}" for number in range(15)]
            began = time.monotonic()
            await do(happen, *names)
            found = [await socket.read() for _ in names]
            took = time.monotonic() - began
            assert [each["data"]["subject"] for each in found] == names
            # Pages of 5, each half a second after the one before.
            assert took > 0.9

    scene(act)


def test_a_connection_ends_after_its_maximum_time(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_EVENT_STREAM_TIME": 0.05}

    async def act() -> None:
        async with Socket() as socket:
            closed = await socket.output()
            assert (closed["type"], closed["code"]) == ("websocket.close", 1001)

    scene(act)


def test_the_path_of_websockets_serves_nothing_else() -> None:
    error = api.get("ws").error(422, "unsupported", feature="realtime")
    assert "ASGI" in error["hint"]

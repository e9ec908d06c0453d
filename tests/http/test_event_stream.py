"""Streams of events over HTTP: server-sent events (ojs-realtime §2, §5)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.db import transaction
from django.test import Client

from django_ojs.extensions.events import event_messages, event_stream, progress_stream
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.events.operations import feed as feeds
from django_ojs.extensions.events.operations import log
from django_ojs.hooks import publish
from django_ojs.http import long_poll
from django_ojs.spec import times
from django_ojs.spec.published import EventType, of_queue
from example_project.site_server import Site
from tests.factories import own_connections
from tests.http.api import Api, make_key
from tests.model_factories import ApiKeyFactory
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True)

api = Api()


def happen(*names: str) -> None:
    for name in names:
        publish(EventType.QUEUE_PAUSED, of_queue, name)


@dataclass(frozen=True)
class Sent:
    """One message of a stream."""

    id: str
    event: str
    data: Any

    @property
    def subject(self) -> str:
        return str(self.data["subject"])


def messages(chunks: Iterator[bytes]) -> Iterator[Sent]:
    """Read the format as a browser does: messages without data are none."""
    rest = ""
    for chunk in chunks:
        rest += chunk.decode()
        while "\n\n" in rest:
            block, _, rest = rest.partition("\n\n")
            found: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                found[name] = value.removeprefix(" ")
            if "data" in found:
                yield Sent(found["id"], found["event"], json.loads(found["data"]))


@contextmanager
def stream(
    path: str = "events", key: str | None = None, **headers: str
) -> Iterator[Iterator[Sent]]:
    """Open a stream in a server with threads, and yield its messages."""
    client = Client(
        headers={"Accept": "text/event-stream"}
        | ({"Authorization": f"Bearer {key}"} if key else {})
    )
    response = client.get(f"/ojs/v1/{path}", headers=headers or None, **{"wsgi.multithread": True})
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "text/event-stream"
    assert response["OJS-Version"] == "1.0"
    try:
        yield messages(iter(response))  # type: ignore[call-overload]  # of a streaming response
    finally:
        response.close()


def subjects(found: Iterator[Sent], number: int) -> list[str]:
    return [next(found).subject for _ in range(number)]


@pytest.fixture(autouse=True)
def _no_stream_is_left(settings: Any) -> Iterator[None]:
    # A stream that does not get what a test waits for ends, and the test fails.
    settings.OJS = {**settings.OJS, "HTTP_EVENT_STREAM_TIME": BOUND / 2}
    yield
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("ojs-event-")],
        "the threads of the feed end with the last stream",
    )
    assert long_poll.waiting.count == event_stream._streams.count == 0


@pytest.mark.requirement("RT-003")
def test_a_stream_has_what_happens_after_its_begin_in_the_form_of_polling() -> None:
    happen("before")
    with stream() as found:
        happen("a", "b")
        first, second = next(found), next(found)
    polled = api.get("events").ok()["events"][1:]
    assert [first.data, second.data] == polled
    assert first.event == "queue.paused"
    assert int(first.id) < int(second.id)


@pytest.mark.both
@pytest.mark.requirement("RT-005", "EV-S07")
def test_a_client_that_connects_again_misses_nothing_and_sees_nothing_twice() -> None:
    with stream() as found:
        happen("a")
        last = next(found)
    happen("b", "c")
    with stream(**{"Last-Event-ID": last.id}) as found:
        assert subjects(found, 2) == ["b", "c"]
        happen("d")
        assert subjects(found, 1) == ["d"]


@pytest.mark.both
@pytest.mark.postgresql
def test_what_commits_late_is_not_lost() -> None:
    begun, end = threading.Event(), threading.Event()

    def slowly() -> None:
        with own_connections(), transaction.atomic():
            happen("late")
            begun.set()
            end.wait(BOUND)

    with ThreadPoolExecutor(1) as pool, stream() as found:
        late = pool.submit(slowly)
        assert begun.wait(BOUND)
        happen("early")
        assert subjects(found, 1) == ["early"]
        end.set()
        late.result(BOUND)
        assert subjects(found, 1) == ["late"]


@pytest.mark.postgresql
def test_a_notification_wakes_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    with stream() as found:
        happen("a")
        assert subjects(found, 1) == ["a"]
        monkeypatch.setattr(feeds, "WITHOUT_NOTIFICATION", BOUND * 10)
        # The wait that began before may end by time; the next ones cannot.
        for name in "bcde":
            happen(name)
            assert subjects(found, 1) == [name]


@pytest.mark.requirement("RT-001", "RT-R004")
def test_filters_and_channels_select_events() -> None:
    api.push(queue="a")
    with ExitStack() as stack:
        opened = [
            stack.enter_context(stream(path))
            for path in (
                "events?types=queue.resumed",
                "events/stream?channel=queue:b",
                "events/stream?event_types=queue.*&queues=b,c",
                "queues/a/events",
            )
        ]
        happen("a", "b", "c")
        publish(EventType.QUEUE_RESUMED, of_queue, "a")
        last = [next(found) for found in opened]
    assert [(each.event, each.subject) for each in last] == [
        ("queue.resumed", "a"),
        ("queue.paused", "b"),
        ("queue.paused", "b"),
        ("queue.paused", "a"),
    ]


def test_a_stream_of_a_job_ends_with_the_job(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["job.*"]}
    job, other = api.push(), api.push()
    with stream(f"jobs/{job['id']}/events") as found:
        for _ in (job, other):
            (active,) = api.fetch()
            api.post("workers/ack", {"job_id": active["id"]}).ok()
        rest = list(found)
    assert [each.event for each in rest] == [
        "job.state_changed",
        "job.started",
        "job.completed",
        "job.state_changed",
    ]
    assert {each.data.get("subject", job["id"]) for each in rest} == {job["id"]}
    same = {"job_id": job["id"], "queue": "default", "type": "test.job"}
    assert rest[0].data.pop("timestamp") == rest[1].data["time"]
    assert rest[-1].data.pop("timestamp")
    assert [rest[0].data, rest[-1].data] == [
        {**same, "from": "available", "to": "active"},
        {**same, "from": "active", "to": "completed"},
    ]


@pytest.mark.requirement("RT-008", "RT-R004")
def test_each_transition_is_a_message_beside_its_event_and_alone_where_that_is_wanted(
    settings: Any,
) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["job.state_changed", "queue.*"]}
    with (
        stream("events") as everything,
        stream("events?event_types=job.state_changed") as changes,
        stream("events?event_types=job.started,queue.*") as others,
    ):
        job = api.active(options={"retry": {"max_attempts": 1}})
        api.post(
            "workers/nack", {"job_id": job["id"], "error": {"type": "Boom", "message": "it broke"}}
        ).ok()
        happen("last")
        found = [next(everything) for _ in range(6)]
        assert [(each.event, each.data.get("to")) for each in found] == [
            ("job.enqueued", None),
            ("job.state_changed", "active"),
            ("job.started", None),
            ("job.state_changed", "discarded"),
            ("job.discarded", None),
            ("queue.paused", None),
        ]
        assert found[1].data["from"] == "available"
        alone = [next(changes) for _ in range(2)]
        assert [(each.data["from"], each.data["to"]) for each in alone] == [
            ("available", "active"),
            ("active", "discarded"),
        ]
        assert [next(others).event for _ in range(2)] == ["job.started", "queue.paused"]
    # A connection that breaks between the two messages of an event loses none.
    with stream(**{"Last-Event-ID": found[3].id}) as again:
        assert [next(again).event for _ in range(2)] == ["job.state_changed", "job.discarded"]
    with stream(**{"Last-Event-ID": found[4].id}) as again:
        assert next(again).event == "queue.paused"


@pytest.mark.requirement("RT-R002")
def test_a_stream_of_a_job_that_has_ended_says_how_and_ends() -> None:
    job = api.active()
    api.post("workers/ack", {"job_id": job["id"]}).ok()
    with stream(f"events/stream?channel=job:{job['id']}") as found:
        (only,) = found
    assert (only.event, only.data["to"]) == ("job.state_changed", "completed")


@pytest.mark.parametrize("path", ["jobs/{}/events", "events/stream?channel=job:{}"])
def test_a_client_that_has_the_end_of_a_job_is_not_to_connect_again(path: str) -> None:
    job = api.active(options={"retry": {"max_attempts": 1}})
    where = path.format(job["id"])
    with stream(where) as found:
        error = {"type": "Boom", "message": "it broke"}
        api.post("workers/nack", {"job_id": job["id"], "error": error}).ok()
        (*_, last) = found
    again = {**SSE, "Last-Event-ID": last.id}
    response = Client(headers=again).get(f"/ojs/v1/{where}")
    assert (response.status_code, response.content) == (204, b"")
    # Connected after the last event of another channel, it has not seen the end.
    with stream(where, **{"Last-Event-ID": last.id.partition("-")[0]}) as found:
        assert [each.event for each in found] == ["job.state_changed"]
    # Nor has it when the job has run again since.
    api.post(f"dead-letter/{job['id']}/retry").ok()
    api.fetch()
    api.post("workers/ack", {"job_id": job["id"]}).ok()
    with stream(where, **{"Last-Event-ID": last.id}) as found:
        assert [each.data["to"] for each in found] == ["completed"]
    with stream(**{"Last-Event-ID": last.id}) as found:
        happen("a")
        assert subjects(found, 1) == ["a"]


@pytest.mark.requirement("RT-010")
def test_a_limited_key_gets_the_events_of_its_queues(settings: Any) -> None:
    settings.OJS = {"HTTP_EVENT_STREAM_TIME": BOUND / 2}
    key = make_key("read", queues=("mine",))
    job = Api(make_key("admin")).push(queue="other")
    with stream(key=key) as found:
        happen("other", "mine")
        assert subjects(found, 1) == ["mine"]
    for path in ("stream?channel=queue:other", f"stream?channel=job:{job['id']}", "?queues=other"):
        where = f"events/{path}" if path.startswith("stream") else f"events{path}"
        Api(key).get(where, headers=SSE).error(403, "PERMISSION_DENIED")
    Api(make_key("worker")).get("events", headers=SSE).error(403, "PERMISSION_DENIED")


SSE = {"Accept": "text/event-stream"}


@pytest.mark.both
@pytest.mark.requirement("RT-006")
def test_events_that_are_gone_are_a_gap() -> None:
    happen("a", "b", "c", "d")
    events = list(Event.objects.order_by("pk"))
    api.get("events").ok()
    Event.objects.filter(pk__in=[event.pk for event in events[:3]]).delete()
    with stream(**{"Last-Event-ID": "1"}) as found:
        gap = next(found)
        assert (gap.event, gap.data) == (
            "system.gap",
            {
                "channel": "all",
                "gap_end": times.format_timestamp(events[3].time),
            },
        )
        assert subjects(found, 1) == ["d"]


@pytest.mark.both
def test_a_client_that_had_what_the_database_has_lost_is_told_and_misses_nothing_new() -> None:
    happen("a", "b")
    cursor = api.get("events").ok()["cursor"]
    Event.objects.filter(position=int(cursor)).delete()
    survived = str(int(cursor) - 1)
    found = api.get(f"events?after={cursor}").ok()
    assert found == {"events": [], "cursor": survived, "has_more": False, "tail_lost": True}
    with stream(**{"Last-Event-ID": cursor}) as found:
        gap = next(found)
        assert (gap.event, gap.id) == ("system.gap", survived)
        happen("c")
        assert subjects(found, 1) == ["c"]


def test_a_stream_that_goes_on_in_a_database_that_has_lost_its_tail_says_so() -> None:
    happen("a", "b")
    last = int(api.get("events").ok()["cursor"])
    follower = event_messages.Follower(event_messages.Channel(name="all"), last)
    Event.objects.filter(position=last).delete()
    page, _ = event_messages.read(follower, 10)
    assert [each.event for each in follower.messages(page)] == ["system.gap"]
    assert follower.after == last - 1


@pytest.mark.parametrize("unknown", ["x", "evt_019539a4-b68c-7def-8000-aabbccddeeff", "-1"])
def test_a_last_event_that_is_not_known_is_a_gap_and_no_error(unknown: str) -> None:
    happen("before")
    with stream(**{"Last-Event-ID": unknown}) as found:
        gap = next(found)
        assert gap.event == "system.gap"
        # The id of an event contains its time.
        start = "2025-02-24T20:27:30.828Z" if unknown.startswith("evt_") else None
        assert gap.data.get("gap_start") == start
        assert gap.data["gap_end"] > "2025-02-24T20:27:30.828Z"
        happen("a")
        assert subjects(found, 1) == ["a"]


@pytest.mark.requirement("RT-007")
def test_a_slow_client_gets_everything_later(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_EVENT_RATE": 10_000}
    number = 2 * log.DEFAULT_LIMIT + 1
    with stream() as found:
        happen("first")
        assert subjects(found, 1) == ["first"]
        for _ in range(number):
            happen("a")
        assert subjects(found, number) == ["a"] * number


@pytest.mark.requirement("RT-R006")
def test_a_stream_sends_no_more_messages_than_its_rate(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_EVENT_RATE": 10}
    names = [f"q{number}" for number in range(15)]
    with stream() as found:
        began = time.monotonic()
        happen(*names)
        assert subjects(found, 15) == names
        # Pages of 5, each half a second after the one before.
        assert time.monotonic() - began > 0.9


@pytest.mark.requirement("RT-009")
def test_a_server_that_stops_ends_its_streams_with_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The feed is the one of this process: another test begins with another server.
    monkeypatch.setattr(feeds.feed, "is_stopping", False)
    job = api.active()
    with stream() as events, stream(f"jobs/{job['id']}/progress/stream") as progress:
        happen("a")
        last = next(events)
        feeds.feed.stop()
        told, *rest = events
        assert (told.event, told.id, rest) == ("server.shutdown", last.id, [])
        assert [each.event for each in progress] == ["server.shutdown"]
    # A client that comes meanwhile is told so too.
    with stream() as late:
        assert [each.event for each in late] == ["server.shutdown"]


def test_after_begins_a_stream_earlier() -> None:
    happen("a")
    with stream("events?after=0") as found:
        assert subjects(found, 1) == ["a"]


@pytest.mark.requirement("RT-004", "RT-R001")
def test_silence_is_filled_with_comments_that_move_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 0 < event_stream.HEARTBEAT <= 15
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.01)
    happen("a")
    position = str(api.get("events").ok()["cursor"])
    client = Client(headers=SSE)
    response = client.get("/ojs/v1/events", **{"wsgi.multithread": True})
    try:
        chunks = iter(response)  # type: ignore[call-overload]  # of a streaming response
        assert next(chunks) == b"retry: 3000\n\n"
        # Again and again, and not once.
        for _ in range(3):
            assert next(chunks) == f":heartbeat\nid: {position}\n\n".encode()
    finally:
        response.close()


@pytest.mark.requirement("RT-004")
@pytest.mark.parametrize("path", ["events", "progress/stream"])
def test_the_streams_of_a_job_fill_its_silence_too(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert progress_stream.HEARTBEAT is event_stream.HEARTBEAT
    for module in (event_stream, progress_stream):
        monkeypatch.setattr(module, "HEARTBEAT", 0.01)
    job = api.push()
    client = Client(headers=SSE)
    response = client.get(f"/ojs/v1/jobs/{job['id']}/{path}", **{"wsgi.multithread": True})
    try:
        chunks = iter(response)  # type: ignore[call-overload]  # of a streaming response
        assert next(chunks) == b"retry: 3000\n\n"
        for _ in range(3):
            assert next(chunks).startswith(b":heartbeat\n")
    finally:
        response.close()


def test_a_stream_sends_comments_while_it_reads_events_that_its_filters_omit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.0)
    happen("a", "b")
    position = int(api.get("events").ok()["cursor"])
    monkeypatch.setattr(log, "LOOKED_AT_ONCE", 1)
    client = Client(headers=SSE)
    path = "/ojs/v1/events/stream?channel=queue:other&after=0"
    response = client.get(path, **{"wsgi.multithread": True})
    try:
        chunks = iter(response)  # type: ignore[call-overload]  # of a streaming response
        found = [next(chunks).decode() for _ in range(3)]
    finally:
        response.close()
    assert found[1:] == [f":heartbeat\nid: {at}\n\n" for at in (position - 1, position)]


def test_a_stream_ends_after_its_maximum_time(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_EVENT_STREAM_TIME": 0.05}
    with stream() as found:
        assert list(found) == []


def test_a_server_without_threads_streams_nothing() -> None:
    response = api.get("events", headers=SSE)
    error = response.error(422, "unsupported", feature="realtime")
    assert "threads" in error["hint"]


@pytest.mark.requirement("RT-R003")
def test_streams_leave_threads_for_other_requests(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_WAITING_REQUESTS": 2}
    more: dict[str, Any] = {"wsgi.multithread": True}
    with stream(), stream():
        api.get("events", headers=SSE, **more).error(429, "rate_limited")
    with stream():
        pass


@pytest.mark.once
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("events/stream?channel=job", 400, "invalid_request"),
        ("events/stream?channel=job:1", 400, "invalid_request"),
        ("events/stream?channel=queue:A", 400, "invalid_request"),
        ("events/stream?channel=worker:w", 400, "invalid_request"),
        ("events/stream?types=job", 400, "invalid_request"),
        ("events/stream?after=x", 400, "invalid_request"),
        ("jobs/01a1fc00-0000-7000-8000-000000000001/events", 404, "not_found"),
        ("events/stream?channel=job:01a1fc00-0000-7000-8000-000000000001", 404, "not_found"),
        ("queues/unknown/events", 404, "not_found"),
    ],
)
@pytest.mark.requirement("RT-002")
def test_a_stream_that_cannot_be_is_an_error_in_json(path: str, status: int, code: str) -> None:
    api.get(path, headers=SSE, **{"wsgi.multithread": True}).error(status, code)


def test_head_is_the_headers_of_a_stream() -> None:
    # Types have no case.
    for accept in ("Text/Event-Stream", "text/event-stream;q=1.0;v=2"):
        response = Client(headers={"Accept": accept}).head("/ojs/v1/events")
        assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream")


async def _asgi(act: Callable[[ApplicationCommunicator], Any], path: str) -> None:
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"accept", b"text/event-stream"), (b"host", b"testserver")],
    }
    server = ApplicationCommunicator(get_asgi_application(), scope)
    await server.send_input({"type": "http.request", "body": b"", "more_body": False})
    start = await server.receive_output(BOUND)
    assert start["status"] == 200
    await act(server)
    await server.send_input({"type": "http.disconnect"})
    await server.wait(BOUND)


def test_under_asgi_a_stream_occupies_no_thread_and_ends_with_its_client() -> None:
    async def act(server: ApplicationCommunicator) -> None:
        assert (await server.receive_output(BOUND))["body"] == b"retry: 3000\n\n"
        await asyncio.to_thread(_happen_elsewhere)
        chunk = (await server.receive_output(BOUND))["body"]
        assert [each.subject for each in messages(iter([chunk]))] == ["a"]
        assert (event_stream._streams.count, long_poll.waiting.count) == (1, 0)

    asyncio.run(_asgi(act, "/ojs/v1/events"))
    assert event_stream._streams.count == 0


def _happen_elsewhere() -> None:
    with own_connections():
        happen("a")


@pytest.mark.slow
def test_behind_a_real_server(
    process_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in process_environment.items():
        monkeypatch.setenv(name, value)
    _, key = ApiKeyFactory()
    headers = {"Authorization": f"Bearer {key}", **SSE}
    with Site(0, log=tmp_path / "log") as site, httpx.Client(timeout=BOUND) as client:
        where = f"{site.url}/ojs/v1/events"

        def open_one(stack: ExitStack) -> httpx.Response:
            return stack.enter_context(client.stream("GET", where, headers=headers))

        with ExitStack() as stack:
            found = messages(open_one(stack).iter_raw())
            happen("a")
            last = next(found)
            assert last.subject == "a"
        happen("b")
        headers["Last-Event-ID"] = last.id
        with ExitStack() as stack:
            assert next(messages(open_one(stack).iter_raw())).subject == "b"
            while (rejected := open_one(stack)).status_code == 200:
                pass
            assert rejected.status_code == 429
            # The threads that are left serve requests.
            assert httpx.get(f"{site.url}/ojs/v1/health", timeout=BOUND).status_code == 200

        def may_stream_again() -> bool:
            # A server sees that a client has gone when it sends something.
            happen("c")
            with ExitStack() as stack:
                return all(open_one(stack).status_code == 200 for _ in range(5))

        eventually(may_stream_again, "clients that have gone leave room for others")


@pytest.mark.both
@pytest.mark.requirement("PRG-R003")
def test_the_progress_of_a_job_is_streamed_to_its_end(settings: Any) -> None:
    # It needs no event that is recorded.
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": []}
    job = api.active()
    path = f"jobs/{job['id']}/progress/stream"
    with stream(path) as found:
        api.put(f"jobs/{job['id']}/progress", {"progress": 0.25, "data": {"rows": 1}}).ok()
        first = next(found)
        shown = api.get(f"jobs/{job['id']}/progress").ok()
        assert first.event == "progress"
        assert first.data == {name: shown[name] for name in ("progress", "data", "updated_at")}
        api.put(f"jobs/{job['id']}/progress", {"progress": 0.5}).ok()
        assert next(found).data["progress"] == 0.5
    # A client that connects again gets no report twice.
    last = Client(headers=SSE)
    with stream(path) as again:
        seen = next(again).id
    with stream(path, **{"Last-Event-ID": seen}) as again:
        api.post("workers/ack", {"job_id": job["id"]}).ok()
        (end,) = again
    assert (end.event, end.data["progress"], end.data["state"]) == ("completed", 1.0, "completed")
    response = last.get(f"/ojs/v1/{path}", headers={"Last-Event-ID": end.id})
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.requirement("PRG-R003")
@pytest.mark.parametrize(("act", "event"), [("nack", "failed"), ("cancel", "cancelled")])
def test_the_stream_of_progress_says_how_a_job_ended(act: str, event: str) -> None:
    job = api.active(options={"retry": {"max_attempts": 1}})
    body = {"job_id": job["id"], "error": {"type": "Boom", "message": "it broke"}}
    path = "workers/nack" if act == "nack" else f"jobs/{job['id']}/cancel"
    with stream(f"jobs/{job['id']}/progress/stream") as found:
        api.put(f"jobs/{job['id']}/progress", {"progress": 0.25}).ok()
        assert next(found).data["progress"] == 0.25
        api.post(path, body if act == "nack" else None).ok()
        (end,) = found
    assert (end.event, end.data["progress"]) == (event, 0.25)


def test_who_may_not_read_a_job_gets_no_stream_of_its_progress(settings: Any) -> None:
    job = api.push(queue="other")
    settings.OJS = {"HTTP_EVENT_STREAM_TIME": BOUND / 2}
    limited = Api(make_key("read", queues=("mine",)))
    path = f"jobs/{job['id']}/progress/stream"
    limited.get(path, headers=SSE).error(403, "PERMISSION_DENIED")
    Api().get(path, headers=SSE).error(401, "UNAUTHENTICATED")

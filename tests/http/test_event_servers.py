"""Streams and WebSockets behind real servers: they stop, they are killed, and clients are slow."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db import transaction

import example_project
from django_ojs.operations.access import api_keys
from django_ojs.operations.events import publish
from django_ojs.spec.events import EventType, NewEvent
from django_ojs.spec.scopes import Scope
from example_project.site_server import Site
from tests import fork_server
from tests.http.test_event_stream import SSE, happen, messages
from tests.worker.waiting import BOUND, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _environment(process_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in process_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.http.closed_settings")
    monkeypatch.setenv("PYTHONPATH", str(Path(example_project.__file__).parent.parent))


@pytest.fixture
def key() -> str:
    return api_keys.create(name="reader", scopes=[Scope.READ])[1]


class Uvicorn:
    """A uvicorn process with the ASGI application of the example project."""

    def __init__(self, log: Path, application: str = "example_project.asgi") -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "uvicorn", f"{application}:application"]
        with listening, log.open("wb") as out:
            # The standard input is a file that a fork gets, too.
            self.process = fork_server.popen(
                [*command, "--fd", "0", "--timeout-graceful-shutdown", "5"],
                stdin=listening,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        httpx.get(f"http://{self.address}/ojs/v1/health", timeout=BOUND)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal, and wait for the end of the process."""
        self.process.send_signal(number)
        self.process.wait(BOUND)


@pytest.fixture
def uvicorn(tmp_path: Path) -> Iterator[Uvicorn]:
    pytest.importorskip("uvicorn")
    pytest.importorskip("websockets")
    server = Uvicorn(tmp_path / "uvicorn.log")
    yield server
    server.end(signal.SIGKILL)


@contextmanager
def connected(server: Uvicorn, key: str, **values: Any) -> Iterator[Any]:
    from websockets.sync.client import connect

    url = f"ws://{server.address}/ojs/v1/ws"
    headers = {"Authorization": f"Bearer {key}"}
    with connect(url, additional_headers=headers, subprotocols=["ojs.v1"], **values) as found:
        yield found


def ask(client: Any, **message: Any) -> Any:
    client.send(json.dumps(message))
    return json.loads(client.recv(BOUND))


@pytest.mark.requirement("RT-009")
def test_gunicorn_that_stops_tells_its_streams(key: str, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {key}", **SSE}
    with Site(0, log=tmp_path / "log") as site:
        url = f"{site.url}/ojs/v1/events"
        with httpx.stream("GET", url, headers=headers, timeout=BOUND) as response:
            found = messages(response.iter_raw())
            happen("a")
            assert next(found).subject == "a"
            process = site._process
            assert process is not None
            process.terminate()
            last = next(found)
            assert last.event == "server.shutdown"
            assert last.data["grace_period_ms"] == 5_000
            assert list(found) == []
        process.wait(BOUND)
        assert process.returncode == 0


@pytest.mark.requirement("RT-009")
def test_uvicorn_that_stops_tells_its_streams_and_its_connections(
    uvicorn: Uvicorn, key: str
) -> None:
    headers = {"Authorization": f"Bearer {key}", **SSE}
    url = f"http://{uvicorn.address}/ojs/v1/events"
    with connected(uvicorn, key) as client, httpx.Client(timeout=BOUND) as http:
        assert client.subprotocol == "ojs.v1"
        ask(client, action="subscribe", channel="all")
        with http.stream("GET", url, headers=headers) as response:
            found = messages(response.iter_raw())
            happen("a")
            event = json.loads(client.recv(BOUND))
            assert next(found).subject == event["data"]["subject"] == "a"
            uvicorn.process.terminate()
            last = next(found)
            assert (last.event, last.id) == ("server.shutdown", event["id"])
            assert list(found) == []
        told = json.loads(client.recv(BOUND))
        assert (told["event"], told["id"]) == ("server.shutdown", event["id"])
        with pytest.raises(Exception, match="1012"):
            client.recv(BOUND)
        assert client.close_code == 1012
    uvicorn.process.wait(BOUND)


@pytest.mark.requirement("RT-R005")
def test_a_client_of_a_killed_server_goes_on_at_another_one(
    uvicorn: Uvicorn, key: str, tmp_path: Path
) -> None:
    with connected(uvicorn, key) as client:
        ask(client, action="subscribe", channel="all")
        happen("a")
        last = json.loads(client.recv(BOUND))["id"]
        uvicorn.end(signal.SIGKILL)
        happen("b")
    other = Uvicorn(tmp_path / "other.log")
    try:
        with connected(other, key) as client:
            assert ask(client, action="resume", last_event_id=last)["type"] == "resumed"
            ask(client, action="subscribe", channel="all")
            happen("c")
            found = [json.loads(client.recv(BOUND))["data"]["subject"] for _ in range(2)]
            assert found == ["b", "c"]
    finally:
        other.end(signal.SIGKILL)


@pytest.mark.requirement("RT-010")
def test_a_key_of_one_queue_gets_nothing_of_another_one(uvicorn: Uvicorn) -> None:
    key = api_keys.create(name="limited", scopes=[Scope.READ], queues=["mine"])[1]
    with connected(uvicorn, key) as client:
        assert ask(client, action="subscribe", channel="queue:other")["code"] == "PERMISSION_DENIED"
        ask(client, action="subscribe", channel="all")
        happen("other", "mine")
        assert json.loads(client.recv(BOUND))["data"]["subject"] == "mine"


@pytest.mark.requirement("RT-007")
def test_a_client_that_reads_nothing_is_disconnected_and_the_others_are_served(
    key: str, tmp_path: Path
) -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("websockets")
    from websockets.exceptions import InvalidStatus

    server = Uvicorn(tmp_path / "log", "tests.http.impatient_asgi")
    events = [
        NewEvent(type=EventType.QUEUE_PAUSED, subject=f"q{n}", queue=f"q{n}", data={"x": LARGE})
        for n in range(1_000)
    ]

    def has_room() -> bool:
        try:
            with connected(server, key):
                pass
        except InvalidStatus as rejected:
            return rejected.response.status_code != 429
        return True

    try:
        # With little room in its kernel, and of what cannot be compressed.
        small = {"sock": small_socket(server), "max_queue": 1, "compression": None}
        with connected(server, key, **small) as slow, connected(server, key) as quick:
            for client in (slow, quick):
                ask(client, action="subscribe", channel="all")
            before = resident(server.process.pid)
            with transaction.atomic():
                publish.record(events)
            found = [json.loads(quick.recv(BOUND))["data"]["subject"] for _ in events]
            assert found == [event.subject for event in events]
            # There are not all events of the slow one in the memory, which are 20 MB.
            assert resident(server.process.pid) - before < 15_000
            eventually(has_room, "the slow one is disconnected")
            assert 0 < sum(1 for _ in until_closed(slow)) < len(events)
    finally:
        server.end(signal.SIGKILL)


LARGE = "y" * 20_000


def until_closed(client: Any) -> Iterator[Any]:
    """Yield the messages that are there until the connection has ended."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):
        while True:
            yield client.recv(BOUND)


def small_socket(server: Uvicorn) -> socket.socket:
    """Return a connection to a server that takes little before its program reads."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    host, _, port = server.address.partition(":")
    found.connect((host, int(port)))
    return found


def resident(pid: int) -> int:
    """Return the memory of a process, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def test_a_request_without_a_key_gets_the_response_of_the_api(uvicorn: Uvicorn) -> None:
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus) as rejected, connected(uvicorn, "ojs_unknown"):
        pass
    assert rejected.value.response.status_code == 401
    assert b'"UNAUTHENTICATED"' in (rejected.value.response.body or b"")

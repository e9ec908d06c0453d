"""Streams behind real servers: they stop, they are killed, and clients are slow."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from django.db import transaction

import example_project
from django_ojs.hooks import publish_all
from django_ojs.spec.published import EventType, NewEvent
from example_project.site_server import Site
from tests import fork_server
from tests.http.test_event_stream import SSE, Sent, happen, messages
from tests.model_factories import ApiKeyFactory
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _environment(process_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in process_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.http.closed_settings")
    monkeypatch.setenv("PYTHONPATH", str(Path(example_project.__file__).parent.parent))


@pytest.fixture
def key() -> str:
    return ApiKeyFactory()[1]


class Uvicorn:
    """A uvicorn process with the ASGI application of the example project."""

    def __init__(self, log: Path) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "uvicorn", "example_project.asgi:application"]
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
    server = Uvicorn(tmp_path / "uvicorn.log")
    yield server
    server.end(signal.SIGKILL)


@contextmanager
def stream(server: Uvicorn, key: str, last_id: str = "") -> Iterator[Iterator[Sent]]:
    """Open a stream, and yield its messages."""
    headers = {"Authorization": f"Bearer {key}", **SSE}
    if last_id:
        headers["Last-Event-ID"] = last_id
    url = f"http://{server.address}/ojs/v1/events"
    with httpx.stream("GET", url, headers=headers, timeout=BOUND) as response:
        assert response.status_code == 200
        yield messages(response.iter_raw())


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
def test_uvicorn_that_stops_tells_its_streams(uvicorn: Uvicorn, key: str) -> None:
    with stream(uvicorn, key) as found:
        happen("a")
        event = next(found)
        assert event.subject == "a"
        uvicorn.process.terminate()
        last = next(found)
        assert (last.event, last.id) == ("server.shutdown", event.id)
        assert list(found) == []
    uvicorn.process.wait(BOUND)


def test_a_client_of_a_killed_server_goes_on_at_another_one(
    uvicorn: Uvicorn, key: str, tmp_path: Path
) -> None:
    with stream(uvicorn, key) as found:
        happen("a")
        last = next(found).id
        uvicorn.end(signal.SIGKILL)
    happen("b")
    other = Uvicorn(tmp_path / "other.log")
    try:
        with stream(other, key, last) as found:
            happen("c")
            assert [next(found).subject for _ in range(2)] == ["b", "c"]
    finally:
        other.end(signal.SIGKILL)


@pytest.mark.requirement("RT-007")
def test_a_client_that_reads_nothing_uses_up_no_memory_and_the_others_are_served(
    uvicorn: Uvicorn, key: str
) -> None:
    events = [
        NewEvent(type=EventType.QUEUE_PAUSED, subject=f"q{n}", queue=f"q{n}", data={"x": LARGE})
        for n in range(1_000)
    ]
    with silent(uvicorn, key), stream(uvicorn, key) as quick:
        for some in (events[:WARM_UP], events[WARM_UP:]):
            before = resident(uvicorn.process.pid)
            with transaction.atomic():
                publish_all(some)
            assert [next(quick).subject for _ in some] == [event.subject for event in some]
        # Not all events of the other one are in the memory, which are 20 MB.
        assert resident(uvicorn.process.pid) - before < 10_000


#: Events that a server sends before its memory is measured: several pages.
WARM_UP = 200
LARGE = "y" * 20_000


@contextmanager
def silent(server: Uvicorn, key: str) -> Iterator[None]:
    """Open a stream, and read nothing; the kernel takes little of what the server sends."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, _, port = server.address.partition(":")
        client.connect((host, int(port)))
        headers = {"Host": server.address, "Authorization": f"Bearer {key}", **SSE}
        lines = ["GET /ojs/v1/events HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        yield


def resident(pid: int) -> int:
    """Return the memory of a process, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

"""The open server as its users start it: one command, one port, and nothing left of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.databases import KIND
from tests.worker.processes import ROOT

# Not measured: what these processes run of the package, other tests run in this one.
pytestmark = [pytest.mark.slow, pytest.mark.process]

SECONDS = 180.0
COMMAND = [sys.executable, "manage.py", "serve_open"]
COMMAND += ["--settings", "example_project.open.settings"]


def environment(**more: str) -> dict[str, str]:
    # Nothing of the test run: the command makes a database of its own.
    names = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "OJS_OPEN_DATABASE_URL")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return {**inherited, "OJS_DEMO_DATABASE": KIND, "OJS_DEMO_DEBUG": "1", **more}


#: For what depends on no database: a cluster of PostgreSQL takes longer to make than the test.
NO_CLUSTER = {"OJS_DEMO_DATABASE": "sqlite"}


class Server:
    """The command, and requests to what it serves."""

    def __init__(self, port: int = 0, **variables: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--port", str(port)],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first.startswith("OJS "), first + self.process.stdout.read()
        self.url = first.split()[1]

    def post(self, path: str, **data: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=json.dumps(data).encode(),
            headers={"Content-Type": "application/openjobspec+json"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found

    def get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=SECONDS) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(self.url.split(":")[2].split("/")[0]))) == 0


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a server that a test ends; of a cluster, test_embedded_server.py shows that it ends."""
    server = Server(**NO_CLUSTER)
    yield server
    if server.process.poll() is None:
        server.process.terminate()
    server.process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    """Return a server for all tests that only send requests: each makes a database and tables."""
    server = Server()
    yield server
    server.process.terminate()
    server.process.communicate(timeout=SECONDS)


@pytest.fixture
def open_server(running_server: Server) -> Server:
    running_server.post("/admin/reset")
    return running_server


def wait_until(true: Any, what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # Of another process: there is no signal of it to wait on.


def test_a_body_in_chunks_is_read_and_one_of_broken_chunks_is_rejected(
    open_server: Server,
) -> None:
    # Who sends what it is still writing knows no length: urllib sends chunks then, as Go does.
    pieces = iter([b'{"type": "a.b", ', b'"args": [1]}'])
    kind = {"Content-Type": "application/openjobspec+json"}
    request = urllib.request.Request(f"{open_server.url}/jobs", data=pieces, headers=kind)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        assert json.loads(response.read())["job"]["args"] == [1]
    port = int(open_server.url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as link:
        head = "POST /ojs/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
        link.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\nno size\r\n".encode())
        assert link.recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_jobs_are_taken_promoted_kept_as_events_and_reset(open_server: Server) -> None:
    job = open_server.post("/jobs", type="a.b", args=[1])["job"]
    assert open_server.post("/workers/fetch", queues=["default"])["jobs"][0]["id"] == job["id"]

    later = open_server.post("/jobs", type="a.b", args=[], options={"delay_until": "+PT1S"})["job"]
    assert later["state"] == "scheduled"
    path = f"/jobs/{later['id']}"
    wait_until(lambda: open_server.get(path)["job"]["state"] == "available", "it is not promoted")

    open_server.post("/admin/reset")
    assert open_server.post("/workers/fetch", queues=["default"])["jobs"] == []
    with pytest.raises(urllib.error.HTTPError, match="404"):
        open_server.get(path)


@pytest.mark.parametrize("named", [True, False], ids=["fetched by name", "fetched by nobody"])
@pytest.mark.parametrize("directive", ["quiet", "terminate"])
def test_a_job_may_ask_for_a_directive(directive: str, named: bool, open_server: Server) -> None:
    asked = {"options": {"metadata": {"test_directive": directive}}}
    job = open_server.post("/jobs", type="a.b", args=[], **asked)["job"]
    worker = {"worker_id": "w"} if named else {}
    assert open_server.post("/workers/heartbeat", worker_id="w")["state"] == "running"

    open_server.post("/workers/fetch", queues=["default"], **worker)
    beat = open_server.post("/workers/heartbeat", worker_id="w", active_jobs=[job["id"]])
    assert beat["state"] == directive
    assert open_server.post("/workers/heartbeat", worker_id="other")["state"] == "running"

    open_server.post("/workers/ack", job_id=job["id"], **worker)
    assert open_server.post("/workers/heartbeat", worker_id="w")["state"] == "running"


def test_a_signal_ends_it_and_all_its_processes(server: Server) -> None:
    # `test_serve` sends SIGINT; the commands share how they wait for a signal.
    server.process.terminate()
    said, _ = server.process.communicate(timeout=SECONDS)
    assert server.process.returncode == 0, said
    assert "Traceback" not in said
    assert not server.is_listening()


def test_the_web_server_does_not_outlive_a_command_that_was_killed(server: Server) -> None:
    assert server.is_listening()
    server.process.kill()
    wait_until(lambda: not server.is_listening(), "it still listens")


def rejection(*arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**NO_CLUSTER, **variables),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_is_installed_with_zstd_and_metrics() -> None:
    # `make serve-open` installs this extra, not the one of the tests.
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(line.startswith("zstandard") for line in extras["demo"])
    assert any("metrics" in line for line in extras["demo"])


def test_a_port_that_is_taken_is_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} of 127.0.0.1 cannot be used" in rejection("--port", str(port))


def test_it_does_not_run_without_debug() -> None:
    assert "needs DEBUG" in rejection(OJS_DEMO_DEBUG="0")


def test_no_web_server_serves_it_without_debug() -> None:
    gunicorn = shutil.which("gunicorn", path=os.path.dirname(sys.executable))
    assert gunicorn is not None
    done = subprocess.run(
        [gunicorn, "--bind", "127.0.0.1:0", "example_project.wsgi"],
        env=environment(
            OJS_DEMO_DEBUG="0",
            DJANGO_SETTINGS_MODULE="example_project.open.settings",
            OJS_OPEN_DATABASE_URL="sqlite:///nothing.sqlite3",
        ),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode != 0
    assert "needs DEBUG" in done.stderr

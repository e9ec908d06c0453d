"""The API behind real servers: gunicorn, and nginx before it as the documentation says."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from django_ojs.extensions.backpressure.storage import LOCK_TIMEOUT
from django_ojs.models import Job, Worker
from django_ojs.operations import queues
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from example_project.gunicorn_conf import threads, workers
from example_project.site_server import Site
from tests import factories
from tests.model_factories import ApiKeyFactory
from tests.other_session import open_transaction
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND, eventually

PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PAGE = ROOT / "docs/how-to/secure-the-api.md"
SLOW = 150

pytestmark = [
    pytest.mark.once,
    pytest.mark.process,
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.slow,
]

_MAIN = """\
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {page}
}}
"""


def configuration(upstream: int, port: int) -> str:
    """Return what the page says, with the ports of this test."""
    (block,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block.count("127.0.0.1:8001") == block.count("listen 8000;") == 1
    return block.replace("127.0.0.1:8001", f"127.0.0.1:{upstream}").replace(
        "listen 8000;", f"listen 127.0.0.1:{port};"
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def nginx(upstream: int) -> Iterator[int]:
    """Run it before a server, and yield its port."""
    assert PROGRAM is not None
    port = free_port()
    # Not pytest's folder: nginx's workers are another user, who must reach theirs.
    folder = Path(tempfile.mkdtemp(prefix="ojs-nginx-"))
    folder.chmod(0o711)
    page = configuration(upstream, port)
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, page=page))
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [PROGRAM, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: listens(port) or process.poll() is not None, "nginx is up")
        assert process.poll() is None, (folder / "output").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(BOUND)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def gunicorn_of_eight_threads(
    process_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """Return the port of a gunicorn with one process of eight threads."""
    for name, value in process_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--workers 1 --threads 8")
    with Site(0, log=tmp_path / "gunicorn.log") as site:
        yield site.port


@pytest.fixture(scope="module")
def proxy(gunicorn: Site) -> Iterator[int]:
    """Return the port of nginx before it."""
    if PROGRAM is None:
        pytest.skip("nginx is not installed")
    with nginx(gunicorn.port) as port:
        yield port


def push(port: int, body: bytes, key: str, path: str = "jobs") -> tuple[int, bytes]:
    """Push as a client does that sends the whole body first. Return status and body."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/ojs/v1/{path}",
        body,
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=240) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def slow_client(port: int, sent: bytes) -> socket.socket:
    """Connect from an address that is not the other clients', and send the begin of a request."""
    client = socket.create_connection(("127.0.0.1", port), 10, ("127.0.0.2", 0))
    client.sendall(sent)
    return client


def is_claimed_for_a_client_that_left(port: int, key: str, queue: str) -> bool:
    """Wait for a job of a queue, leave, push one, and return whether it was claimed."""
    worker = f"worker of {queue}"
    body = json.dumps({"queues": [queue], "worker_id": worker, "wait_ms": 20_000}).encode()
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(
            b"POST /ojs/v1/workers/fetch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            + f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        eventually(lambda: Worker.objects.filter(pk=worker).exists(), "the request has arrived")
    job = factories.push(queue=queue)
    # Longer than the pauses of the request: one that goes on claims the job.
    time.sleep(1)
    return Job.objects.get(pk=job.pk).state != State.AVAILABLE


BEGINNINGS = [
    b"",
    b"POST /ojs/v1/jobs HTTP/1.1\r\nHost: a\r\nX-Half",
    b"POST /ojs/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"type": ',
]


def test_slow_connections_do_not_keep_others_from_the_api(proxy: int) -> None:
    assert workers * threads < SLOW
    _, key = ApiKeyFactory(scopes=[Scope.PRODUCER])
    with ExitStack() as stack:
        for number in range(SLOW):
            stack.enter_context(slow_client(proxy, BEGINNINGS[number % len(BEGINNINGS)]))
        for _ in range(2 * workers * threads):
            assert push(proxy, b'{"type": "test.job", "args": []}', key)[0] == 201


@pytest.mark.parametrize("server", ["gunicorn", "proxy"])
def test_a_fetch_claims_no_job_for_a_client_that_left(
    server: str, gunicorn: Site, request: pytest.FixtureRequest
) -> None:
    port = gunicorn.port if server == "gunicorn" else request.getfixturevalue(server)
    _, key = ApiKeyFactory(scopes=[Scope.WORKER])
    # On a busy machine a claim may begin before the client leaves, and end after the PUSH.
    attempts = (f"{server}-{number}" for number in range(5))
    assert not all(is_claimed_for_a_client_that_left(port, key, queue) for queue in attempts)


@pytest.mark.parametrize("server", ["gunicorn", "proxy"])
def test_a_client_reads_why_its_large_body_is_rejected(
    server: str, gunicorn: Site, request: pytest.FixtureRequest
) -> None:
    port = gunicorn.port if server == "gunicorn" else request.getfixturevalue(server)
    _, key = ApiKeyFactory(scopes=[Scope.PRODUCER])
    body = b" " * (17 * 1024 * 1024)
    status, content = push(port, body, key)
    assert (status, b"PAYLOAD_TOO_LARGE" in content) == (413, True)
    # Rejected before the body is looked at.
    status, content = push(port, body, key, path="nowhere")
    assert (status, b"NOT_FOUND" in content.upper()) == (404, True)


@pytest.mark.postgresql
def test_a_transaction_on_a_nearly_full_queue_leaves_the_server_to_the_others(
    gunicorn_of_eight_threads: int,
) -> None:
    port = gunicorn_of_eight_threads
    _, key = ApiKeyFactory(scopes=[Scope.PRODUCER, Scope.WORKER])
    queues.configure("full", {"backpressure": {"max_depth": 2}})
    job = json.dumps({"type": "test.job", "args": [], "options": {"queue": "full"}}).encode()
    fetch = json.dumps({"queues": ["free"]}).encode()
    factories.push(queue="free")
    with (
        ThreadPoolExecutor(24) as clients,
        open_transaction(lambda: factories.push(queue="full")) as commit,
    ):
        pushes = [clients.submit(push, port, job, key) for _ in range(24)]
        eventually(lambda: any(each.done() for each in pushes), "the server is busy with pushes")
        began = time.monotonic()
        status, found = push(port, fetch, key, "workers/fetch")
        # Each of the threads waited so long, and three pushes are waiting for each of them.
        assert time.monotonic() - began < LOCK_TIMEOUT
        assert (status, len(json.loads(found)["jobs"])) == (200, 1)
        assert {each.result()[0] for each in pushes} == {429}
        commit()
    assert push(port, job, key)[0] == 201
    assert push(port, job, key)[0] == 429

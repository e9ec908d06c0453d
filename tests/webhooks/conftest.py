"""A receiver of webhooks on this machine, and webhooks that lead to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from django_ojs.extensions.webhooks.operations import dispatch
from django_ojs.spec import json
from tests.worker.waiting import BOUND

LOOPBACK = {"WEBHOOK_HTTP": True, "WEBHOOK_PRIVATE_NETWORKS": ["127.0.0.0/8"]}


@dataclass(frozen=True)
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came, and the responses to what comes; a status of 200 when there is none left."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    responses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    #: Set: responses are sent.
    open: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=b"

    @property
    def subjects(self) -> list[str]:
        return [each.event["subject"] for each in self.received]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    found.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:
                return  # The sender was killed after the headers: no request has arrived.
            found.received.append(Received(dict(self.headers), body))
            found.open.wait(BOUND)
            self.send_response(found.responses.pop(0) if found.responses else 200)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"thanks")

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *arguments: object) -> None:
            """The worker that waited for the response was killed."""

    with Server(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


@pytest.fixture
def loopback(settings: Any) -> None:
    settings.OJS = {**settings.OJS, **LOOPBACK}


@pytest.fixture(autouse=True)
def _a_pass_reaches_all_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second, after which a pass ends, may go by at the first one on a busy machine."""
    monkeypatch.setattr(dispatch, "MAX_SECONDS", 3600)

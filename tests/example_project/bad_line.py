"""A proxy with faults: it loses or delays responses, or returns 503, as often as a test wants."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Trouble = Literal["lost", "busy", "late"]


@dataclass(kw_only=True)
class BadLine:
    """What goes wrong on the way, by operation and in order; and how often each was asked for."""

    server: str
    troubles: dict[str, list[Trouble]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    #: Ends the delay of late responses.
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def trouble(self, operation: str) -> Trouble | None:
        """Say what happens to this request."""
        self.asked[operation] += 1
        left = self.troubles.get(operation)
        return left.pop(0) if left else None


@contextmanager
def bad_line(server: str, **troubles: list[Trouble]) -> Iterator[BadLine]:
    """Listen, and pass requests on."""
    line = BadLine(server=server, troubles=troubles)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            trouble = line.trouble(self.path.rpartition("/")[2])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if trouble == "busy":
                self._say(503, b"<html>A proxy's own page", {"Retry-After": "1"})
                return
            status, response, encoding = self._ask(body)
            if trouble == "late":
                line.released.wait(60)
            if trouble == "lost":
                # The server has done it, and nobody hears of it.
                self.close_connection = True
                return
            self._say(status, response, encoding)

        def _ask(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
            """Return the status, the body and the headers that say how to read it."""
            connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=60)
            try:
                connection.request("POST", self.path, body, dict(self.headers.items()))
                response = connection.getresponse()
                names = ("Content-Type", "Content-Encoding")
                headers = {name: response.getheader(name) for name in names}
                return response.status, response.read(), {n: v for n, v in headers.items() if v}
            finally:
                connection.close()

        def _say(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        line.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield line
        finally:
            listening.shutdown()
            thread.join()

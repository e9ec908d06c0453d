"""An OJS server in a thread. It responds as the contract says, or as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import packed_zstd

#: Status, body (a value to be sent as JSON, or bytes), headers.
Reply = tuple[int, Any, dict[str, str]]


class Server:
    """Keeps the jobs it took, in order, and what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.manifest: Any = {"extensions": {"payload_limits": {"supported_compression": []}}}
        self.bound: int | None = None
        #: Called first; None leaves the response to the server.
        self.response: Callable[[str, Any], Reply | None] = lambda path, body: None
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._reply(None)

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "zstd":
                    content = packed_zstd.decompress(content)
                self._reply(json.loads(content))

            def _reply(self, body: Any) -> None:
                with server.lock:
                    server.requests.append((self.command, self.path, dict(self.headers), body))
                    reply = server.response(self.path, body) or server._own(self.path, body)
                status, response, headers = reply
                content = response if isinstance(response, bytes) else json.dumps(response).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=[0.01], daemon=True)
        self._thread.start()

    @property
    def ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]

    @property
    def args(self) -> list[Any]:
        return [job["args"][0] for job in self.jobs]

    def posts(self, path: str = "") -> list[Any]:
        """Return the bodies of the requests to a path that ends so."""
        return [
            body for method, at, _, body in self.requests if method == "POST" and at.endswith(path)
        ]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(60)

    def _own(self, path: str, body: Any) -> Reply:
        if path.endswith("/manifest"):
            return 200, self.manifest, {}
        batch = path.endswith("/batch")
        wanted = body["jobs"] if batch else [body]
        for index, job in enumerate(wanted):
            if job["id"] in self.ids:
                details = {"existing_job_id": job["id"], **({"index": index} if batch else {})}
                return error(409, "duplicate", details=details)
        if self.bound is not None and len(self.jobs) + len(wanted) > self.bound:
            return error(429, "QUEUE_FULL", headers={"Retry-After": "1"})
        self.jobs += wanted
        return (201, {"jobs": wanted, "count": len(wanted)} if batch else {"job": body}, {})


def error(
    status: int,
    code: str,
    *,
    message: str = "a rule of the server",
    details: Any = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """Return an error in the contract's shape."""
    body = {"code": code, "message": message, "retryable": status >= 429, "details": details or {}}
    return status, {"error": body}, headers or {}

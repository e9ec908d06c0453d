"""Sends jobs to an OJS server over HTTP (http-binding §9.1, §9.5)."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import httpx

from django_ojs.models import OutboxEntry
from django_ojs.outbox import responses
from django_ojs.outbox.manifest import MAX_AGE, Manifest
from django_ojs.outbox.responses import Answer, Unreachable
from django_ojs.spec import json
from django_ojs.spec.destinations import Destination
from django_ojs.spec.errors import OJSError
from django_ojs.version import VERSION

CONTENT_TYPE: Final = "application/openjobspec+json"
#: Seconds to find the server.
CONNECT: Final = 5.0
#: Bodies shorter than this gain nothing.
MINIMUM: Final = 1024
#: An answer repeats the jobs; a longer one than this is not one.
LONGEST_ANSWER: Final = 64 * 1024 * 1024


class Sender:
    """Keeps one connection to a server, and what its manifest says. Not for several threads."""

    def __init__(
        self, destination: Destination, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._destination = destination
        self._timeout = destination.timeout.total_seconds()
        headers = {"OJS-Version": "1.0", "User-Agent": f"django-ojs/{VERSION}"}
        if destination.api_key is not None:
            headers["Authorization"] = f"Bearer {destination.api_key}"
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(self._timeout, connect=min(CONNECT, self._timeout)),
            limits=httpx.Limits(max_connections=1),
            transport=transport,
        )
        self._manifest: Manifest | None = None
        self._read_at = 0.0
        #: The connection, for who hangs up.
        self._stream: Any = None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def hang_up(self) -> None:
        """End the request that is under way; for another thread than the one it is made in."""
        sock = None if self._stream is None else self._stream.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                # Not its own method: that of TLS would take the keys from the thread that reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _note(self, event: str, about: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = about["return_value"]

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Hang up when the time for a request is over: a byte now and then keeps within every other
        timeout, in the head of an answer too.
        """
        ended = threading.Event()

        def watch() -> None:
            left = self._timeout
            while not ended.wait(left):
                self.hang_up()
                left = 1.0  # There may have been no connection yet.

        threading.Thread(target=watch, name="ojs-outbox-watch", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def manifest(self) -> Manifest:
        """Return what the server says of itself, at most five minutes old. Raises Unreachable."""
        if self._manifest is None or time.monotonic() - self._read_at > MAX_AGE:
            status, headers, body = self._request("GET", "/ojs/manifest", None)
            if status >= 500 or status == 429:
                raise Unreachable(
                    f"the manifest was answered with {status}", responses.retry_after(headers)
                )
            self._manifest = Manifest.read(body if status == 200 else None)
            self._read_at = time.monotonic()
        return self._manifest

    def send(self, entries: Sequence[OutboxEntry]) -> Answer:
        """Send one job, or several in one request."""
        batch = len(entries) > 1
        if batch:
            joined = ",".join(entry.envelope for entry in entries)
            text, path = f'{{"jobs":[{joined}]}}', "/ojs/v1/jobs/batch"
        else:
            text, path = entries[0].envelope, "/ojs/v1/jobs"
        try:
            status, headers, body = self._post(path, text.encode())
        except Unreachable as error:
            return responses.unreachable(error)
        if status == 413:
            self._manifest = None  # It says something else by now.
        return responses.read(
            status, headers, body, [entry.job_id for entry in entries], batch=batch
        )

    def _post(self, path: str, content: bytes) -> tuple[int, httpx.Headers, Any]:
        packed = self._packed(content)
        status, headers, body = self._request("POST", path, packed or content, bool(packed))
        if status == 415 and packed is not None:
            # A proxy in between, or another server by now, cannot read what the manifest said.
            self._manifest = Manifest()
            return self._request("POST", path, content)
        return status, headers, body

    def _packed(self, content: bytes) -> bytes | None:
        library = _zstandard()
        if len(content) < MINIMUM or library is None or not self.manifest().zstd:
            return None
        packed: bytes = library.ZstdCompressor().compress(content)
        return packed if len(packed) < len(content) else None

    def _request(
        self, method: str, path: str, content: bytes | None, packed: bool = False
    ) -> tuple[int, httpx.Headers, Any]:
        headers = {"Content-Type": CONTENT_TYPE} if content is not None else {}
        if packed:
            headers["Content-Encoding"] = "zstd"
        url = f"{self._destination.url}{path}"
        end = time.monotonic() + self._timeout
        asked = self._client.stream(
            method, url, content=content, headers=headers, extensions={"trace": self._note}
        )
        try:
            with self._limited(), asked as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > LONGEST_ANSWER:
                        raise Unreachable("the answer has no end")
                if time.monotonic() >= end:
                    # Where nothing says how long it is, it ends when we hang up.
                    raise Unreachable("the answer did not come in time")
                return response.status_code, response.headers, _json(bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(type(error).__name__) from None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body, exact_integers=True, max_depth=json.BODY_DEPTH + 4)
    except OJSError:
        return None


def _zstandard() -> ModuleType | None:
    try:
        return import_module("zstandard")
    except ImportError:
        return None

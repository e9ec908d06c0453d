"""Sends jobs to an OJS server over HTTP (http-binding §9.1, §9.5)."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import httpx

from django_ojs.extensions.outbox import responses
from django_ojs.extensions.outbox.destinations import Destination
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.outbox.remote_manifest import MAX_AGE, RemoteManifest
from django_ojs.extensions.outbox.responses import Result, Unreachable
from django_ojs.http.responses import MEDIA_TYPE
from django_ojs.http.zstd import zstd
from django_ojs.spec import json
from django_ojs.spec.errors import OJSError
from django_ojs.spec.retry_after_reader import read_retry_after
from django_ojs.version import VERSION

#: Seconds within which a connection must be made.
CONNECT_TIMEOUT: Final = 5.0
#: A body of fewer bytes is not compressed.
MIN_COMPRESS_BYTES: Final = 1024
#: A response repeats the jobs. A longer one is invalid.
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024


class Sender:
    """Keeps one connection to a server, and its manifest. Not thread-safe, except `abort`."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._timeout = destination.timeout.total_seconds()
        headers = {"OJS-Version": "1.0", "User-Agent": f"django-ojs/{VERSION}"}
        if destination.api_key is not None:
            headers["Authorization"] = f"Bearer {destination.api_key}"
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(self._timeout, connect=min(CONNECT_TIMEOUT, self._timeout)),
            limits=httpx.Limits(max_connections=1),
        )
        self._manifest: RemoteManifest | None = None
        self._fetched_at = 0.0
        #: The current connection, for `abort`.
        self._stream: Any = None

    def close(self) -> None:
        self._client.close()

    def abort(self) -> None:
        """End the current request, from another thread."""
        sock = None if self._stream is None else self._stream.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                # `sock.shutdown` cannot be used: on a TLS socket it discards the TLS state that the
                # reading thread uses.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Abort the request after the timeout.

        The timeouts of httpx are for single reads: a server that sends a byte now and then, even of
        the headers, would keep the request open.
        """
        done = threading.Event()

        def watch() -> None:
            remaining = self._timeout
            while not done.wait(remaining):
                self.abort()
                remaining = 1.0  # Abort again: there may have been no connection yet.

        threading.Thread(target=watch, name="ojs-outbox-watch", daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def manifest(self) -> RemoteManifest:
        """Return the manifest of the server, at most five minutes old. Raises Unreachable."""
        if self._manifest is None or time.monotonic() - self._fetched_at > MAX_AGE:
            status, headers, body = self._request("GET", "/ojs/manifest", None)
            if status >= 500 or status == 429:
                raise Unreachable(
                    f"the server sent status {status} instead of the manifest",
                    read_retry_after(headers),
                )
            self._manifest = RemoteManifest.parse(body if status == 200 else None)
            self._fetched_at = time.monotonic()
        return self._manifest

    def send(self, entries: Sequence[OutboxEntry]) -> Result:
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
            self._manifest = None  # The limits of the server may have changed.
        return responses.read(
            status, headers, body, [entry.job_id for entry in entries], batch=batch
        )

    def _post(self, path: str, content: bytes) -> tuple[int, httpx.Headers, Any]:
        compressed = self._compress(content)
        status, headers, body = self._request("POST", path, compressed or content, bool(compressed))
        if status == 415 and compressed is not None:
            # A proxy, or a server that has been replaced since, does not support the encoding.
            self._manifest = RemoteManifest()
            return self._request("POST", path, content)
        return status, headers, body

    def _compress(self, content: bytes) -> bytes | None:
        library = zstd()
        if len(content) < MIN_COMPRESS_BYTES or library is None or not self.manifest().zstd:
            return None
        compressed = library.compress(content)
        return compressed if len(compressed) < len(content) else None

    def _request(
        self, method: str, path: str, content: bytes | None, compressed: bool = False
    ) -> tuple[int, httpx.Headers, Any]:
        headers = {"Content-Type": MEDIA_TYPE} if content is not None else {}
        if compressed:
            headers["Content-Encoding"] = "zstd"
        url = f"{self._destination.url}{path}"
        end = time.monotonic() + self._timeout
        request = self._client.stream(
            method, url, content=content, headers=headers, extensions={"trace": self._trace}
        )
        try:
            with self._time_limit(), request as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise Unreachable("the response is too long")
                if time.monotonic() >= end:
                    # A response without a length seems complete after `abort`.
                    raise Unreachable("the response did not end within the timeout")
                return response.status_code, response.headers, _json(bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(type(error).__name__) from None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body, exact_integers=True, max_depth=json.BODY_DEPTH + 4)
    except OJSError:
        return None

"""A client that keeps its connections, and costs as little as a client can."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

HOST = "127.0.0.1"


class Connection:
    """One connection to the server."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of its response. Raises RuntimeError for an error."""
        self._socket.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        parts, missing = [body], length - len(body)
        while missing > 0:
            parts.append(self._receive())
            missing -= len(parts[-1])
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"the server returned {head[:12].decode()}")
        return b"".join(parts)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _receive(self) -> bytes:
        data = self._socket.recv(65_536)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data


def request(key: str, method: str, path: str, body: Any = None) -> bytes:
    """Return the bytes of a request."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/openjobspec+json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def rate(port: int, shares: Sequence[Sequence[bytes]]) -> float:
    """Send the requests of each share over a connection of its own, all at once.

    Return how many responses came in a second.
    """
    shares = [share for share in shares if share]
    connections = [Connection(port) for _ in shares]
    failures: list[BaseException] = []
    ready = threading.Barrier(len(shares) + 1)

    def work(connection: Connection, requests: Sequence[bytes]) -> None:
        try:
            connection.ask(requests[0])
            ready.wait()
            for each in requests[1:]:
                connection.ask(each)
        except BaseException as error:
            failures.append(error)
            ready.abort()

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(connections, shares, strict=True)
    ]
    for thread in threads:
        thread.start()
    with suppress(threading.BrokenBarrierError):
        # The first request of each finds its worker thread and warms it; it does not count.
        ready.wait(60)
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for connection in connections:
        connection.close()
    if failures:
        raise RuntimeError("a request failed") from failures[0]
    return sum(len(share) - 1 for share in shares) / took


def median_ms(port: int, requests: Sequence[bytes]) -> float:
    """Return the median of the milliseconds that requests take, one after the other."""
    connection = Connection(port)
    connection.ask(requests[0])
    took = []
    for each in requests[1:]:
        began = time.perf_counter()
        connection.ask(each)
        took.append((time.perf_counter() - began) * 1000)
    connection.close()
    return statistics.median(took)

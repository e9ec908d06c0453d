"""https://host/path: a public or pre-signed URL, on a host that is allowed."""

import re
import ssl
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, Final

import httpcore

from django_ojs.conf import settings
from django_ojs.payloads.reader import Budget, Source
from django_ojs.payloads.reference import Reference
from django_ojs.payloads.ssrf import Network, addresses_of
from django_ojs.spec.errors import PayloadRefused, PayloadUnavailable

#: Seconds without a byte, or without an answer to a connection, after which it is given up.
PATIENCE: Final = 20.0

_AUTHORITY: Final = re.compile(r"([A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?").fullmatch
_HEADERS: Final = [
    (b"Accept", b"*/*"),
    # What was checksummed is what is wanted.
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"django-ojs"),
]


def open_(reference: Reference, place: str, budget: Budget) -> Source:
    """Ask a host that PAYLOAD_HTTPS_HOSTS names. Redirects are not followed, proxies not asked."""
    host, port, target = _split(reference.uri, place)
    values = settings()
    if not _is_allowed(host, port, values.payload_https_hosts):
        raise PayloadRefused(
            f"the host of {place} is not allowed: OJS['PAYLOAD_HTTPS_HOSTS'] does not name it"
        )
    url = httpcore.URL(scheme=b"https", host=host.encode(), port=port, target=target.encode())
    pool = httpcore.ConnectionPool(
        ssl_context=_trust(values.payload_ca_file),
        network_backend=_Guarded(values.payload_private_networks, place, budget),
        retries=0,
    )
    timeout = {"connect": PATIENCE, "read": PATIENCE, "write": PATIENCE, "pool": PATIENCE}
    with ExitStack() as opened:
        opened.enter_context(pool)
        headers = [(b"Host", _host_header(host, port)), *_HEADERS]
        try:
            answer = opened.enter_context(
                pool.stream("GET", url, headers=headers, extensions={"timeout": timeout})
            )
        except _FAILURES:
            raise PayloadUnavailable(f"the host of {place} does not answer as it should") from None
        _judge(answer, place)
        return _Body(answer.iter_stream(), opened.pop_all(), place)


# UnicodeError: a name that has no form for DNS.
_FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
    UnicodeError,
)


@lru_cache(maxsize=4)
def _trust(ca_file: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


def _split(uri: str, place: str) -> tuple[str, int, str]:
    # Not a general parser: what two of them read differently is refused here.
    rest = uri.partition("://")[2]
    cut = min((i for c in "/?#" if (i := rest.find(c)) >= 0), default=len(rest))
    found = _AUTHORITY(rest[:cut])
    target = rest[cut:].partition("#")[0]
    port = int(found[2] or 443) if found is not None else 0
    if found is None or not 0 < port < 65_536:
        raise PayloadRefused(f"{place} must be https:// with a host, and no user in it")
    return found[1].lower(), port, target if target.startswith("/") else f"/{target}"


def _is_allowed(host: str, port: int, allowed: Iterable[str]) -> bool:
    for entry in allowed:
        name, colon, wanted = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            name, wanted = entry, "443"
        below = name.startswith(".") and host.endswith(name)
        if port == int(wanted) and (below or host == name):
            return True
    return False


def _host_header(host: str, port: int) -> bytes:
    return (host if port == 443 else f"{host}:{port}").encode()


def _judge(answer: httpcore.Response, place: str) -> None:
    if 300 <= answer.status < 400:
        raise PayloadRefused(f"the host of {place} redirects, and redirects are not followed")
    if answer.status != 200:
        # 403 and 404 as well: an object may come later than its reference.
        raise PayloadUnavailable(
            f"the host of {place} does not give the payload", details={"status": answer.status}
        )
    if any(
        name.lower() == b"content-encoding" and value.lower() != b"identity"
        for name, value in answer.headers
    ):
        raise PayloadRefused(f"the host of {place} sends the payload packed")


class _Body:
    def __init__(self, chunks: Iterator[bytes], opened: ExitStack, place: str) -> None:
        self._chunks = iter(chunks)
        self._opened = opened
        self._place = place
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            try:
                self._rest = next(self._chunks)
            except StopIteration:
                return b""
            except _FAILURES:
                raise PayloadUnavailable(f"the payload of {self._place} broke off") from None
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        self._opened.close()


class _Guarded(httpcore.NetworkBackend):
    """Connects to addresses that were judged, and waits no longer than there is time."""

    def __init__(self, allowed: tuple[Network, ...], place: str, budget: Budget) -> None:
        self._inner = httpcore.SyncBackend()
        self._allowed = allowed
        self._place = place
        self._budget = budget

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a name that answers."""
        addresses = addresses_of(host.strip("[]"), port, self._allowed, self._place)
        for address in addresses:
            try:
                stream = self._inner.connect_tcp(address, port, _least(timeout, self._budget))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                self._budget.check(self._place)
                continue
            return _Timed(stream, self._budget, self._place)
        raise httpcore.ConnectError


class _Timed(httpcore.NetworkStream):
    """A connection whose every wait counts, so that a byte now and then does not keep it open."""

    def __init__(self, inner: httpcore.NetworkStream, budget: Budget, place: str) -> None:
        self._inner = inner
        self._budget = budget
        self._place = place

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._budget.check(self._place)
        return self._inner.read(max_bytes, _least(timeout, self._budget))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._budget.check(self._place)
        self._inner.write(buffer, _least(timeout, self._budget))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, _least(timeout, self._budget))
        return _Timed(inner, self._budget, self._place)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _least(timeout: float | None, budget: Budget) -> float:
    return max(0.001, min(PATIENCE if timeout is None else timeout, budget.left))

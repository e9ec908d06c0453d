"""https://host/path: a public or pre-signed URL, on a host that is allowed."""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import httpcore

from django_ojs.conf import of
from django_ojs.extensions.payloads.reader import Budget, Source
from django_ojs.extensions.payloads.reference import Reference
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.extensions.payloads.ssrf import addresses_of
from django_ojs.spec.addresses import Network
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable
from django_ojs.spec.urls import locate

#: Seconds without a byte, or without a connection, after which a request fails.
NETWORK_TIMEOUT: Final = 20.0

_HEADERS: Final = [
    (b"Accept", b"*/*"),
    # The checksum is computed from the payload as it is stored.
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"django-ojs"),
]


def open_(reference: Reference, field: str, budget: Budget) -> Source:
    """Open a URL on a host in PAYLOAD_HTTPS_HOSTS. Follows no redirects and uses no proxies."""
    host, port, target = _split(reference.uri, field)
    values = of(PayloadSettings)
    if not is_allowed(host, port, values.payload_https_hosts):
        raise PayloadRejected(
            f"the host of {field} is not allowed: OJS['PAYLOAD_HTTPS_HOSTS'] does not name it"
        )
    url = httpcore.URL(scheme=b"https", host=host.encode(), port=port, target=target.encode())
    pool = httpcore.ConnectionPool(
        ssl_context=ssl_context(values.payload_ca_file),
        network_backend=_GuardedBackend(values.payload_private_networks, field, budget),
        retries=0,
    )
    timeout = {
        "connect": NETWORK_TIMEOUT,
        "read": NETWORK_TIMEOUT,
        "write": NETWORK_TIMEOUT,
        "pool": NETWORK_TIMEOUT,
    }
    with ExitStack() as opened:
        opened.enter_context(pool)
        headers = [(b"Host", _host_header(host, port)), *_HEADERS]
        try:
            response = opened.enter_context(
                pool.stream("GET", url, headers=headers, extensions={"timeout": timeout})
            )
        except _FAILURES:
            raise PayloadUnavailable(f"the host of {field} did not send a valid response") from None
        _check(response, field)
        return _Body(response.iter_stream(), opened.pop_all(), field)


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """The response to a POST. Its headers have lower-case names, and its body may be cut off."""

    status: int
    headers: dict[str, str]
    body: bytes


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    timeout: float,
    allowed: tuple[Network, ...],
    setting: str,
    max_bytes: int,
) -> Response:
    """POST to a URL at a public address, or at one that a setting allows.

    It follows no redirects and uses no proxies. Raises PayloadRejected, PayloadUnavailable.
    """
    field = "url"
    scheme = url.partition("://")[0]
    default_port = 443 if scheme == "https" else 80
    host, port, target = _split(url, field, default_port)
    where = httpcore.URL(scheme=scheme, host=host.encode(), port=port, target=target.encode())
    fields = [(b"Host", _host_header(host, port, default_port))]
    fields += [(name.encode(), value.encode()) for name, value in headers.items()]
    with Budget(timeout) as budget:
        backend = _GuardedBackend(allowed, field, budget, setting)
        context = ssl_context(of(PayloadSettings).payload_ca_file)
        try:
            with (
                httpcore.ConnectionPool(
                    ssl_context=context, network_backend=backend, retries=0
                ) as pool,
                pool.stream("POST", where, headers=fields, content=body) as response,
            ):
                received = b""
                # The receiver has responded: the status counts without the rest of the body.
                with suppress(PayloadUnavailable, *_FAILURES):
                    for chunk in response.iter_stream():
                        received += chunk
                        if len(received) >= max_bytes:
                            break
        except _FAILURES as error:
            raise PayloadUnavailable(
                f"the host of {field} did not send a valid response",
                details={"cause": _cause(error)},
            ) from None
    found = {name.decode("latin-1").lower(): v.decode("latin-1") for name, v in response.headers}
    return Response(status=response.status, headers=found, body=received[:max_bytes])


# UnicodeError is raised for a name that cannot be encoded for DNS.
_FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
    UnicodeError,
)


def _cause(error: Exception) -> str:
    """Return what failed, for the operator of a webhook, without any text of the receiver."""
    below = error.__cause__ or error.__context__
    if isinstance(error, httpcore.TimeoutException):
        return "it took too long"
    if isinstance(below, ssl.SSLError):
        return f"TLS failed, {below.reason}"
    if isinstance(error, httpcore.ConnectError):
        return "no connection could be made"
    return "there was no valid HTTP response"


@lru_cache(maxsize=4)
def ssl_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the context for a CA file, made once."""
    return ssl.create_default_context(cafile=ca_file)


def _split(uri: str, field: str, default_port: int = 443) -> tuple[str, int, str]:
    found = locate(uri, default_port)
    if found is None:
        raise PayloadRejected(f"{field} must be https:// with a host, and no user in it")
    return found.host, found.port, found.target


def is_allowed(host: str, port: int, allowed: Iterable[str]) -> bool:
    """Return whether an entry of PAYLOAD_HTTPS_HOSTS allows a host and port."""
    for entry in allowed:
        name, colon, wanted = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            name, wanted = entry, "443"
        below = name.startswith(".") and host.endswith(name)
        if port == int(wanted) and (below or host == name):
            return True
    return False


def _host_header(host: str, port: int, default_port: int = 443) -> bytes:
    return (host if port == default_port else f"{host}:{port}").encode()


def _check(response: httpcore.Response, field: str) -> None:
    if 300 <= response.status < 400:
        raise PayloadRejected(f"the host of {field} redirects, and redirects are not followed")
    if response.status != 200:
        # 403 and 404 are retryable too, because an object may be stored later than its reference.
        raise PayloadUnavailable(
            f"the host of {field} did not return the payload", details={"status": response.status}
        )
    if any(
        name.lower() == b"content-encoding" and value.lower() != b"identity"
        for name, value in response.headers
    ):
        raise PayloadRejected(
            f"the host of {field} sent the payload compressed, which is not supported"
        )


class _Body:
    def __init__(self, chunks: Iterator[bytes], opened: ExitStack, field: str) -> None:
        self._chunks = iter(chunks)
        self._opened = opened
        self._field = field
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            try:
                self._rest = next(self._chunks)
            except StopIteration:
                return b""
            except _FAILURES:
                raise PayloadUnavailable(f"the payload of {self._field} broke off") from None
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        self._opened.close()


class _GuardedBackend(httpcore.NetworkBackend):
    """Connects to checked addresses only, and waits no longer than the budget."""

    def __init__(
        self,
        allowed: tuple[Network, ...],
        field: str,
        budget: Budget,
        setting: str = "PAYLOAD_PRIVATE_NETWORKS",
    ) -> None:
        self._inner = httpcore.SyncBackend()
        self._setting = setting
        self._allowed = allowed
        self._field = field
        self._budget = budget

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a name that accepts."""
        addresses = addresses_of(host.strip("[]"), port, self._allowed, self._field, self._setting)
        for address in addresses:
            try:
                stream = self._inner.connect_tcp(address, port, _shortest(timeout, self._budget))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                self._budget.check(self._field)
                continue
            return _TimedStream(stream, self._budget, self._field)
        raise httpcore.ConnectError


class _TimedStream(httpcore.NetworkStream):
    """A connection whose waits use up the budget: a byte now and then does not keep it open."""

    def __init__(self, inner: httpcore.NetworkStream, budget: Budget, field: str) -> None:
        self._inner = inner
        self._budget = budget
        self._field = field

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._budget.check(self._field)
        return self._inner.read(max_bytes, _shortest(timeout, self._budget))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._budget.check(self._field)
        self._inner.write(buffer, _shortest(timeout, self._budget))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(
            ssl_context, server_hostname, _shortest(timeout, self._budget)
        )
        return _TimedStream(inner, self._budget, self._field)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _shortest(timeout: float | None, budget: Budget) -> float:
    return max(0.001, min(NETWORK_TIMEOUT if timeout is None else timeout, budget.left))

"""https://, against a local server with a certificate of our own: good hosts and hostile ones."""

from __future__ import annotations

import json
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from django_ojs.extensions.payloads.schemes import https
from django_ojs.spec.errors import ChecksumMismatch, PayloadRejected, PayloadUnavailable
from tests.payloads.resolving import checksum, value
from tests.payloads.servers import HttpsServer, authority, response
from tests.worker.waiting import BOUND

DATA = {"rows": list(range(50)), "text": "ä"}
BODY = json.dumps(DATA).encode()


@pytest.mark.requirement("PL-012")
@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_what_a_host_gives_is_the_value(host: HttpsServer, algorithm: str) -> None:
    host.paths["/a/b?c=d%20e"] = response(BODY)
    uri = host.uri("/a/b?c=d%20e#part")
    assert value(uri, size=len(BODY), checksum=checksum(BODY, algorithm)) == DATA
    ((path, headers),) = host.requests
    assert path == "/a/b?c=d%20e"
    assert headers["Host"] == f"payloads.test:{host.port}"
    assert headers["Accept-Encoding"] == "identity"


def test_a_response_in_chunks_is_read(host: HttpsServer) -> None:
    host.paths["/x"] = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n3\r\n,2]\r\n0\r\n\r\n"
    )
    assert value(host.uri("/x")) == [1, 2]


@pytest.mark.requirement("PL-013")
@pytest.mark.parametrize(
    "fields",
    [
        {"checksum": checksum(b"another")},
        {"size": len(BODY) - 1},
        {"size_bytes": len(BODY) + 1},
        {"checksum": checksum(BODY, "sha512").replace("sha512", "sha512")[:-1] + "x"},
    ],
)
def test_what_is_not_what_was_meant_never_reaches_a_handler(
    host: HttpsServer, fields: dict[str, Any]
) -> None:
    host.paths["/x"] = response(BODY)
    with pytest.raises((ChecksumMismatch, PayloadRejected)) as caught:
        value(host.uri("/x"), **fields)
    assert caught.value.ojs_retryable is False


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 Temp", "308 Perm"])
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "https://payloads.test/x", "/other", "file:///etc"]
)
def test_a_redirect_is_not_followed(
    host: HttpsServer, connections_made: list[Any], status: str, target: str
) -> None:
    host.paths["/x"] = response(b"", f"Location: {target}", status=status)
    with pytest.raises(PayloadRejected, match="redirects"):
        value(host.uri("/x"))
    assert connections_made == [("127.0.0.1", host.port)]


def test_a_name_that_has_another_address_the_second_time_leads_nowhere_else(
    host: HttpsServer, names: dict[str, list[str]], connections_made: list[Any], settings: Any
) -> None:
    # Public when it is judged, internal a moment later.
    names["payloads.test"] = ["192.0.2.55", "127.0.0.1"]
    settings.OJS = settings.OJS | {"PAYLOAD_PRIVATE_NETWORKS": ["192.0.2.55"]}
    host.paths["/x"] = response(BODY)
    settings.OJS = settings.OJS | {"PAYLOAD_TIMEOUT": 1.0}
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x"))
    assert connections_made == [("192.0.2.55", host.port)]
    assert host.requests == []


def test_of_several_addresses_one_that_accepts_is_taken(
    host: HttpsServer, names: dict[str, list[str]], connections_made: list[Any], settings: Any
) -> None:
    # Nobody listens on the first.
    names["payloads.test"] = ["127.0.0.9 127.0.0.1"]
    settings.OJS = settings.OJS | {"PAYLOAD_PRIVATE_NETWORKS": ["127.0.0.0/8"]}
    host.paths["/x"] = response(BODY)
    assert value(host.uri("/x")) == DATA
    assert [address for address, _ in connections_made] == ["127.0.0.9", "127.0.0.1"]


def test_proxies_of_the_environment_are_not_asked(
    host: HttpsServer, monkeypatch: pytest.MonkeyPatch, connections_made: list[Any]
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    host.paths["/x"] = response(BODY)
    assert value(host.uri("/x")) == DATA
    assert connections_made == [("127.0.0.1", host.port)]


@pytest.mark.parametrize("where", ["headers", "body"])
def test_a_slow_drip_ends_with_the_time_there_is(
    host: HttpsServer, settings: Any, where: str
) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_TIMEOUT": 2.0}
    sent = []

    def drip(link: ssl.SSLSocket, stop: threading.Event) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"
        link.sendall(head + (b"X-Slow: " if where == "headers" else b"\r\n"))
        while not stop.wait(0.02):
            link.sendall(b"1")
            sent.append(1)

    host.paths["/x"] = drip
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x"))
    assert 0 < len(sent) < 1_000


def test_a_host_that_says_nothing_ends_with_the_time_there_is(
    host: HttpsServer, settings: Any
) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_TIMEOUT": 0.2}
    host.paths["/x"] = lambda link, stop: stop.wait(BOUND) and None
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x"))


def test_an_endless_body_ends_at_the_limit(host: HttpsServer, settings: Any) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_MAX_BYTES": 100_000}
    sent = []

    def pour(link: ssl.SSLSocket, stop: threading.Event) -> None:
        link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not stop.is_set():
            link.sendall(b"1000\r\n" + b"0" * 4096 + b"\r\n")
            sent.append(4096)

    host.paths["/x"] = pour
    with pytest.raises(PayloadRejected, match="at most 100000 bytes"):
        value(host.uri("/x"))
    # What was under way when it hung up counts as sent too.
    assert sum(sent) < 50_000_000


def test_a_size_over_the_limit_is_rejected_before_anyone_is_asked(
    host: HttpsServer, connections_made: list[Any]
) -> None:
    with pytest.raises(PayloadRejected, match="at most"):
        value(host.uri("/x"), size=10**12)
    assert connections_made == []


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n[1, 2]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"not HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        response(b"", status="403 Forbidden"),
        response(b"", status="404 Not Found"),
        response(b"", status="500 Oops"),
        response(b"[]", status="206 Partial"),
    ],
)
def test_what_a_host_does_wrong_may_be_right_the_next_time(host: HttpsServer, given: bytes) -> None:
    host.paths["/x"] = given
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x"))


def test_a_compressed_payload_is_rejected(host: HttpsServer) -> None:
    host.paths["/x"] = response(b"...", "Content-Encoding: gzip")
    with pytest.raises(PayloadRejected, match="compressed"):
        value(host.uri("/x"))


@pytest.mark.parametrize(
    "authority_of_uri",
    [
        "user@payloads.test",
        "payloads.test@169.254.169.254",
        "user:secret@payloads.test",
        "payloads.test:0",
        "payloads.test:99999",
        "payloads.test:",
        "payloads.test:443:443",
        "",
        "[::1",
        "payloads.test%2e",
        "%70ayloads.test",
        "evil.test",
        "notpayloads.test",
        "payloads.test.evil.test",
        "evil.test#payloads.test",
        "evil.test?payloads.test",
        "payloads.test:1",
    ],
)
def test_a_host_is_the_one_that_is_allowed_or_none(
    host: HttpsServer, connections_made: list[Any], authority_of_uri: str
) -> None:
    with pytest.raises(PayloadRejected) as caught:
        value(f"https://{authority_of_uri}/x")
    assert connections_made == []
    assert "payloads.test" not in caught.value.message


def test_a_dot_allows_what_is_below_a_name_and_not_the_name() -> None:
    assert https.is_allowed("a.b.example.com", 443, [".example.com"])
    assert not https.is_allowed("example.com", 443, [".example.com"])
    assert not https.is_allowed("badexample.com", 443, [".example.com"])
    assert not https.is_allowed("a.example.com", 8443, [".example.com"])
    assert https.is_allowed("a.example.com", 8443, [".example.com:8443"])
    assert https.is_allowed("[2606:4700::1]", 443, ["[2606:4700::1]"])


def test_a_certificate_of_another_name_is_not_trusted(
    host: HttpsServer, names: dict[str, list[str]], settings: Any
) -> None:
    names["other.test"] = ["127.0.0.1"]
    settings.OJS = settings.OJS | {"PAYLOAD_HTTPS_HOSTS": [f"other.test:{host.port}"]}
    host.paths["/x"] = response(BODY)
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x", "other.test"))
    assert host.requests == []


def test_a_certificate_of_another_authority_is_not_trusted(
    host: HttpsServer, settings: Any, tmp_path: Path
) -> None:
    other = authority(tmp_path, "payloads.test")
    settings.OJS = settings.OJS | {"PAYLOAD_CA_FILE": str(other.ca_file)}
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x"))
    settings.OJS = settings.OJS | {"PAYLOAD_CA_FILE": None}
    with pytest.raises(PayloadUnavailable):
        value(host.uri("/x"))
    assert host.requests == []


@pytest.mark.parametrize("body", [b"", b"\x00\x01", b"{", b"NaN", b"[" * 100 + b"]" * 100])
def test_what_is_no_value_is_rejected_with_a_hint(host: HttpsServer, body: bytes) -> None:
    host.paths["/x"] = response(body)
    with pytest.raises(PayloadRejected) as caught:
        value(host.uri("/x"))
    assert "PayloadFile" in str(caught.value.hint)

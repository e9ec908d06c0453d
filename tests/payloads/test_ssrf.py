"""Addresses that no job may make a worker connect to, in every spelling."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from django_ojs.extensions.payloads import ssrf
from django_ojs.spec.addresses import is_public
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable
from tests.cases import together
from tests.payloads.resolving import value

INTERNAL = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1"),
    *("172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200"),
    *("168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *("::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1"),
    *("64:ff9b:1::1", "64:ff9b:1::8.8.8.8", "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::"),
    *("2001:0:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "fe80::1", "fec0::1", "fc00::1"),
    *("fd00:ec2::254", "ff02::1", "100::1", "5f00::1", "4000::1"),
]
PUBLIC = [
    *("8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"),
    *("64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:8.8.8.8"),
]


@together("address", INTERNAL)
def test_an_internal_address_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@together("address", PUBLIC)
def test_a_public_address_is(address: str) -> None:
    assert is_public(ip_address(address))


SPELLINGS = [
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1"),
    *("017700000001", "localhost", "LOCALHOST", "[::1]", "[::]", "0", "0.0.0.0"),
    *("[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]", "[64:ff9b::7f00:1]", "[::127.0.0.1]"),
    *("169.254.169.254", "0xa9fea9fe", "2852039166", "[fd00:ec2::254]"),
]


@together("host", SPELLINGS)
def test_no_spelling_of_an_internal_address_is_connected_to(
    host: str, settings: Any, connections_made: list[Any]
) -> None:
    # Allowed by name, so that only the address speaks against it.
    settings.OJS = settings.OJS | {"PAYLOAD_HTTPS_HOSTS": [host]}
    with pytest.raises((PayloadRejected, PayloadUnavailable)):
        value(f"https://{host}/x")
    assert connections_made == []


@together("host", SPELLINGS)
def test_no_spelling_is_connected_to_when_nothing_is_allowed(
    host: str, connections_made: list[Any]
) -> None:
    with pytest.raises(PayloadRejected, match="PAYLOAD_HTTPS_HOSTS"):
        value(f"https://{host}/x")
    assert connections_made == []


@together("internal", INTERNAL)
def test_one_internal_address_among_public_ones_rejects_the_name(
    internal: str, settings: Any, names: dict[str, list[str]], connections_made: list[Any]
) -> None:
    names["payloads.test"] = [f"8.8.8.8 {internal} 2606:4700::1111"]
    settings.OJS = settings.OJS | {"PAYLOAD_HTTPS_HOSTS": ["payloads.test"]}
    with pytest.raises(PayloadRejected, match="PAYLOAD_PRIVATE_NETWORKS"):
        value("https://payloads.test/x")
    assert connections_made == []


def test_a_network_that_is_allowed_lets_nothing_else_through() -> None:
    networks = [ip_network("10.1.0.0/16")]
    assert ssrf.addresses_of("10.1.2.3", 443, networks, "args[0]") == ["10.1.2.3"]
    for other in ("10.2.0.1", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fe80::1%1"):
        with pytest.raises((PayloadRejected, PayloadUnavailable)):
            ssrf.addresses_of(other, 443, networks, "args[0]")


@pytest.mark.parametrize("host", ["nothing.test", "x" * 70 + ".test", "a..b"])
def test_a_name_without_an_address_is_tried_again_later(
    host: str, names: dict[str, list[str]]
) -> None:
    names["nothing.test"] = ["nothing"]
    with pytest.raises(PayloadUnavailable):
        ssrf.addresses_of(host, 443, [], "args[0]")

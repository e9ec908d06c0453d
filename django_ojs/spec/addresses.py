"""The IP addresses that may be connected to on behalf of others: public ones and allowed ones."""

import ipaddress
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# These tables are our own, because `is_global` of the standard library differs between versions,
# and has been true for NAT64, 6to4, site-local and multicast addresses.
_NOT_PUBLIC_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; 0.0.0.0 is this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; a cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's metadata, at a public address
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_NOT_PUBLIC_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",
        "3fff::/20",
    )
)
_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")


def is_public(address: Address) -> bool:
    """Return whether an address, or the IPv4 address it embeds, is on the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST and not any(address in network for network in _NOT_PUBLIC_V6)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address are routed to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None


def may_connect(text: str, allowed: Sequence[Network]) -> bool:
    """Return whether an address may be connected to: a public one, or one of an allowed network."""
    if "%" in text:  # An address with a zone is link-local.
        return False
    address = ipaddress.ip_address(text)
    if is_public(address):
        return True
    # This compares the address itself and not the one it embeds, because an IPv4 network allows no
    # IPv6 address.
    return any(address in network for network in allowed)


def literal(host: str) -> str | None:
    """Return the host of a URL in the usual form if it is an address, or None if it is a name."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        # The resolver reads 127.1 and 2130706433 as addresses too.
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None

"""Which addresses a worker may connect to for a job: public ones, and those the settings name.

A name is resolved once. Each address it has is judged, and the connection goes to one that was
judged: a name that has another address a moment later leads nowhere else.
"""

import ipaddress
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from django_ojs.spec.errors import PayloadRefused, PayloadUnavailable

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

# Own tables: what the standard library counts as global differs between its versions, and has
# held NAT64, 6to4, site-local and multicast addresses.
_NO_HOSTS_V4: Final = tuple(
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
_NO_HOSTS_V6: Final = tuple(
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
    """Say whether an address is one of the public internet, or stands for one that is."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NO_HOSTS_V4)
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST and not any(address in network for network in _NO_HOSTS_V6)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address end up at."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None


def addresses_of(host: str, port: int, allowed: Sequence[Network], place: str) -> list[str]:
    """Resolve a name, and return its addresses if a job may connect to every one of them.

    `allowed` are networks that are not public and may be reached all the same. Raises
    PayloadRefused, PayloadUnavailable when the name has no address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise PayloadUnavailable(f"the host of {place} has no address") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for text in addresses:
        if not _may_connect(text, allowed):
            raise PayloadRefused(
                f"the host of {place} has an address that is not public; "
                "OJS['PAYLOAD_PRIVATE_NETWORKS'] does not name it"
            )
    if not addresses:
        raise PayloadUnavailable(f"the host of {place} has no address")
    return addresses


def _may_connect(text: str, allowed: Sequence[Network]) -> bool:
    if "%" in text:  # With a zone: link-local.
        return False
    address = ipaddress.ip_address(text)
    if is_public(address):
        return True
    # As what it is, and not as what it stands for: a network of IPv4 lets no IPv6 through.
    return any(address in network for network in allowed)

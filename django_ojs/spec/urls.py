"""Where a connection to a URL goes: read in the same way for the check and for the use."""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final

_AUTHORITY: Final = re.compile(r"([A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?").fullmatch


@dataclass(frozen=True, slots=True)
class Location:
    """The host of a URL in lower case, its port, and the path and query that a request names."""

    host: str
    port: int
    target: str


def locate(url: str, default_port: int = 443) -> Location | None:
    """Return where a URL leads, or None if it has no valid host or has a user."""
    # A general parser is not used: two parsers may read the same URL differently, and that of the
    # standard library raises ValueError for some URLs. Such URLs are rejected here.
    _, authority, rest = split(url)
    found = _AUTHORITY(authority)
    port = int(found[2] or default_port) if found is not None else 0
    if found is None or not 0 < port < 65_536 or not _is_host(found[1]):
        return None
    target = rest.partition("#")[0]
    return Location(found[1].lower(), port, target if target.startswith("/") else f"/{target}")


def without_path(url: str) -> str:
    """Return the origin of a URL, for those who must not see its path: it may hold a secret."""
    scheme, authority, _ = split(url)
    return f"{scheme}://{authority}/…"


def split(url: str) -> tuple[str, str, str]:
    """Return the scheme of a URL, its authority, and what follows that, for any text."""
    scheme, _, rest = url.partition("://")
    cut = min((i for c in "/?#" if (i := rest.find(c)) >= 0), default=len(rest))
    return scheme, rest[:cut], rest[cut:]


def _is_host(host: str) -> bool:
    """Return False for a host in brackets that is not an IPv6 address, and True otherwise."""
    if not host.startswith("["):
        return True
    try:
        IPv6Address(host[1:-1])
    except AddressValueError:
        return False
    return True

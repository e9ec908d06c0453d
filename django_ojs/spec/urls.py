"""The part of a URL that decides where a connection goes: the same at its check and at its use."""

import re
from dataclasses import dataclass
from typing import Final

_AUTHORITY: Final = re.compile(r"([A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?").fullmatch


@dataclass(frozen=True, slots=True)
class Location:
    """The host of a URL in lower case, its port, and the path and query that a request names."""

    host: str
    port: int
    target: str


def locate(url: str, default_port: int = 443) -> Location | None:
    """Return where a URL leads, None for one without a host or with a user."""
    # Not a general parser: two of them may read the same URL differently. Such URLs are refused.
    rest = url.partition("://")[2]
    cut = min((i for c in "/?#" if (i := rest.find(c)) >= 0), default=len(rest))
    found = _AUTHORITY(rest[:cut])
    port = int(found[2] or default_port) if found is not None else 0
    if found is None or not 0 < port < 65_536:
        return None
    target = rest[cut:].partition("#")[0]
    return Location(found[1].lower(), port, target if target.startswith("/") else f"/{target}")

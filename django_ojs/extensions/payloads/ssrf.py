"""The SSRF guard: for a job, a worker connects only to public addresses and to allowed networks.

A name is resolved once, all its addresses are checked, and the connection goes to a checked
address: DNS rebinding has no effect.
"""

import socket
from collections.abc import Sequence

from django_ojs.spec.addresses import Network, may_connect
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable


def addresses_of(
    host: str,
    port: int,
    allowed: Sequence[Network],
    field: str,
    setting: str = "PAYLOAD_PRIVATE_NETWORKS",
) -> list[str]:
    """Resolve a name, and return its addresses if a job may connect to all of them.

    `allowed` are networks that need not be public, from `setting`. Raises PayloadRejected, or
    PayloadUnavailable when the name has no address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise _without_address(field) from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for text in addresses:
        if not may_connect(text, allowed):
            raise PayloadRejected(
                f"the host of {field} has an address that is not public; "
                f"OJS['{setting}'] does not name it"
            )
    if not addresses:
        raise _without_address(field)
    return addresses


def _without_address(field: str) -> PayloadUnavailable:
    return PayloadUnavailable(
        f"the host of {field} has no address", details={"cause": "its host has no address"}
    )

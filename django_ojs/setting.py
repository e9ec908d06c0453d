"""How a setting is declared: its default, the function that reads it, and what it must be.

A reader returns a hashable value, and raises ValueError or TypeError. The settings of the core are
in `conf`; an extension declares its own in a dataclass, its `settings`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import timedelta
from ipaddress import ip_network
from typing import Any, Final

from django_ojs.spec import times
from django_ojs.spec.addresses import Network

DURATION: Final = "a number of seconds, a timedelta or an ISO 8601 duration"
COUNT: Final = "an integer of at least 1"
BOOLEAN: Final = "True or False"
SHARE: Final = "a number above 0 and at most 1"
PATHS: Final = "a list of dotted paths"
NETWORKS: Final = "a list of networks such as 10.1.0.0/16"
NAMES: Final = "a list of names of members, or * for all"


def setting(
    default: object, read: Callable[[object], object], kind: str, *, secret: bool = False
) -> Any:
    """Declare a field of a dataclass of settings. `kind` follows "must be" in the error."""
    return field(default=default, repr=not secret, metadata={"read": read, "kind": kind})


def duration(value: object) -> timedelta:
    """Read a duration. A function of conf checks that it is longer than zero."""
    return times.parse_seconds(value, "the setting")


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def count(value: object, *, minimum: int = 1, maximum: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ValueError
    return value


def share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError
    return float(value)


def strings(value: object) -> tuple[str, ...]:
    """Read texts that are not empty. Raises ValueError, TypeError."""
    if isinstance(value, str | bytes | Mapping):
        raise ValueError
    texts: tuple[Any, ...] = tuple(value)  # type: ignore[arg-type]  # a non-iterable raises TypeError
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return texts


def networks(value: object) -> tuple[Network, ...]:
    """Read networks: "10.1.0.0/16", "fd12::/48", or one address."""
    return tuple(ip_network(text) for text in strings(value))

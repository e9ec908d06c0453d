"""The destinations of the setting OUTBOX: servers to which jobs are sent through the outbox."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

from django_ojs.setting import strings
from django_ojs.spec.full_policy import LOCAL
from django_ojs.spec.times import parse_seconds

MAX_BATCH: Final = 1_000

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}").fullmatch
# Characters that an HTTP header can carry: anything else would end the header, or be an error when
# the first job is sent.
_KEY: Final = re.compile(r"[!-~]+").fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """An OJS server, and the jobs that are sent to it.

    `queues` and `types` are names or patterns such as `remote-*`; a job is sent here if one
    matches its queue or its type. `timeout` is for a whole request.
    """

    name: str
    url: str
    api_key: str | None = field(default=None, repr=False)
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    batch_size: int = 100
    timeout: timedelta = timedelta(seconds=30)

    def takes(self, queue: str, type: str) -> bool:
        """Say whether a job of this queue and type is sent to this destination."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues) or any(
            fnmatchcase(type, pattern) for pattern in self.types
        )


def read(value: object) -> tuple[Destination, ...]:
    """Return the destinations of a mapping by name, in its order. Raises ValueError."""
    if isinstance(value, tuple) and all(isinstance(each, Destination) for each in value):
        return value
    if not isinstance(value, Mapping):
        raise ValueError
    return tuple(_destination(name, given) for name, given in value.items())


_FIELDS: Final = frozenset(each.name for each in fields(Destination)) - {"name"}


def _destination(name: object, given: object) -> Destination:
    if not isinstance(name, str) or not _NAME(name) or name == LOCAL:
        raise ValueError
    if not isinstance(given, Mapping) or not _FIELDS.issuperset(given):
        raise ValueError
    values: dict[str, Any] = {"name": name, **given, "url": _url(given.get("url"))}
    key = values.get("api_key")
    if key is not None and (not isinstance(key, str) or not _KEY(key)):
        raise ValueError
    for patterns in ("queues", "types"):
        values[patterns] = strings(values.get(patterns, ()))
    size = values.get("batch_size", 1)
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_BATCH:
        raise ValueError
    if "timeout" in values:
        values["timeout"] = _timeout(values["timeout"])
    return Destination(**values)


def _url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    parts = urlsplit(value)
    # `port` raises ValueError for a number above 65535.
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError
    # A key in the URL would be logged; `api_key` is not.
    if parts.query or parts.fragment or parts.username or parts.password:
        raise ValueError
    return value.rstrip("/").removesuffix("/v1").removesuffix("/ojs")


def _timeout(value: object) -> timedelta:
    timeout = parse_seconds(value, "timeout")
    if timeout <= timedelta(0):
        raise ValueError
    return timeout

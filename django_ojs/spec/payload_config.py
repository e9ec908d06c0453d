"""What a site may set for payloads outside of the envelope (payload-limits §5): read and checked.

Each reader returns a value that can be hashed, and raises ValueError or TypeError.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import PurePosixPath
from typing import Any, Final

from django_ojs.spec.times import parse_duration

#: What may be said of the S3 service, by the names that boto3 gives it.
S3_OPTIONS: Final = (
    "endpoint_url",
    "region_name",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
)

Network = IPv4Network | IPv6Network

_HOST: Final = re.compile(r"(?:\.?[a-z0-9_.\-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?").fullmatch
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._\-]{1,221}(?:/[!-\[\]-~]*)?").fullmatch
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-/]*/").fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Offload:
    """Where the Python client puts arguments that are too large, and from which size on."""

    bucket: str
    prefix: str
    over: int = 256 * 1024
    sweep_after: timedelta = timedelta(days=1)

    @property
    def root(self) -> str:
        """The URI under which all its objects are."""
        return f"s3://{self.bucket}/{self.prefix}"


def offload(value: object) -> Offload | None:
    """Read OFFLOAD."""
    if value is None or isinstance(value, Offload):
        return value
    if not isinstance(value, Mapping):
        raise ValueError
    given: dict[str, Any] = dict(value)
    bucket, prefix = given.pop("bucket"), given.pop("prefix")
    if _BUCKET(bucket) is None or "/" in bucket or _PREFIX(prefix) is None or ".." in prefix:
        raise ValueError
    over = given.get("over", 1)
    if isinstance(over, bool) or not isinstance(over, int) or over < 1:
        raise ValueError
    if "sweep_after" in given:
        age = given["sweep_after"]
        given["sweep_after"] = (
            timedelta(seconds=age)
            if isinstance(age, int | float)
            else (parse_duration(age, "the setting"))
        )
        # What an open transaction has put there must not be taken for what nobody needs.
        if given["sweep_after"] < timedelta(hours=1):
            raise ValueError
    return Offload(bucket=bucket, prefix=prefix, **given)


def hosts(value: object) -> tuple[str, ...]:
    """Read names of hosts; one that begins with a dot stands for all below it."""
    names = tuple(text.lower() for text in _strings(value))
    if not all(_HOST(name) for name in names):
        raise ValueError
    return names


def buckets(value: object) -> tuple[str, ...]:
    """Read names of buckets, with a prefix of keys where not all of a bucket is meant."""
    names = _strings(value)
    if not all(_BUCKET(name) for name in names):
        raise ValueError
    return names


def roots(value: object) -> tuple[str, ...]:
    """Read folders: absolute paths."""
    paths = _strings(value)
    if not all(
        PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
        for path in paths
    ):
        raise ValueError
    return paths


def networks(value: object) -> tuple[Network, ...]:
    """Read networks: "10.1.0.0/16", "fd12::/48", or one address."""
    return tuple(ip_network(text) for text in _strings(value))


def s3(value: object) -> tuple[tuple[str, str], ...]:
    """Read the options of the S3 service."""
    if value == ():
        return ()
    if not isinstance(value, Mapping):
        raise ValueError
    pairs = tuple(sorted(value.items()))
    if not all(name in S3_OPTIONS and isinstance(text, str) for name, text in pairs):
        raise ValueError
    return pairs


def path(value: object) -> str | None:
    """Read the path of a file."""
    if value is not None and (not isinstance(value, str) or not value.startswith("/")):
        raise ValueError
    return value


def _strings(value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes | Mapping):
        raise ValueError
    texts: tuple[Any, ...] = tuple(value)  # type: ignore[arg-type]  # TypeError is the answer for a non-iterable
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return texts

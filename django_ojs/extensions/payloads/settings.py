"""The settings for payloads outside of the envelope (payload-limits §5), and their checks.

Each reader returns a hashable value, and raises ValueError or TypeError.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any, Final

from django_ojs.setting import (
    BOOLEAN,
    COUNT,
    DURATION,
    NETWORKS,
    boolean,
    count,
    duration,
    networks,
    setting,
    strings,
)
from django_ojs.spec.addresses import Network
from django_ojs.spec.times import parse_seconds

#: Options of the S3 client, as boto3 names them.
S3_OPTIONS: Final = (
    "endpoint_url",
    "region_name",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
)

_HOST: Final = re.compile(r"(?:\.?[a-z0-9_.\-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?").fullmatch
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._\-]{1,221}(?:/[!-\[\]-~]*)?").fullmatch
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-/]*/").fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Offload:
    """Where the Python client stores arguments of more than `over` bytes."""

    bucket: str
    prefix: str
    over: int = 256 * 1024
    sweep_after: timedelta = timedelta(days=1)

    @property
    def root(self) -> str:
        """The URI under which all its objects are."""
        return f"s3://{self.bucket}/{self.prefix}"


def offload(value: object) -> Offload | None:
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
        given["sweep_after"] = parse_seconds(given["sweep_after"], "sweep_after")
        # An object of a transaction that is still open must not be removed as an orphan.
        if given["sweep_after"] < timedelta(hours=1):
            raise ValueError
    return Offload(bucket=bucket, prefix=prefix, **given)


def hosts(value: object) -> tuple[str, ...]:
    """Read host names; one that begins with a dot matches all its subdomains."""
    names = tuple(text.lower() for text in strings(value))
    if not all(_HOST(name) for name in names):
        raise ValueError
    return names


def buckets(value: object) -> tuple[str, ...]:
    """Read bucket names, each with an optional prefix of keys."""
    names = strings(value)
    if not all(_BUCKET(name) for name in names):
        raise ValueError
    return names


def roots(value: object) -> tuple[str, ...]:
    """Read folders: absolute paths."""
    paths = strings(value)
    if not all(
        PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
        for path in paths
    ):
        raise ValueError
    return paths


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
    if value is not None and (not isinstance(value, str) or not value.startswith("/")):
        raise ValueError
    return value


HOSTS: Final = "a list of host names; .example.com is its subdomains, :8443 another port than 443"
BUCKETS: Final = "a list of buckets, or bucket/prefix"
FOLDERS: Final = "a list of absolute paths"
FILE: Final = "an absolute path, or None"
S3: Final = f"a dictionary with some of {', '.join(S3_OPTIONS)}"
OFFLOAD: Final = (
    "None, or a dictionary with bucket, prefix (ending in /), over (bytes) and sweep_after (at "
    "least an hour)"
)


@dataclass(frozen=True, kw_only=True)
class PayloadSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    payload_https_hosts: tuple[str, ...] = setting((), hosts, HOSTS)
    payload_s3_buckets: tuple[str, ...] = setting((), buckets, BUCKETS)
    payload_gs_buckets: tuple[str, ...] = setting((), buckets, BUCKETS)
    payload_file_roots: tuple[str, ...] = setting((), roots, FOLDERS)
    payload_files: bool = setting(False, boolean, BOOLEAN)
    payload_private_networks: tuple[Network, ...] = setting((), networks, NETWORKS)
    payload_max_bytes: int = setting(64 * 1024 * 1024, count, COUNT)
    payload_max_file_bytes: int = setting(10 * 1024**3, count, COUNT)
    payload_timeout: timedelta = setting(timedelta(minutes=5), duration, DURATION)
    payload_ca_file: str | None = setting(None, path, FILE)
    payload_s3: tuple[tuple[str, str], ...] = setting((), s3, S3, secret=True)
    offload: Offload | None = setting(None, offload, OFFLOAD)

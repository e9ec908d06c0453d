"""The settings for references, and for what the Python client offloads."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_ojs.extensions.payloads import spec as payload_config
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
)
from django_ojs.spec.addresses import Network

HOSTS: Final = "a list of host names; .example.com is all below it, :8443 another port than 443"
BUCKETS: Final = "a list of buckets, or bucket/prefix"
FOLDERS: Final = "a list of absolute paths"
FILE: Final = "an absolute path, or None"
S3: Final = f"a dictionary with some of {', '.join(payload_config.S3_OPTIONS)}"
OFFLOAD: Final = (
    "None, or a dictionary with bucket, prefix (ending in /), over (bytes) and sweep_after (at "
    "least an hour)"
)


@dataclass(frozen=True, kw_only=True)
class PayloadSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    payload_https_hosts: tuple[str, ...] = setting((), payload_config.hosts, HOSTS)
    payload_s3_buckets: tuple[str, ...] = setting((), payload_config.buckets, BUCKETS)
    payload_gs_buckets: tuple[str, ...] = setting((), payload_config.buckets, BUCKETS)
    payload_file_roots: tuple[str, ...] = setting((), payload_config.roots, FOLDERS)
    payload_files: bool = setting(False, boolean, BOOLEAN)
    payload_private_networks: tuple[Network, ...] = setting((), networks, NETWORKS)
    payload_max_bytes: int = setting(64 * 1024 * 1024, count, COUNT)
    payload_max_file_bytes: int = setting(10 * 1024**3, count, COUNT)
    payload_timeout: timedelta = setting(timedelta(minutes=5), duration, DURATION)
    payload_ca_file: str | None = setting(None, payload_config.path, FILE)
    payload_s3: tuple[tuple[str, str], ...] = setting((), payload_config.s3, S3, secret=True)
    offload: payload_config.Offload | None = setting(None, payload_config.offload, OFFLOAD)

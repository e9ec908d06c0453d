"""Settings: one dictionary, `OJS = {...}`, in the Django settings; every default is safe.

`settings()` returns a frozen value, read once and again after `override_settings`. An unknown key,
or a value of the wrong kind, is an error that names the key: a misspelt setting that is silently
ignored would be found in production only.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_ojs.extensions.outbox import destinations
from django_ojs.extensions.payloads import spec as payload_config
from django_ojs.hooks import registry
from django_ojs.spec import published, queue_config, retry_policy, scheduling, times
from django_ojs.spec.envelope import Limits, check_queue
from django_ojs.spec.errors import OJSError
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import did_you_mean


def _duration(value: object) -> timedelta:
    return times.parse_seconds(value, "the setting")


def _retry(value: object) -> RetryPolicy:
    if not isinstance(value, (Mapping, RetryPolicy)):
        raise ValueError
    return retry_policy.parse_python(value, default=retry_policy.DEFAULT)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _count(value: object, *, minimum: int = 1, maximum: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ValueError
    return value


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError
    return float(value)


def _name_bytes(value: object) -> int:
    return _count(value, maximum=NAME_BYTES)


def _envelope_bytes(value: object) -> int:
    return _count(value, minimum=SMALLEST_LIMIT)


def _wrong_database(value: object) -> str:
    if value not in ("error", "warn", "outbox"):
        raise ValueError
    return str(value)


def _events(value: object) -> frozenset[published.EventType]:
    patterns = payload_config.strings(value)
    # A name for the events of all transitions.
    wanted = published.TRANSITIONS if published.STATE_CHANGED in patterns else frozenset()
    patterns = tuple(pattern for pattern in patterns if pattern != published.STATE_CHANGED)
    # A misspelt type must not be noticed only when its events are needed.
    if not all(published.matching([pattern]) for pattern in patterns):
        raise ValueError
    return published.matching(patterns) | wanted


class QueueConfigs(dict[str, dict[str, Any]]):
    """Configurations by queue; hashable, because the settings are. It is never changed."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none


def _queues(value: object) -> QueueConfigs:
    if not isinstance(value, Mapping):
        raise ValueError
    read = {}
    for name, config in value.items():
        is_default = name == queue_config.DEFAULT_POLICY
        if not is_default:
            check_queue(name, field=f"the queue name {name!r}")
        checked = queue_config.check(
            config,
            max_envelope_bytes=_ANY_SIZE,
            path=f"QUEUES.{name}",
            default_policy=is_default,
        )
        queue_config.check_names(checked, f"QUEUES.{name}")
        read[name] = queue_config.merge({}, checked)
    return QueueConfigs(read)


def _cache(value: object) -> str:
    if not isinstance(value, str) or value not in django_settings.CACHES:
        raise ValueError
    return value


def _request_rate(value: object) -> str | None:
    if value is None:
        return None
    # As Django REST framework has it, which reads only the first letter of the period.
    found = re.fullmatch(r"([1-9][0-9]{0,4})/(s|sec|m|min|h|hour|d|day)", str(value))
    if found is None or int(found[1]) > MAX_REQUESTS:
        raise ValueError
    return found[0]


def _service(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", value):
        raise ValueError
    return value


def _release(value: object) -> str:
    if not isinstance(value, str) or len(value) > RELEASE_LENGTH or not value.isprintable():
        raise ValueError
    return value.strip()


def _setting(
    default: object, read: Callable[[object], object], kind: str, *, secret: bool = False
) -> Any:
    return field(default=default, repr=not secret, metadata={"read": read, "kind": kind})


_ANY_SIZE = 2**53
#: The default of KEEP_EVENTS: what an operator looks up later. Heartbeats are left out, because
#: one worker makes half a million of them a month, and cancelled jobs, because they were wanted.
KEPT_EVENTS = (
    "backpressure.*",
    "queue.*",
    "worker.started",
    "worker.quiet",
    "worker.stopped",
    "job.discarded",
    "job.expired",
    "workflow.failed",
    "cron.*",
    "rate_limit.*",
)
#: The times of so many requests are kept of each caller.
MAX_REQUESTS = 10_000
DURATION = "a number of seconds, a timedelta or an ISO 8601 duration"
#: Durations whose zero has a meaning: never.
_MAY_BE_ZERO = frozenset(("stall_timeout",))
COUNT = "an integer of at least 1"
#: Every implementation must accept envelopes of this size (payload-limits).
SMALLEST_LIMIT = 1024 * 1024
ENVELOPE = f"an integer of at least {SMALLEST_LIMIT} (1 MiB)"
#: The length of the columns that hold the names.
NAME_BYTES = 255
NAME_LENGTH = f"an integer from 1 to {NAME_BYTES}"
BOOLEAN = "True or False"
SHARE = "a number above 0 and at most 1"
PATHS = "a list of dotted paths"
QUEUES = "a dictionary of queue names, each with a dictionary of the fields of its configuration"
POOLS = (
    "a dictionary of pools by name, each a dictionary with queues and some of weights, strategy, "
    "exclusive and starvation_prevention"
)
EVENTS = "a list of event types, or patterns such as job.* or *"
NAMES = "a list of names of members, or * for all"
HOSTS = "a list of host names; .example.com is all below it, :8443 another port than 443"
BUCKETS = "a list of buckets, or bucket/prefix"
FOLDERS = "a list of absolute paths"
NETWORKS = "a list of networks such as 10.1.0.0/16"
FILE = "an absolute path, or None"
S3 = f"a dictionary with some of {', '.join(payload_config.S3_OPTIONS)}"
OFFLOAD = (
    "None, or a dictionary with bucket, prefix (ending in /), over (bytes) and sweep_after (at "
    "least an hour)"
)
OUTBOX = (
    "a dictionary by name, each with url and some of api_key, queues, types, batch_size (1 to "
    "1000) and timeout"
)
CACHE = "an alias of CACHES"
REQUEST_RATE = (
    f'None, or at most {MAX_REQUESTS} requests in a s, min, hour or day, such as "600/min"'
)
RELEASE_LENGTH = 64
RELEASE = f"at most {RELEASE_LENGTH} printable characters, such as a version or a commit"
SERVICE = "at most 63 letters, digits, dots, hyphens and underscores"
AUTHENTICATION = (
    "django_ojs.http.authentication.ApiKeyAuthentication",
    "django_ojs.http.authentication.StaffSessionAuthentication",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The value of `OJS`, checked.

    Field names are the keys in lower case; durations are timedeltas.
    """

    default_retry: RetryPolicy = _setting(
        retry_policy.DEFAULT, _retry, "a RetryPolicy or a dictionary of its fields"
    )
    default_timeout: timedelta = _setting(timedelta(minutes=30), _duration, DURATION)
    visibility_timeout: timedelta = _setting(timedelta(minutes=30), _duration, DURATION)

    enqueue_middleware: tuple[str, ...] = _setting((), payload_config.strings, PATHS)
    execution_middleware: tuple[str, ...] = _setting((), payload_config.strings, PATHS)
    wrong_database: str = _setting("error", _wrong_database, '"error", "warn" or "outbox"')

    exact_integers: bool = _setting(False, _boolean, BOOLEAN)
    max_queue_name_bytes: int = _setting(NAME_BYTES, _name_bytes, NAME_LENGTH)
    max_job_type_bytes: int = _setting(NAME_BYTES, _name_bytes, NAME_LENGTH)
    max_meta_bytes: int = _setting(64 * 1024, _count, COUNT)
    max_envelope_bytes: int = _setting(10 * 1024 * 1024, _envelope_bytes, ENVELOPE)
    max_result_bytes: int = _setting(10 * 1024 * 1024, _count, COUNT)
    max_fetch_bytes: int = _setting(16 * 1024 * 1024, _count, COUNT)
    max_workflow_jobs: int = _setting(20_000, _count, COUNT)
    queues: QueueConfigs = _setting(QueueConfigs(), _queues, QUEUES)
    pools: tuple[scheduling.Pool, ...] = _setting((), scheduling.read, POOLS)

    http_max_body_bytes: int = _setting(16 * 1024 * 1024, _envelope_bytes, ENVELOPE)
    http_waiting_requests: int = _setting(4, _count, COUNT)
    http_event_streams: int = _setting(100, _count, COUNT)
    http_event_stream_time: timedelta = _setting(timedelta(minutes=5), _duration, DURATION)
    http_event_rate: int = _setting(100, _count, COUNT)
    http_max_names: int = _setting(1_000, _count, COUNT)
    http_rate_limit: str | None = _setting(None, _request_rate, REQUEST_RATE)
    http_rate_limit_cache: str = _setting("default", _cache, CACHE)
    http_visibility_timeout: timedelta = _setting(timedelta(minutes=2), _duration, DURATION)
    backtraces: bool = _setting(True, _boolean, BOOLEAN)
    log_error_messages: bool = _setting(True, _boolean, BOOLEAN)
    log_tracebacks: bool = _setting(True, _boolean, BOOLEAN)
    log_transitions: bool = _setting(False, _boolean, BOOLEAN)

    http_authentication: tuple[str, ...] = _setting(AUTHENTICATION, payload_config.strings, PATHS)

    heartbeat_interval: timedelta = _setting(timedelta(seconds=5), _duration, DURATION)
    stall_timeout: timedelta = _setting(timedelta(seconds=30), _duration, DURATION)
    poll_interval: timedelta = _setting(timedelta(milliseconds=500), _duration, DURATION)
    grace_period: timedelta = _setting(timedelta(seconds=25), _duration, DURATION)
    unknown_type_delay: timedelta = _setting(timedelta(seconds=30), _duration, DURATION)
    worker_conn_max_age: timedelta = _setting(timedelta(minutes=1), _duration, DURATION)

    keep_completed: timedelta = _setting(timedelta(days=7), _duration, DURATION)
    keep_cancelled: timedelta = _setting(timedelta(days=7), _duration, DURATION)
    keep_discarded: timedelta = _setting(timedelta(days=30), _duration, DURATION)
    keep_workflows: timedelta = _setting(timedelta(days=30), _duration, DURATION)
    keep_rollups: timedelta = _setting(timedelta(days=30), _duration, DURATION)
    keep_dead_letters: timedelta = _setting(timedelta(days=180), _duration, DURATION)
    keep_bulk_operations: timedelta = _setting(timedelta(days=180), _duration, DURATION)
    keep_audit_entries: timedelta = _setting(timedelta(days=365), _duration, DURATION)

    keep_events: frozenset[published.EventType] = _setting(
        published.matching(KEPT_EVENTS), _events, EVENTS
    )
    progress_stalled_after: timedelta = _setting(timedelta(minutes=5), _duration, DURATION)
    keep_events_for: timedelta = _setting(timedelta(days=30), _duration, DURATION)
    service_name: str = _setting("django_ojs", _service, SERVICE)
    release: str = _setting("", _release, RELEASE)

    webhook_http: bool = _setting(False, _boolean, BOOLEAN)
    webhook_private_networks: tuple[payload_config.Network, ...] = _setting(
        (), payload_config.networks, NETWORKS
    )

    opentelemetry: bool = _setting(False, _boolean, BOOLEAN)
    warn_oldest_available: timedelta = _setting(timedelta(minutes=15), _duration, DURATION)
    warn_failure_rate: float = _setting(0.5, _share, SHARE)

    admin_redact: tuple[str, ...] = _setting((), payload_config.strings, NAMES)

    outbox: tuple[destinations.Destination, ...] = _setting((), destinations.read, OUTBOX)
    keep_sent: timedelta = _setting(timedelta(days=1), _duration, DURATION)

    payload_https_hosts: tuple[str, ...] = _setting((), payload_config.hosts, HOSTS)
    payload_s3_buckets: tuple[str, ...] = _setting((), payload_config.buckets, BUCKETS)
    payload_gs_buckets: tuple[str, ...] = _setting((), payload_config.buckets, BUCKETS)
    payload_file_roots: tuple[str, ...] = _setting((), payload_config.roots, FOLDERS)
    payload_files: bool = _setting(False, _boolean, BOOLEAN)
    payload_private_networks: tuple[payload_config.Network, ...] = _setting(
        (), payload_config.networks, NETWORKS
    )
    payload_max_bytes: int = _setting(64 * 1024 * 1024, _count, COUNT)
    payload_max_file_bytes: int = _setting(10 * 1024**3, _count, COUNT)
    payload_timeout: timedelta = _setting(timedelta(minutes=5), _duration, DURATION)
    payload_ca_file: str | None = _setting(None, payload_config.path, FILE)
    payload_s3: tuple[tuple[str, str], ...] = _setting((), payload_config.s3, S3, secret=True)
    offload: payload_config.Offload | None = _setting(None, payload_config.offload, OFFLOAD)

    @cached_property
    def limits(self) -> Limits:
        """The limits that an envelope is checked against."""
        return Limits(
            queue_bytes=self.max_queue_name_bytes,
            type_bytes=self.max_job_type_bytes,
            exact_integers=self.exact_integers,
            meta_bytes=self.max_meta_bytes,
            envelope_bytes=self.max_envelope_bytes,
        )

    @cached_property
    def pool_of_queue(self) -> dict[str, str]:
        """The pool that keeps a queue to itself, by queue."""
        return {queue: pool.name for pool in self.pools if pool.exclusive for queue in pool.queues}

    def pool(self, name: str) -> scheduling.Pool | None:
        """Return the pool with this name."""
        return next((pool for pool in self.pools if pool.name == name), None)

    @cached_property
    def retention(self) -> dict[tuple[State, bool], timedelta]:
        """How long finished jobs are kept, by state and by whether they are dead letters."""
        return {
            (State.COMPLETED, False): self.keep_completed,
            (State.CANCELLED, False): self.keep_cancelled,
            (State.DISCARDED, False): self.keep_discarded,
            (State.DISCARDED, True): self.keep_dead_letters,
        }


def _read(given: Mapping[str, Any]) -> Settings:
    known = {f.name.upper(): f for f in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise ImproperlyConfigured(
                f"OJS[{key!r}] is not a setting of django_ojs. "
                f"{did_you_mean(str(key).upper(), sorted(known))}"
            )
        setting = known[key]
        try:
            values[setting.name] = setting.metadata["read"](value)
        except (ValueError, TypeError, KeyError, OverflowError, OJSError) as error:
            rule = f"must be {setting.metadata['kind']}."
            if isinstance(error, OJSError):
                # It names what is wrong inside of the value.
                reason = error.message
                if not reason.endswith((".", "?")):
                    reason += "."
                rule = f"is invalid: {reason}" if isinstance(value, Mapping) else f"{rule} {reason}"
            raise ImproperlyConfigured(f"OJS[{key!r}] {rule}") from error
    for name, value in values.items():
        if isinstance(value, timedelta) and value <= timedelta(0) and name not in _MAY_BE_ZERO:
            raise ImproperlyConfigured(f"OJS[{name.upper()!r}] must be longer than zero.")
    return Settings(**values)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return the checked settings.

    Raises ImproperlyConfigured naming the key and what it must be.
    """
    given = getattr(django_settings, "OJS", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured("The setting OJS must be a dictionary.")
    return _read(given)


def are_wrong_and_reported() -> bool:
    """Return whether the settings are wrong in a command of Django, whose check E001 says so.

    Until then what is imported must not need them: an error would end the command before.
    """
    if Path(sys.argv[0]).name not in ("manage.py", "django-admin", "__main__.py"):
        return False
    try:
        settings()
    except ImproperlyConfigured:
        return True
    return False


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting == "OJS":
        settings.cache_clear()
        registry.compile()


setting_changed.connect(_forget, dispatch_uid="django_ojs.conf")

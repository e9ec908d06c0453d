"""Settings: one dictionary, `OJS = {...}`, in the Django settings; every default is safe.

`settings()` returns a frozen value, read once and again after `override_settings`. `of` returns the
settings of an extension, which declares them in a dataclass. An unknown key, or a value of the
wrong kind, is an error that names the key: a misspelt setting that is silently ignored would be
found in production only.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_ojs.hooks import registry
from django_ojs.not_installed import line_for_setting
from django_ojs.setting import (
    BOOLEAN,
    COUNT,
    DURATION,
    NAMES,
    PATHS,
    SHARE,
    boolean,
    count,
    duration,
    setting,
    share,
    strings,
)
from django_ojs.spec import queue_config, retry_policy, scheduling
from django_ojs.spec.envelope import Limits, check_queue
from django_ojs.spec.errors import OJSError
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import did_you_mean

G = TypeVar("G")


def _retry(value: object) -> RetryPolicy:
    if not isinstance(value, (Mapping, RetryPolicy)):
        raise ValueError
    return retry_policy.parse_python(value, default=retry_policy.DEFAULT)


def _name_bytes(value: object) -> int:
    return count(value, maximum=NAME_BYTES)


def _envelope_bytes(value: object) -> int:
    return count(value, minimum=SMALLEST_LIMIT)


class QueueConfigs(dict[str, dict[str, Any]]):
    """Configurations by queue. It is hashable, as `Settings` must be, and is never changed."""

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
        if registry.settings:
            # Names are checked only when extensions are registered, because an extension may know a
            # name.
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
    # Django REST framework reads only the first letter of the period, too.
    found = re.fullmatch(r"([1-9][0-9]{0,4})/(s|sec|m|min|h|hour|d|day)", str(value))
    if found is None or int(found[1]) > MAX_REQUESTS:
        raise ValueError
    return found[0]


def _wrong_database(value: object) -> str:
    if value not in ("error", "warn", "outbox"):
        raise ValueError
    return str(value)


def _service(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", value):
        raise ValueError
    return value


def _release(value: object) -> str:
    if not isinstance(value, str) or len(value) > RELEASE_LENGTH or not value.isprintable():
        raise ValueError
    return value.strip()


_ANY_SIZE = 2**53
#: For each caller, the times of this many requests are kept.
MAX_REQUESTS = 10_000
#: Durations that may be zero, which means never.
_MAY_BE_ZERO = frozenset(("stall_timeout",))
#: Every implementation must accept envelopes of this size (payload-limits).
SMALLEST_LIMIT = 1024 * 1024
ENVELOPE = f"an integer of at least {SMALLEST_LIMIT} (1 MiB)"
#: The length of the columns for names of queues and types.
NAME_BYTES = 255
NAME_LENGTH = f"an integer from 1 to {NAME_BYTES}"
QUEUES = "a dictionary of queue names, each with a dictionary of the fields of its configuration"
POOLS = (
    "a dictionary of pools by name, each a dictionary with queues and some of weights, strategy, "
    "exclusive and starvation_prevention"
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

    default_retry: RetryPolicy = setting(
        retry_policy.DEFAULT, _retry, "a RetryPolicy or a dictionary of its fields"
    )
    default_timeout: timedelta = setting(timedelta(minutes=30), duration, DURATION)
    visibility_timeout: timedelta = setting(timedelta(minutes=30), duration, DURATION)

    enqueue_middleware: tuple[str, ...] = setting((), strings, PATHS)
    execution_middleware: tuple[str, ...] = setting((), strings, PATHS)

    exact_integers: bool = setting(False, boolean, BOOLEAN)
    max_queue_name_bytes: int = setting(NAME_BYTES, _name_bytes, NAME_LENGTH)
    max_job_type_bytes: int = setting(NAME_BYTES, _name_bytes, NAME_LENGTH)
    max_meta_bytes: int = setting(64 * 1024, count, COUNT)
    max_envelope_bytes: int = setting(10 * 1024 * 1024, _envelope_bytes, ENVELOPE)
    max_result_bytes: int = setting(10 * 1024 * 1024, count, COUNT)
    max_fetch_bytes: int = setting(16 * 1024 * 1024, count, COUNT)
    queues: QueueConfigs = setting(QueueConfigs(), _queues, QUEUES)
    pools: tuple[scheduling.Pool, ...] = setting((), scheduling.read, POOLS)

    http_max_body_bytes: int = setting(16 * 1024 * 1024, _envelope_bytes, ENVELOPE)
    http_waiting_requests: int = setting(4, count, COUNT)
    http_max_names: int = setting(1_000, count, COUNT)
    http_rate_limit: str | None = setting(None, _request_rate, REQUEST_RATE)
    http_rate_limit_cache: str = setting("default", _cache, CACHE)
    http_visibility_timeout: timedelta = setting(timedelta(minutes=2), duration, DURATION)
    backtraces: bool = setting(True, boolean, BOOLEAN)
    log_error_messages: bool = setting(True, boolean, BOOLEAN)
    log_tracebacks: bool = setting(True, boolean, BOOLEAN)
    log_transitions: bool = setting(False, boolean, BOOLEAN)

    http_authentication: tuple[str, ...] = setting(AUTHENTICATION, strings, PATHS)

    heartbeat_interval: timedelta = setting(timedelta(seconds=5), duration, DURATION)
    stall_timeout: timedelta = setting(timedelta(seconds=30), duration, DURATION)
    poll_interval: timedelta = setting(timedelta(milliseconds=500), duration, DURATION)
    grace_period: timedelta = setting(timedelta(seconds=25), duration, DURATION)
    unknown_type_delay: timedelta = setting(timedelta(seconds=30), duration, DURATION)
    worker_conn_max_age: timedelta = setting(timedelta(minutes=1), duration, DURATION)

    keep_completed: timedelta = setting(timedelta(days=7), duration, DURATION)
    keep_cancelled: timedelta = setting(timedelta(days=7), duration, DURATION)
    keep_discarded: timedelta = setting(timedelta(days=30), duration, DURATION)
    keep_rollups: timedelta = setting(timedelta(days=30), duration, DURATION)
    keep_dead_letters: timedelta = setting(timedelta(days=180), duration, DURATION)
    keep_bulk_operations: timedelta = setting(timedelta(days=180), duration, DURATION)

    progress_stalled_after: timedelta = setting(timedelta(minutes=5), duration, DURATION)
    wrong_database: str = setting("error", _wrong_database, '"error", "warn" or "outbox"')
    service_name: str = setting("django_ojs", _service, SERVICE)
    release: str = setting("", _release, RELEASE)

    opentelemetry: bool = setting(False, boolean, BOOLEAN)
    warn_oldest_available: timedelta = setting(timedelta(minutes=15), duration, DURATION)
    warn_failure_rate: float = setting(0.5, share, SHARE)

    admin_redact: tuple[str, ...] = setting((), strings, NAMES)

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
        """The exclusive pool of each queue that has one, by queue."""
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


def declared() -> dict[str, tuple[type, "Field[Any]"]]:
    """Return each setting by its key: the dataclass that declares it, and its field."""
    groups = (Settings, *registry.settings)
    return {each.name.upper(): (group, each) for group in groups for each in fields(group)}


def _read(given: Mapping[str, Any]) -> dict[type, Any]:
    """Return the settings of each group, checked.

    Until extensions are registered, an unknown key is accepted, because one of them may have it.
    """
    known = declared()
    values: dict[type, dict[str, Any]] = {Settings: {}, **{each: {} for each in registry.settings}}
    for key, value in given.items():
        if key in known:
            group, setting = known[key]
            values[group][setting.name] = _read_one(key, value, setting)
        elif registry.settings:
            if line := line_for_setting(str(key)):
                raise ImproperlyConfigured(f"OJS[{key!r}] needs an extension of django_ojs. {line}")
            raise ImproperlyConfigured(
                f"OJS[{key!r}] is not a setting of django_ojs. "
                f"{did_you_mean(str(key).upper(), sorted(known))}"
            )
    return {group: group(**read) for group, read in values.items()}


def _read_one(key: str, value: object, setting: "Field[Any]") -> object:
    try:
        read: object = setting.metadata["read"](value)
    except (ValueError, TypeError, KeyError, OverflowError, OJSError) as error:
        rule = f"must be {setting.metadata['kind']}."
        if isinstance(error, OJSError):
            # The error names what is wrong inside of the value.
            reason = error.message
            if not reason.endswith((".", "?")):
                reason += "."
            rule = f"is invalid: {reason}" if isinstance(value, Mapping) else f"{rule} {reason}"
        raise ImproperlyConfigured(f"OJS[{key!r}] {rule}") from error
    if isinstance(read, timedelta) and read <= timedelta(0) and setting.name not in _MAY_BE_ZERO:
        raise ImproperlyConfigured(f"OJS[{key!r}] must be longer than zero.")
    return read


#: Django's own setting, without which leases and schedules cannot be trusted.
NO_TIME_ZONES = (
    "django_ojs needs USE_TZ = True. With USE_TZ = False the times of jobs would be local times, "
    "and an hour comes twice each autumn: a lease or a schedule could be an hour wrong."
)


@lru_cache(maxsize=1)
def _checked() -> dict[type, Any]:
    if not django_settings.USE_TZ:
        raise ImproperlyConfigured(NO_TIME_ZONES)
    given = getattr(django_settings, "OJS", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured("The setting OJS must be a dictionary.")
    return _read(given)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return the checked settings of the core.

    Raises ImproperlyConfigured naming the key and what it must be.
    """
    found: Settings = _checked()[Settings]
    return found


class _Of(Protocol):
    def __call__(self, group: type[G]) -> G: ...
    def cache_clear(self) -> None: ...


def _of(group: type[G]) -> G:
    """Return the checked settings of an extension, whose `settings` is this dataclass.

    Without the extension, they are the defaults. Raises ImproperlyConfigured as `settings` does.
    """
    found: G | None = _checked().get(group)
    return group() if found is None else found


#: Cached as `settings` is. The cast keeps the type of the result, which `lru_cache` loses.
of: _Of = cast(_Of, lru_cache(maxsize=None)(_of))


def are_wrong_and_reported() -> bool:
    """Return whether the settings are wrong in a command of Django, whose checks report it.

    Modules that are imported before the checks run must not need the settings, because an error
    would end the command before it reports anything.
    """
    if Path(sys.argv[0]).name not in ("manage.py", "django-admin", "__main__.py"):
        return False
    try:
        settings()
    except ImproperlyConfigured:
        return True
    return False


def forget() -> None:
    """Let the settings be read again when they are next asked for."""
    _checked.cache_clear()
    settings.cache_clear()
    of.cache_clear()


def _changed(*, setting: str, **kwargs: object) -> None:
    if setting in ("OJS", "USE_TZ"):
        registry.compile()


registry.before_compile.append(forget)
setting_changed.connect(_changed, dispatch_uid="django_ojs.conf")

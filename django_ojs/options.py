"""What a job is asked for: its options, and the envelope that is made of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID

from django_ojs.conf import settings
from django_ojs.operations.backpressure.bounds import Patience
from django_ojs.operations.enqueue.when_full import RAISE, WhenFull
from django_ojs.spec import ids, retry, times, unique
from django_ojs.spec.envelope import MAX_TIMEOUT_MS, Envelope
from django_ojs.spec.errors import InvalidArgs, InvalidMetadata, InvalidRequest
from django_ojs.spec.json import JSON
from django_ojs.spec.retry import RetryPolicy
from django_ojs.spec.unique import UniquePolicy

When = datetime | timedelta | str
Duration = int | float | timedelta
OnFull = Literal["raise", "block", "outbox"]

#: Seconds that `on_full="block"` waits when it is not told how long.
BLOCK_TIMEOUT = 30.0
_ON_FULL = ("raise", "block", "outbox")


class OptionArguments(TypedDict, total=False):
    """The keyword arguments that say how a job is to be run. None is the same as absent."""

    queue: str | None
    priority: int | None
    scheduled_at: When | None
    expires_at: When | None
    retry: RetryPolicy | Mapping[str, Any] | None
    unique: UniquePolicy | Mapping[str, Any] | None
    timeout: Duration | None
    visibility_timeout: Duration | None
    tags: Sequence[str] | None
    meta: Mapping[str, JSON] | None
    schema: str | None
    pending: bool | None
    id: UUID | str | None
    on_full: OnFull | None
    block_timeout: Duration | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How a job is to be run; what is None is left to the handler's defaults, then to the settings.

    `scheduled_at` and `expires_at`: an aware datetime, a timedelta from now, or a string (RFC 3339,
    or "+PT5M"). `timeout` and `visibility_timeout`: seconds or a timedelta. `id`: a UUIDv7 of the
    caller's, for idempotent enqueues. `on_full` and `block_timeout` are not the job's but the
    enqueue's: see `when_full_of`.
    """

    queue: str | None = None
    priority: int | None = None
    scheduled_at: When | None = None
    expires_at: When | None = None
    retry: RetryPolicy | Mapping[str, Any] | None = None
    unique: UniquePolicy | Mapping[str, Any] | None = None
    timeout: Duration | None = None
    visibility_timeout: Duration | None = None
    tags: Sequence[str] | None = None
    meta: Mapping[str, JSON] | None = None
    schema: str | None = None
    pending: bool | None = None
    id: UUID | str | None = None
    on_full: OnFull | None = None
    block_timeout: Duration | None = None

    def over(self, defaults: "Options") -> "Options":
        """Return these options, completed by `defaults`.

        `meta` is merged key by key, and so is a retry policy that is given as a mapping.
        """
        if self is NO_OPTIONS:
            return defaults
        merged = {
            name: getattr(self, name)
            if getattr(self, name) is not None
            else getattr(defaults, name)
            for name in _OPTION_NAMES
        }
        if self.meta is not None and defaults.meta is not None:
            _check_meta(self.meta)
            merged["meta"] = {**defaults.meta, **self.meta}
        if isinstance(self.retry, Mapping) and defaults.retry is not None:
            merged["retry"] = retry.parse(self.retry, default=_retry_policy(defaults.retry))
        return Options(**merged)


_OPTION_NAMES = tuple(option.name for option in fields(Options))
NO_OPTIONS = Options()


def read_options(given: OptionArguments) -> Options:
    """Return keyword arguments as options. Raises InvalidRequest for a name that is none."""
    if not given:
        return NO_OPTIONS
    unknown = sorted(set(given).difference(_OPTION_NAMES))
    if unknown:
        raise InvalidRequest(
            f"{unknown[0]} is not an option of a job.",
            details={"field": unknown[0]},
            hint=f"The options are {', '.join(_OPTION_NAMES)}.",
        )
    return Options(**given)


#: Defaults of job types, as their handlers declare them; `handlers.job` fills it.
declared: dict[str, Options] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A job that is to be enqueued: one entry of `enqueue_batch`."""

    type: str
    args: Sequence[JSON]
    options: Options = NO_OPTIONS


def envelope_of(item: Request, new_id: UUID | None = None) -> Envelope:
    """Make the envelope of a described job; `new_id` is its id unless its options have one.

    Field rules that need no conversion are left to PUSH.
    """
    given = item.options
    if not isinstance(given, Options):
        raise InvalidRequest("options must be an Options.", details={"field": "options"})
    defaults = declared.get(item.type) if isinstance(item.type, str) else None
    options = given if defaults is None else given.over(defaults)
    if not isinstance(item.args, (list, tuple)):
        raise InvalidArgs(
            "args must be a list of the handler's positional arguments.", details={"field": "args"}
        )
    envelope = Envelope(
        id=(new_id or ids.uuid7()) if options.id is None else ids.parse_id(options.id),
        type=item.type,
        args=list(item.args),
        retry=_retry_policy(options.retry),
    )
    if options is not NO_OPTIONS:
        _apply(options, envelope)
    return envelope


def when_full_of(item: Request) -> WhenFull:
    """Return what an enqueue is to do where the queue is full (backpressure §8).

    "raise" raises QueueFull; "block" first waits for room, `block_timeout` long, where no
    transaction is open; "outbox" keeps the job in the outbox, in the caller's transaction.
    Raises InvalidRequest.
    """
    given = item.options
    defaults = declared.get(item.type, NO_OPTIONS) if isinstance(item.type, str) else NO_OPTIONS
    wanted = defaults.on_full if given.on_full is None else given.on_full
    timeout = defaults.block_timeout if given.block_timeout is None else given.block_timeout
    if wanted is None and timeout is None:
        return RAISE
    if wanted not in _ON_FULL:
        raise InvalidRequest(
            f"on_full must be one of {', '.join(_ON_FULL)}.", details={"field": "on_full"}
        )
    if timeout is not None:
        _milliseconds(timeout, "block_timeout")
    if wanted == "block":
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return WhenFull(patience=Patience(seconds=seconds or BLOCK_TIMEOUT, always=True))
    return WhenFull(keep=wanted == "outbox")


def _apply(options: Options, envelope: Envelope) -> None:
    if options.queue is not None:
        envelope.queue = options.queue
    if options.priority is not None:
        envelope.priority = options.priority
    if options.scheduled_at is not None:
        envelope.scheduled_at = times.parse_when(options.scheduled_at, "scheduled_at")
        envelope.scheduled_at_text = _as_sent(options.scheduled_at, envelope.scheduled_at)
    if options.expires_at is not None:
        envelope.expires_at = times.parse_when(options.expires_at, "expires_at")
        envelope.expires_at_text = _as_sent(options.expires_at, envelope.expires_at)
    if options.timeout is not None:
        envelope.timeout_ms = _milliseconds(options.timeout, "timeout")
    if options.visibility_timeout is not None:
        envelope.visibility_timeout_ms = _milliseconds(
            options.visibility_timeout, "visibility_timeout"
        )
    if options.tags is not None:
        if isinstance(options.tags, str) or not isinstance(options.tags, Sequence):
            raise InvalidRequest("tags must be a list of strings.", details={"field": "tags"})
        envelope.tags = list(options.tags)
    if options.meta is not None:
        _check_meta(options.meta)
        envelope.meta = dict(options.meta)
    if options.unique is not None:
        envelope.unique = unique.parse(options.unique, args=envelope.args)
    if options.schema is not None:
        envelope.schema = options.schema
    if options.pending is not None:
        envelope.pending = options.pending


def _as_sent(given: When, meant: datetime | timedelta) -> str | None:
    if isinstance(meant, timedelta):
        return None
    return given if isinstance(given, str) else times.format_timestamp(meant)


def _retry_policy(given: RetryPolicy | Mapping[str, Any] | None) -> RetryPolicy:
    if given is None:
        return settings().default_retry
    return retry.parse(given, default=settings().default_retry)


def _milliseconds(value: Duration, name: str) -> int:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InvalidRequest(
            f"{name} must be a positive number of seconds or a timedelta.", details={"field": name}
        )
    if value > MAX_TIMEOUT_MS / 1000:
        raise InvalidRequest(
            f"{name} must be at most {MAX_TIMEOUT_MS // 1000} seconds.", details={"field": name}
        )
    return max(1, round(value * 1000))


def _check_meta(meta: object) -> None:
    if not isinstance(meta, Mapping):
        raise InvalidMetadata(
            "meta must be a mapping of strings to JSON values.", details={"field": "meta"}
        )

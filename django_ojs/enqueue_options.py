"""The options of an enqueue, and the envelope and the push options made of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict
from uuid import UUID

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.handler_registry import registry
from django_ojs.not_installed import brought, line_to_add
from django_ojs.operations.enqueue.result import as_stored
from django_ojs.operations.push import PLAIN, PushOptions
from django_ojs.spec import ids, retry_policy, times, unique_policy
from django_ojs.spec.envelope import ATTRIBUTES, MAX_TIMEOUT_MS, AlikeJobs, Envelope, when_text
from django_ojs.spec.errors import (
    InvalidArgs,
    InvalidMetadata,
    InvalidRequest,
    OJSError,
    UnsupportedFeature,
)
from django_ojs.spec.full_policy import FullPolicy, WaitPolicy
from django_ojs.spec.json import JSON
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.spec.unique_policy import UniquePolicy

if TYPE_CHECKING:
    from django_ojs.extensions.limits.rate_limit_policy import RateLimitPolicy

When = datetime | timedelta | str
Duration = int | float | timedelta
OnFull = Literal["raise", "block", "outbox"]

#: Seconds that `on_full="block"` waits without a `block_timeout`.
BLOCK_TIMEOUT = 30.0
_ON_FULL = ("raise", "block", "outbox")


class OptionArguments(TypedDict, total=False):
    """The keyword arguments of an enqueue. None is the same as absent."""

    queue: str | None
    priority: int | None
    scheduled_at: When | None
    expires_at: When | None
    enqueue_ttl: int | timedelta | None
    total_timeout: int | timedelta | None
    retry: RetryPolicy | Mapping[str, Any] | int | None
    unique: UniquePolicy | Mapping[str, Any] | None
    rate_limit: "RateLimitPolicy | Mapping[str, Any] | None"
    timeout: Duration | None
    visibility_timeout: Duration | None
    tags: Sequence[str] | None
    meta: Mapping[str, JSON] | None
    schema: str | None
    extra: Mapping[str, JSON] | None
    pending: bool | None
    id: UUID | str | None
    on_full: OnFull | None
    block_timeout: Duration | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of an enqueue; for None, the handler's defaults apply, then the settings.

    `scheduled_at` and `expires_at`: an aware datetime, a timedelta from now, or a string (RFC 3339,
    or "+PT5M"). `timeout` and `visibility_timeout`: seconds or a timedelta. `enqueue_ttl` and
    `total_timeout`: the same, in whole seconds. `extra`: attributes that are no
    options, such as those of extensions (ojs-core §5.5). `id`: a UUIDv7 of the caller's, for
    idempotent enqueues. `on_full` and `block_timeout` are options of the enqueue, not
    of the job: see `full_policy`.
    """

    queue: str | None = None
    priority: int | None = None
    scheduled_at: When | None = None
    expires_at: When | None = None
    enqueue_ttl: int | timedelta | None = None
    total_timeout: int | timedelta | None = None
    retry: RetryPolicy | Mapping[str, Any] | int | None = None
    unique: UniquePolicy | Mapping[str, Any] | None = None
    rate_limit: "RateLimitPolicy | Mapping[str, Any] | None" = None
    timeout: Duration | None = None
    visibility_timeout: Duration | None = None
    tags: Sequence[str] | None = None
    meta: Mapping[str, JSON] | None = None
    schema: str | None = None
    extra: Mapping[str, JSON] | None = None
    pending: bool | None = None
    id: UUID | str | None = None
    on_full: OnFull | None = None
    block_timeout: Duration | None = None

    def over(self, defaults: "Options") -> "Options":
        """Return these options, completed by `defaults`.

        `meta` is merged key by key, and so is a retry policy given as a mapping or `max_attempts`.
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
        is_partial = isinstance(self.retry, Mapping | int)
        if is_partial and defaults.retry is not None:
            merged["retry"] = retry_policy.parse_python(
                self.retry,
                default=retry_policy.parse_python(defaults.retry, default=settings().default_retry),
            )
        return Options(**merged)


_OPTION_NAMES = tuple(option.name for option in fields(Options))
_option_values = attrgetter(*_OPTION_NAMES)
NO_OPTIONS = Options()

#: Names that are no options, because the type is the first argument.
_TYPE = ("name", "type")


def read_options(given: OptionArguments) -> Options:
    """Return keyword arguments as options. Raises InvalidRequest for an unknown name."""
    if not given:
        return NO_OPTIONS
    unknown = sorted(set(given).difference(_OPTION_NAMES))
    if unknown:
        raise _unknown(unknown[0])
    return Options(**given)


def _unknown(name: str) -> InvalidRequest:
    from django_ojs.spec import other_queues  # which only an error needs

    hint: str | None
    if name in _TYPE:
        hint = 'The type is the first argument: @ojs.job("email.send").'
    else:
        hint = other_queues.called_here(name, "option")
    return InvalidRequest(
        f"{name} is not an option of a job. {did_you_mean(name, _OPTION_NAMES)}",
        details={"field": name},
        hint=hint,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A description of a job: one item of `enqueue_batch`."""

    type: str
    args: Sequence[JSON]
    options: Options = NO_OPTIONS


def envelope_of(
    item: Request, new_id: UUID | None = None, *, has_arguments: bool = True
) -> Envelope:
    """Make the envelope of a described job; `new_id` is its id unless its options have one.

    Without `has_arguments` it has no rate limit, whose key is made of the arguments.
    PUSH checks the fields that need no conversion.
    """
    given = item.options
    if not isinstance(given, Options):
        raise InvalidRequest.of("options", "must be an Options.")
    handler = registry.handlers.get(item.type) if isinstance(item.type, str) else None
    options = given if handler is None else given.over(handler.defaults)
    if not isinstance(item.args, (list, tuple)):
        raise InvalidArgs.of("args", "must be a list of the handler's positional arguments.")
    envelope = Envelope(
        id=(new_id or ids.uuid7()) if options.id is None else ids.parse_id(options.id),
        type=item.type,
        args=list(item.args),
        # Without a policy, PUSH applies the default of the queue or of the settings.
        retry=None if options.retry is None else _retry_policy(options.retry),
    )
    if options is not NO_OPTIONS:
        _apply(options, envelope)
        if options.rate_limit is not None and has_arguments:
            arguments = {} if handler is None else handler.arguments_by_name(envelope.args)
            envelope.rate_limit = rate_limit_of(options.rate_limit).for_job(
                type=envelope.type, queue=envelope.queue, arguments=arguments
            )
    if envelope.unique is not None and handler is not None:
        envelope.unique = handler.unique_arguments.at(envelope.unique)
        envelope.args = handler.unique_arguments.complete(envelope.args, envelope.unique)
    return envelope


def alike_of(items: Sequence[Request]) -> AlikeJobs | None:
    """Return the described jobs if they differ in their arguments only, else None.

    Return None also if the arguments decide more than `args` (a unique key, the key of a limit), or
    if something is wrong with them.
    """
    if set(map(type, items)) != {Request}:
        return None
    kind, options = items[0].type, items[0].options
    if not isinstance(kind, str) or type(options) is not Options or options.id is not None:
        return None
    args = [
        list(item.args)
        for item in items
        if item.type == kind
        and (item.options is options or _are_identical(item.options, options))
        and isinstance(item.args, (list, tuple))
    ]
    if len(args) != len(items):
        return None
    try:
        return AlikeJobs.of(envelope_of(replace(items[0], args=())), args)
    except OJSError:
        return None


def _are_identical(one: Options, other: Options) -> bool:
    # They are not compared by `==`: 1, 1.0 and True are equal, but different JSON.
    return type(one) is Options and all(map(is_, _option_values(one), _option_values(other)))


#: What an enqueue does where a queue is full; `full_policy` returns one of these, or a policy that
#: waits.
_RAISE: Final = PushOptions()
_OUTBOX: Final = PushOptions(notes=(FullPolicy(outbox=True),))


def push_options_of(item: Request) -> PushOptions:
    """Return the push options of a described job. Raises InvalidRequest."""
    policy = full_policy(item.type, item.options)
    generated = item.options.id is None
    if policy is _RAISE and generated and not hooks.registry.notes:
        return PLAIN
    notes = (*policy.notes, *hooks.notes())
    return replace(policy, generated_ids=generated, notes=notes)


def push_options_of_batch(
    items: Sequence[Request], on_full: OnFull | None, block_timeout: Duration | None
) -> PushOptions:
    """Return the push options of a batch of jobs; without `on_full`, the jobs must agree.

    Raises InvalidRequest.
    """
    if on_full is not None or block_timeout is not None:
        policy = full_policy("", Options(on_full=on_full, block_timeout=block_timeout))
    else:
        policies = [full_policy(item.type, item.options) for item in items]
        policy = policies[0]
        if any(other is not policy and other != policy for other in policies):
            raise InvalidRequest.of(
                "on_full", "must be the same for all jobs of a batch; enqueue_batch takes it too."
            )
    return replace(
        policy,
        batch=True,
        generated_ids=all(item.options.id is None for item in items),
        notes=(*policy.notes, *hooks.notes()),
    )


def full_policy(type: str, given: Options = NO_OPTIONS) -> PushOptions:
    """Return what an enqueue does where the queue is full (backpressure §8), as push options.

    "raise" raises QueueFull; "block" first waits for room, `block_timeout` long, where no
    transaction is open; "outbox" stores the job in the outbox, in the caller's transaction. An
    option that is absent has the default of the type's handler. Raises InvalidRequest.
    """
    handler = registry.handlers.get(type) if isinstance(type, str) else None
    defaults = NO_OPTIONS if handler is None else handler.defaults
    wanted = defaults.on_full if given.on_full is None else given.on_full
    timeout = defaults.block_timeout if given.block_timeout is None else given.block_timeout
    if wanted is None and timeout is None:
        return _RAISE
    if wanted is None or (given.block_timeout is not None and wanted in ("raise", "outbox")):
        raise InvalidRequest.of("block_timeout", 'needs on_full="block".')
    if wanted not in _ON_FULL:
        raise InvalidRequest.of("on_full", f"must be one of {', '.join(_ON_FULL)}.")
    if wanted == "outbox" and not hooks.registry.has("outbox"):
        raise UnsupportedFeature(
            f"The value outbox of on_full needs an extension. {line_to_add('outbox')}",
            details={"feature": "outbox"},
        )
    if timeout is not None:
        _milliseconds(timeout, "block_timeout")
    if wanted == "block":
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        wait = WaitPolicy(seconds=seconds or BLOCK_TIMEOUT, always=True)
        return PushOptions(notes=(FullPolicy(wait=wait),), checks_bound=True)
    return _OUTBOX if wanted == "outbox" else _RAISE


def _apply(options: Options, envelope: Envelope) -> None:
    if options.queue is not None:
        envelope.queue = options.queue
    if options.priority is not None:
        envelope.priority = options.priority
    if options.scheduled_at is not None:
        envelope.scheduled_at = _when(options.scheduled_at, "scheduled_at")
        envelope.scheduled_at_text = when_text(options.scheduled_at, envelope.scheduled_at)
    if options.expires_at is not None:
        envelope.expires_at = _when(options.expires_at, "expires_at")
        envelope.expires_at_text = when_text(options.expires_at, envelope.expires_at)
    if options.enqueue_ttl is not None:
        envelope.enqueue_ttl = _seconds(options.enqueue_ttl, "enqueue_ttl")
    if options.total_timeout is not None:
        envelope.total_timeout = _seconds(options.total_timeout, "total_timeout")
    if options.timeout is not None:
        envelope.timeout_ms = _milliseconds(options.timeout, "timeout")
    if options.visibility_timeout is not None:
        envelope.visibility_timeout_ms = _milliseconds(
            options.visibility_timeout, "visibility_timeout"
        )
    if options.tags is not None:
        if isinstance(options.tags, str) or not isinstance(options.tags, Sequence):
            raise InvalidRequest.of("tags", "must be a list of strings.")
        envelope.tags = list(options.tags)
    if options.meta is not None:
        _check_meta(options.meta)
        envelope.meta = _copy(options.meta)
    if options.unique is not None:
        envelope.unique = unique_policy.parse_python(options.unique, args=envelope.args)
    if options.schema is not None:
        envelope.schema = options.schema
    if options.extra is not None:
        envelope.extra = _extra(options.extra)
    if options.pending is not None:
        envelope.pending = options.pending


def rate_limit_of(given: object) -> "RateLimitPolicy":
    """Return the policy that Python code describes. Raises InvalidRequest.

    The extension that brings the public name `RateLimitPolicy` has its class.
    """
    found: type[RateLimitPolicy] = brought("RateLimitPolicy")
    return found.of(given)


def _when(value: When, name: str) -> datetime | timedelta:
    if name == "scheduled_at" and isinstance(value, timedelta):
        # A negative timedelta means now, as an absolute time in the past does.
        value = max(value, timedelta(0))
    if isinstance(value, datetime | timedelta | str):
        return times.parse_when(value, name)
    raise InvalidRequest.of(
        name,
        "must be a datetime with a time zone, a timedelta from now, or a string such as +PT5M",
        hint=f"For seconds from now, use {name}=timedelta(seconds=...).",
    )


def _retry_policy(given: RetryPolicy | Mapping[str, Any] | int) -> RetryPolicy:
    return retry_policy.parse_python(given, default=settings().default_retry)


def _milliseconds(value: Duration, name: str) -> int:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InvalidRequest.of(name, "must be a positive number of seconds or a timedelta.")
    if value > MAX_TIMEOUT_MS / 1000:
        raise InvalidRequest.of(name, f"must be at most {MAX_TIMEOUT_MS // 1000} seconds.")
    return max(1, round(value * 1000))


def _seconds(value: int | timedelta, name: str) -> int:
    if not isinstance(value, timedelta):
        return value
    if value % timedelta(seconds=1):
        raise InvalidRequest.of(name, "must be a whole number of seconds.")
    return value // timedelta(seconds=1)


def _copy(meta: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a deep copy of the metadata, because the caller may change its mapping later."""
    try:
        return dict(as_stored(dict(meta)))
    except RecursionError:
        return dict(meta)  # The validation rejects it, and names where it is too deep.


def _extra(given: object) -> dict[str, JSON]:
    if not isinstance(given, Mapping):
        raise InvalidRequest.of("extra", "must be a mapping of attributes to JSON values.")
    if known := sorted(ATTRIBUTES.intersection(given)):
        raise InvalidRequest.of(f"extra.{known[0]}", "is an attribute that OJS defines.")
    return _copy(given)


def _check_meta(meta: object) -> None:
    if not isinstance(meta, Mapping):
        raise InvalidMetadata.of("meta", "must be a mapping of strings to JSON values.")

"""The attributes of an envelope, one row for each: `parse`, `validate`, `options_of`, `render` and
`wire` read this table, and docs/reference/job-fields.md is compared with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django_ojs.spec import retry_policy
from django_ojs.spec.envelope import optional_checks
from django_ojs.spec.envelope.model import MAX_TIMEOUT_MS, SPECVERSION, Envelope, Limits
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.ids import parse_id
from django_ojs.spec.times import parse_duration, parse_when
from django_ojs.spec.unique_policy import parse as parse_unique

#: Policies that were read lately, by their `repr` and the default: most jobs have one of a few.
_policies: Final[dict[tuple[str, retry_policy.RetryPolicy], retry_policy.RetryPolicy]] = {}
_MOST_KNOWN: Final = 256
_LONGEST_KNOWN: Final = 512


def _as_given(value: Any, spelling: str, envelope: Envelope) -> Any:
    return value


def _timeout(value: Any, spelling: str, envelope: Envelope) -> int | None:
    """Return milliseconds, or None for 0, which asks for the default of the server."""
    kind, unit = ("milliseconds", 1) if spelling.endswith("_ms") else ("seconds", 1000)
    if isinstance(value, str):
        value, unit = parse_duration(value, spelling) // timedelta(milliseconds=1), 1
    if not optional_checks.is_integer(value) or value < 0:
        rule = f"must be a positive integer of {kind}, or 0 for the default"
        raise InvalidRequest.of(spelling, rule)
    if value * unit > MAX_TIMEOUT_MS:
        raise InvalidRequest.of(spelling, f"must be at most {MAX_TIMEOUT_MS // unit}")
    return value * unit or None


def _when(value: Any, spelling: str, envelope: Envelope) -> Any:
    if spelling == "delay_until" and isinstance(value, str) and value.startswith("P"):
        # A relative time needs its plus sign; some clients send a duration under this name.
        value = f"+{value}"
    return parse_when(value, spelling)


def _retry(value: Any, spelling: str, envelope: Envelope) -> Any:
    # `parse` has set the policy that completes a partial one.
    default = envelope.retry or retry_policy.DEFAULT
    # The values are not compared, because 1 and True are equal.
    text = repr(value)
    if type(value) is not dict or len(text) > _LONGEST_KNOWN:
        return retry_policy.parse(value, default=default)
    known = _policies.get((text, default))
    if known is None:
        known = retry_policy.parse(value, default=default)
        if len(_policies) >= _MOST_KNOWN:
            _policies.clear()
        _policies[text, default] = known
    return known


def _unique(value: Any, spelling: str, envelope: Envelope) -> Any:
    return parse_unique(value, args=envelope.args)


def _id(value: Any, spelling: str, envelope: Envelope) -> UUID:
    return parse_id(value, spelling)


def _object(value: Any, spelling: str, envelope: Envelope) -> Any:
    if not isinstance(value, dict):
        raise InvalidRequest.of(spelling, "must be an object")
    return value


def plain(value: Any) -> Any:
    """Return the value, which is JSON already."""
    return value


def _policy(policy: Any) -> Any:
    return None if policy == retry_policy.DEFAULT else policy.render()


def _items(values: Any) -> Any:
    return list(values) or None


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """An attribute of Envelope that a client sets.

    `other` is a second spelling; if both are sent, `name` wins. If `option` is true, a client may
    send it in `options` or at the top level, and `options` wins; otherwise at the top level only.
    `columns` are its columns in `ojs_job`. The column `options` has the value of the attribute
    `stored` under `name`: for a timestamp, this is the text that the client sent, which responses
    repeat. `read` makes the value from JSON, `check` checks it before it is stored, and `render`
    makes JSON from it, or None to leave it out.
    """

    name: str
    other: str | None = None
    default: Any = None
    option: bool = True
    columns: tuple[str, ...] = ()
    stored: str | None = None
    read: Callable[[Any, str, Envelope], Any] | None = None
    check: Callable[[object, str, Limits], int] | None = None
    render: Callable[[Any], Any] = plain

    @property
    def spellings(self) -> tuple[str, ...]:
        """The names under which a client may send it, the preferred one first."""
        return (self.name,) if self.other is None else (self.name, self.other)

    @property
    def text(self) -> str | None:
        """The attribute that holds the client's own text, if the field is a timestamp."""
        return self.stored if self.stored != self.name and self.read is _when else None


#: Clients send these (core §5.1, §5.2). Two spellings are known where the documents differ.
FIELDS: Final = (
    Field(name="specversion", default=SPECVERSION, option=False, stored="specversion"),
    Field(name="id", option=False, columns=("id",)),
    Field(name="type", option=False, columns=("type",)),
    Field(name="args", option=False, columns=("args",)),
    # `parse` merges what is sent under either name, in `options` and at the top level.
    Field(name="meta", other="metadata", default={}, columns=("meta",)),
    Field(name="queue", default="default", columns=("queue",), read=_as_given),
    Field(name="priority", default=0, columns=("priority",), read=_as_given),
    Field(
        name="timeout_ms",
        other="timeout",
        columns=("timeout_ms",),
        read=_timeout,
        check=optional_checks.timeout,
    ),
    Field(
        name="visibility_timeout_ms",
        other="visibility_timeout",
        columns=("visibility_timeout_ms",),
        stored="visibility_timeout_ms",
        read=_timeout,
        check=optional_checks.timeout,
    ),
    Field(
        name="scheduled_at",
        other="delay_until",
        columns=("due_at",),
        stored="scheduled_at_text",
        read=_when,
        check=optional_checks.when,
    ),
    Field(
        name="expires_at",
        columns=("expires_at",),
        stored="expires_at_text",
        read=_when,
        check=optional_checks.when,
    ),
    # ojs-timeouts §5.3 and §5.2.
    Field(
        name="enqueue_ttl",
        columns=("expires_at",),
        stored="enqueue_ttl",
        read=_as_given,
        check=optional_checks.period,
    ),
    Field(
        name="total_timeout",
        columns=("expires_at",),
        stored="total_timeout",
        read=_as_given,
        check=optional_checks.period,
    ),
    # The policy is stored complete, and only when it is not the default one: a default that
    # changes later does not change jobs that were stored with their own.
    Field(
        name="retry",
        other="retry_policy",
        columns=("max_attempts",),
        stored="retry",
        read=_retry,
        check=optional_checks.retry,
        render=_policy,
    ),
    Field(
        name="unique",
        columns=("unique_key",),
        stored="unique",
        read=_unique,
        check=optional_checks.unique,
        render=lambda policy: policy.render(),
    ),
    Field(name="schema", stored="schema", read=_as_given, check=optional_checks.schema),
    Field(
        name="tags",
        default=[],
        stored="tags",
        read=_as_given,
        check=optional_checks.strings,
        render=_items,
    ),
    Field(
        name="rate_limit",
        stored="rate_limit",
        read=_object,
        check=optional_checks.rate_limit,
    ),
    Field(name="pending", default=False, columns=("state",), read=_as_given),
    # Children of a job are found by the column. Responses read both ids from the column `options`,
    # so that a claim need not return another column.
    Field(
        name="parent_id",
        columns=("parent_id",),
        stored="parent_id",
        read=_id,
        check=optional_checks.identifier,
        render=str,
    ),
    Field(name="root_id", stored="root_id", read=_id, check=optional_checks.identifier, render=str),
)

#: Stored for a job, but not sent by clients under these names: the objects that hold large
#: arguments, the workflow of a step, the results of its parents, and attributes without a field.
INTERNAL: Final = (
    Field(name="offloaded", default=(), option=False, stored="offloaded", render=_items),
    Field(name="workflow_id", option=False, stored="workflow_id", render=str),
    Field(name="parent_results", option=False, stored="parent_results"),
    Field(
        name="extra",
        default={},
        option=False,
        stored="extra",
        check=optional_checks.extra,
        render=lambda extra: extra or None,
    ),
)

#: The spellings that are read from `options` and from the top level.
OPTIONS: Final = frozenset(
    spelling for field in FIELDS if field.option for spelling in field.spellings
)

#: The server sets these. Each has its column of `ojs_job`, or None if it has no column. What a
#: client sends for them is ignored (core §5.3).
SYSTEM: Final[dict[str, str | None]] = {
    "state": "state",
    "attempt": "attempt",
    "run": "run",
    "max_attempts": "max_attempts",
    "created_at": "created_at",
    "enqueued_at": "enqueued_at",
    "activated_at": "activated_at",
    "started_at": "started_at",
    "completed_at": "finished_at",
    "cancelled_at": "finished_at",
    "discarded_at": "finished_at",
    "result": "result",
    "error": "error",
    "errors": None,
    "next_attempt_at": "due_at",
    "retry_delay_ms": None,
    "progress": "progress",
    "last_checkpoint": None,
    "checkpoint": None,
    "parent_results": "options",
    "workflow_id": "options",
    "original_queue": "original_queue",
    # The response to a change of state has it.
    "previous_state": None,
    # In a line of an export, it has what extensions keep of the job.
    "ojs_extensions": None,
}

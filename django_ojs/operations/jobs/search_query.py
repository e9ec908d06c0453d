"""The search parser, for `state:retryable queue:email args.user_id:42` (ojs-admin-api §7.1).

A search is a list of words, each a qualifier, a colon and a value; double quotes keep spaces
together. A search with a word that cannot be parsed has no filter: without that word it would find
other jobs, and the buttons beside them would change those.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from django_ojs.hooks import registry
from django_ojs.not_installed import line_to_add
from django_ojs.operations.jobs.job_filter import JobFilter, is_type_prefix
from django_ojs.spec import json
from django_ojs.spec.envelope import MAX_PRIORITY, MIN_PRIORITY
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import nearest
from django_ojs.storage.dialects.json_contains import JSONMatch, Scalar

#: The qualifiers of the core, with examples.
_OF_THE_CORE: Final[dict[str, str]] = {
    "state": "state:retryable, state:available,scheduled or -state:completed (in another state)",
    "queue": "queue:email, queue:email,sms or -queue:email (in another queue)",
    "type": "type:email.send, type:email.* or -type:email.send (of another type)",
    "tag": "tag:vip",
    "id": "id:0192…",
    "parent": "parent:0192… (enqueued by this job)",
    "workflow": "workflow:0192… (a step of this workflow)",
    "error": 'error:Timeout or error:"card was declined"',
    "error_type": "error_type:Timeout (the exact type)",
    "message": 'message:"Order … failed" (all of it; … is any text)',
    "args": "args.user_id:42, args.0:42 or args:42",
    "meta": "meta.tenant_id:acme",
    "created": (
        "created:<2h (in the last two hours), created:>2h, "
        "created:2026-01-31 (that day), created:>2026-01-31"
    ),
    "ended": "ended:<1d",
    "priority": "priority:10",
    "worker": "worker:web-1",
    "host": "host:web-1.example.com (of its worker, while that is registered)",
    "attempt": "attempt:2, attempt:>1 or attempt:<=3",
    "ran": "ran:>10s or ran:<500ms (its last run; an active job so far)",
    "waited": "waited:>1m (before its last run; an available job so far)",
    "is": "is:dead",
}


def qualifiers() -> dict[str, str]:
    """Return the qualifiers by which this site can search, with examples."""
    found = _OF_THE_CORE | {name: each.example for name, each in registry.qualifiers.items()}
    if not registry.has("workflows"):
        del found["workflow"]
    return found


#: The most characters of a search, and the most ids of one word.
MAX_LENGTH: Final = 2_000
MAX_IDS: Final = 100
MAX_DURATION: Final = timedelta(days=10_000)

#: What other systems call the states.
_STATE_SYNONYMS: Final = {
    "failed": State.DISCARDED,
    "failure": State.DISCARDED,
    "error": State.DISCARDED,
    "dead": State.DISCARDED,
    "running": State.ACTIVE,
    "started": State.ACTIVE,
    "processing": State.ACTIVE,
    "executing": State.ACTIVE,
    "waiting": State.AVAILABLE,
    "ready": State.AVAILABLE,
    "queued": State.AVAILABLE,
    "enqueued": State.AVAILABLE,
    "delayed": State.SCHEDULED,
    "retrying": State.RETRYABLE,
    "retry": State.RETRYABLE,
    "done": State.COMPLETED,
    "finished": State.COMPLETED,
    "succeeded": State.COMPLETED,
    "success": State.COMPLETED,
    "revoked": State.CANCELLED,
    "aborted": State.CANCELLED,
}

#: Adds a value to the arguments of a JobFilter.
_Parser = Callable[[dict[str, Any], str, datetime], None]

_WORD: Final = re.compile(r'((?:[^\s:"]+:)?)("(?:[^"\\]|\\.)*"?|[^\s]+)')
_AGE: Final = re.compile(r"([<>])(\d{1,6})(s|m|h|d|w)").fullmatch
#: A day or a moment, after a sign such as `<=`.
_DATE: Final = re.compile(
    r"(<=?|>=?|=|)(\d{4}-\d\d-\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?(Z|[+-]\d\d:?\d\d)?)?"
).fullmatch
_DURATION: Final = re.compile(r"([<>])(\d{1,14}(?:\.\d{1,3})?)(ms|s|m|h|d)").fullmatch
_DURATION_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_COMPARED_NUMBER: Final = re.compile(r"(<=?|>=?|=|)(\d{1,6})").fullmatch
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,18})?").fullmatch
_BARE: Final = re.compile(r'[^\s":]+').fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """The filter of a text, or None and `errors` that say what cannot be parsed."""

    filter: JobFilter | None
    errors: list[str] = field(default_factory=list)


class _Invalid(Exception):
    """A word that cannot be parsed. The text of the error says what the word must be."""


def parse(text: str, *, now: datetime | None = None) -> Search:
    """Parse a search; every text has a result."""
    now = now or timezone.now()
    if len(text) > MAX_LENGTH:
        return Search(
            filter=None,
            errors=[f"A search has at most {MAX_LENGTH} characters."],
        )
    values: dict[str, Any] = {}
    errors: list[str] = []
    for name, value, quoted in split(text):
        try:
            _merge(values, _parsed(name, value, quoted, now))
        except _Invalid as reason:
            errors.append(str(reason))
    if "queue" in values and "queues" in values:
        errors.append("queue is given twice, with two values.")
    errors += _rejected(values)
    return Search(filter=None if errors else JobFilter(**values), errors=errors)


def alternatives(text: str) -> list[str]:
    """Return searches that a text with one word without a qualifier may have meant."""
    value, rest = value_and_rest(text)
    return [" ".join([*rest, f"{name}:{value}"]) for name in ("args", "tag", "error") if value]


def value_and_rest(text: str, also: str = "") -> tuple[str, list[str]]:
    """Return the only word without a qualifier, as it can be typed, and the other words.

    It may have the qualifier `also`. The value is "" if there are several such words, or none.
    """
    words = list(split(text))
    bare = [value for name, value, _quoted in words if name in ("", also)]
    rest = [
        f"{name}:{as_value(value, always=quoted)}"
        for name, value, quoted in words
        if name not in ("", also)
    ]
    return (as_value(bare[0].removesuffix("*")) if len(bare) == 1 else "", rest)


def split(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the words of a search: the qualifier, the value, and whether the value was quoted."""
    for qualifier, raw in _WORD.findall(text):
        yield (qualifier.rstrip(":"), *_unquoted(raw))


def parse_states(text: str) -> tuple[State, ...]:
    """Return the states of `available,scheduled`. Raises ValueError, which says what was meant."""
    names = [name for name in text.lower().split(",") if name]
    for name in names:
        if name not in set(State):
            meant = _STATE_SYNONYMS.get(name) or nearest(name, tuple(State))
            hint = f"Did you mean {meant}? " if meant else ""
            raise ValueError(
                f"There is no state {name[:40]}. {hint}The states are {', '.join(State)}."
            )
    if not names:
        raise ValueError(f"state must be one of {', '.join(State)}.")
    return tuple(dict.fromkeys(State(name) for name in names))


def _unquoted(raw: str) -> tuple[str, bool]:
    if not raw.startswith('"'):
        return raw, False
    inner = raw[1:-1] if raw.endswith('"') and len(raw) > 1 else raw[1:]
    return re.sub(r"\\(.)", r"\1", inner), True


def _parsed(name: str, value: str, quoted: bool, now: datetime) -> dict[str, Any]:
    """Return the fields of a filter that one word sets."""
    if not (name + value).isprintable():
        raise _Invalid("Use printable characters only.")
    if name.startswith("-"):
        return _excluded(name[1:], value)
    base, _dot, path = name.partition(".")
    if not name:
        base, value = _bare(value)
    if base in ("args", "meta"):
        return {"held": (_held(base, path, value, quoted),)}
    parser = _PARSERS.get(base) if not path else None
    if parser is None and name in registry.qualifiers:
        return {"by_extensions": ((name, value),)}
    if parser is None:
        raise _Invalid(_unknown_qualifier(name, value))
    values: dict[str, Any] = {}
    parser(values, value, now)
    return values


def _excluded(name: str, value: str) -> dict[str, Any]:
    """Return the filter fields for a word with a minus, which says what a job must not be."""
    names = tuple(each for each in value.split(",") if each)
    if name == "state":
        excluded = _states(value)
        if len(excluded) == len(State):
            raise _Invalid("-state excludes every state.")
        left = tuple(state for state in State if state not in excluded)
        return {"states": left, "states_excluded": True}
    if name not in ("queue", "type"):
        raise _Invalid(
            f"Only queue, state and type can be excluded, as in -queue:email: -{name[:40]} is not "
            "one of them."
        )
    if not names:
        raise _Invalid(f"-{name} needs a name, as in -{name}:email.")
    return {f"not_{name}s": names}


def _merge(values: dict[str, Any], added: dict[str, Any]) -> None:
    for name, value in added.items():
        if name in _SEVERAL:
            values[name] = (*values.get(name, ()), *value)
        elif values.setdefault(name, value) != value:
            raise _Invalid(f"{_QUALIFIER_OF.get(name, name)} is given twice, with two values.")


def _unknown_qualifier(name: str, value: str) -> str:
    shown = name if len(name) <= 40 else "this"
    known = qualifiers()
    near = nearest(name, known)
    meant = f"{near}:{value}"
    if near is None:
        first = f"meta.{name}:{value}"
        second = f"args.{name}:{value}"
        meant = f"{first} or {second}"
    text = f"There is no qualifier {shown}. The qualifiers are {', '.join(known)}."
    if len(meant) <= 200:
        text = (
            f"There is no qualifier {shown}. Did you mean {meant}? The qualifiers are "
            f"{', '.join(known)}."
        )
    return text


def _bare(value: str) -> tuple[str, str]:
    """Return the qualifier of a word without one: an id, or the beginning of a type."""
    try:
        UUID(value)
    except ValueError:
        prefix = value if value.endswith("*") else f"{value}*"
    else:
        return "id", value
    if not is_type_prefix(prefix):
        quoted = as_value(value)
        raise _Invalid(
            f"{quoted} is neither an id nor the beginning of a type. To search in errors: "
            f"error:{quoted}; in arguments or metadata, name the member: args.NAME:{quoted} or "
            f"meta.NAME:{quoted}."
            if len(value) <= 200
            else "A word without a qualifier must be an id or the beginning of a type."
        )
    return "type", prefix


def _states(value: str) -> tuple[State, ...]:
    try:
        return parse_states(value)
    except ValueError as error:
        raise _Invalid(str(error)) from None


def _state(values: dict[str, Any], value: str, now: datetime) -> None:
    values["states"] = _states(value)


def _queue(values: dict[str, Any], value: str, now: datetime) -> None:
    names = tuple(dict.fromkeys(name for name in value.split(",") if name))
    if len(names) > 1:
        values["queues"] = names
    else:
        values["queue"] = names[0] if names else value


def _attempt(values: dict[str, Any], value: str, now: datetime) -> None:
    found = _COMPARED_NUMBER(value)
    if not found:
        raise _Invalid("attempt must be a number such as attempt:2, attempt:>1 or attempt:<=3.")
    sign, number = found[1], int(found[2])
    if not sign.startswith("<"):
        values["attempts_from"] = number + (sign == ">")
    if not sign.startswith(">"):
        values["attempts_to"] = number - (sign == "<")


def _elapsed(name: str) -> _Parser:
    def add(values: dict[str, Any], value: str, now: datetime) -> None:
        found = _DURATION(value)
        if not found:
            raise _Invalid(
                f"{name} must be a duration such as {name}:>10s or {name}:<500ms (ms, s, m, h, d)."
            )
        milliseconds = round(float(found[2]) * _DURATION_UNITS[found[3]])
        if milliseconds > MAX_DURATION // timedelta(milliseconds=1):
            raise _Invalid(f"{name} takes at most {MAX_DURATION.days} days.")
        end = "over" if found[1] == ">" else "under"
        values[f"{name}_{end}"] = timedelta(milliseconds=milliseconds)

    return add


def _id(values: dict[str, Any], value: str, now: datetime) -> None:
    try:
        keys = tuple(UUID(key) for key in value.split(",") if key)
    except ValueError:
        raise _Invalid("id must be the complete id of a job.") from None
    if not 1 <= len(keys) <= MAX_IDS:
        raise _Invalid(f"id takes 1 to {MAX_IDS} ids, separated by commas.")
    values["ids"] = keys


def _parent(values: dict[str, Any], value: str, now: datetime) -> None:
    try:
        values["parent_id"] = UUID(value)
    except ValueError:
        raise _Invalid("parent must be the complete id of a job.") from None


def _workflow(values: dict[str, Any], value: str, now: datetime) -> None:
    if not registry.has("workflows"):
        raise _Invalid(f"workflow needs an extension. {line_to_add('workflows')}")
    try:
        values["workflow_id"] = UUID(value)
    except ValueError:
        raise _Invalid("workflow must be the complete id of a workflow.") from None


def _priority(values: dict[str, Any], value: str, now: datetime) -> None:
    is_short = re.fullmatch(r"-?\d{1,3}", value)
    if not is_short or not MIN_PRIORITY <= int(value) <= MAX_PRIORITY:
        raise _Invalid(f"priority must be an integer from {MIN_PRIORITY} to {MAX_PRIORITY}.")
    values["priority"] = int(value)


def _tag(values: dict[str, Any], value: str, now: datetime) -> None:
    values["tags"] = (value,)


def _is(values: dict[str, Any], value: str, now: datetime) -> None:
    if value not in ("dead", "alive"):
        raise _Invalid("is must be dead or alive, as in is:dead for dead letters.")
    values["dead_letter"] = value == "dead"


def _text(field: str) -> _Parser:
    return lambda values, value, now: values.update({field: value})


def _time(name: str, since: str, until: str) -> _Parser:
    def add(values: dict[str, Any], value: str, now: datetime) -> None:
        try:
            if found := _AGE(value):
                # An age: `>2h` means before the moment two hours ago.
                moment = now - timedelta(**{_UNITS[found[3]]: int(found[2])})
                values[until if found[1] == ">" else since] = moment
            elif found := _DATE(value):
                first, after = _period(found)
                if not found[1].startswith("<"):
                    values[since] = first
                if not found[1].startswith(">"):
                    values[until] = first if found[1] == "<" else after
            else:
                raise _Invalid(
                    f"{name} must be an age such as {name}:<2h or {name}:>7d (s, m, h, d, w), a "
                    f"day such as {name}:2026-01-31, or since or before one: {name}:>2026-01-31, "
                    f"{name}:<2026-01-31."
                )
        except (ValueError, OverflowError):
            raise _Invalid(f"{name}: there is no such time as {value}.") from None

    return add


def _period(found: re.Match[str]) -> tuple[datetime, datetime]:
    """Return when a day, an hour, a minute or a second begins and ends.

    The text is read in the time zone of the pages, unless it has an offset.
    """
    _, day, hour, minute, second, offset = found.groups()
    text = f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}"
    begin = datetime.fromisoformat(text + (offset or ""))
    if hour is None:
        length = timedelta(days=1)
    elif minute is None:
        length = timedelta(hours=1)
    else:
        length = timedelta(minutes=1) if second is None else timedelta(seconds=1)
    # The date has no zone, so that a day ends at midnight even if a clock change makes it 23 or 25
    # hours.
    first, after = begin, begin + length
    if first.tzinfo is None:
        zone = timezone.get_current_timezone()
        first, after = first.replace(tzinfo=zone), after.replace(tzinfo=zone)
    return first.astimezone(UTC), after.astimezone(UTC)


#: The fields of a JobFilter that a qualifier sets: a text, or the beginning and end of a period.
_TEXTS: Final = {
    "queue": "queue",
    "type": "type",
    "host": "host",
    "error_type": "error_type",
    "error": "error",
    "message": "message",
    "worker": "worker_id",
}
_PERIODS: Final = {"created": ("since", "until"), "ended": ("ended_since", "ended_until")}

#: A filter may have several values of these fields.
_SEVERAL: Final = frozenset({"ids", "tags", "held", "by_extensions", "not_queues", "not_types"})
#: The qualifier behind each field that excludes values.
_EXCLUDED: Final = {"not_queues": "queue", "not_types": "type"}
_ELAPSED: Final = ("ran", "waited")
_QUALIFIER_OF: Final = {
    "states": "state",
    "dead_letter": "is",
    "queues": "queue",
    "parent_id": "parent",
    "workflow_id": "workflow",
    "attempts_from": "attempt",
    "attempts_to": "attempt",
    **{f"{name}_{end}": name for name in _ELAPSED for end in ("over", "under")},
    **{field: name for name, field in _TEXTS.items()},
    **{field: name for name, fields in _PERIODS.items() for field in fields},
}

_PARSERS: Final[dict[str, _Parser]] = {
    "state": _state,
    "id": _id,
    "parent": _parent,
    "workflow": _workflow,
    "priority": _priority,
    "tag": _tag,
    "is": _is,
    **{name: _text(field) for name, field in _TEXTS.items()},
    "queue": _queue,
    "attempt": _attempt,
    **{name: _elapsed(name) for name in _ELAPSED},
    **{name: _time(name, *fields) for name, fields in _PERIODS.items()},
}


def _held(column: Any, path: str, value: str, quoted: bool) -> JSONMatch:
    keys = tuple(path.split(".")) if path else ()
    if '"' in path or "\\" in path or not all(keys) or len(keys) > 10:
        raise _Invalid(f"{column} needs a path and a value, as in {_OF_THE_CORE[column]}.")
    if column == "meta" and not keys:
        raise _Invalid("meta needs a path, as in meta.tenant_id:acme.")
    return JSONMatch(column=column, path=keys, values=_scalars(value, quoted))


def _scalars(value: str, quoted: bool) -> tuple[Scalar, ...]:
    # 42 may be stored as a number or as text; with quotes it is text.
    if quoted:
        return (value,)
    if value in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[value], value
    if _NUMBER(value):
        number = float(value) if "." in value else int(value)
        return number, value
    return (value,)


def _rejected(values: dict[str, Any]) -> list[str]:
    """Return the errors that JobFilter raises for these values, one field at a time."""
    errors = []
    for name, value in values.items():
        try:
            JobFilter(**{name: value})
        except OJSError as error:
            errors.append(error.message)
    return errors


def render(which: JobFilter) -> str:
    """Return a text that parses as this filter."""
    words = [f"id:{key}" for key in which.ids]
    if which.dead_letter is not None:
        words.append("is:dead" if which.dead_letter else "is:alive")
    if which.states and which.states_excluded:
        excluded = [state for state in State if state not in which.states]
        words.append(f"-state:{','.join(excluded)}")
    elif which.states:
        words.append(f"state:{','.join(which.states)}")
    for name, value in (
        *((name, getattr(which, attribute)) for name, attribute in _TEXTS.items()),
        ("priority", which.priority),
        ("parent", which.parent_id),
        ("workflow", which.workflow_id),
        *(("tag", tag) for tag in which.tags),
        *which.by_extensions,
    ):
        if value is not None:
            words.append(f"{name}:{as_value(str(value))}")
    if which.queues:
        words.append(f"queue:{','.join(which.queues)}")
    words += [
        f"-{name}:{','.join(getattr(which, field))}"
        for field, name in _EXCLUDED.items()
        if getattr(which, field)
    ]
    words += _rendered_attempts(which)
    for name in _ELAPSED:
        for sign, end in ((">", "over"), ("<", "under")):
            length = getattr(which, f"{name}_{end}")
            if length is not None:
                words.append(f"{name}:{sign}{_rendered_duration(length)}")
    for held in which.held:
        # If there are two values, the second is the text that was typed, and it parses as both.
        text = held.values[-1] if len(held.values) > 1 else _rendered(held.values[0])
        words.append(f"{'.'.join((held.column, *held.path))}:{text}")
    for name, fields in _PERIODS.items():
        for sign, attribute in zip("><", fields, strict=True):
            moment = getattr(which, attribute)
            if moment is not None:
                words.append(f"{name}:{sign}{moment.astimezone(UTC).isoformat()}")
    return " ".join(words)


def _rendered_attempts(which: JobFilter) -> list[str]:
    first, last = which.attempts_from, which.attempts_to
    if first is not None and first == last:
        return [f"attempt:{first}"]
    words = []
    if first is not None:
        words.append(f"attempt:>{first - 1}" if first > 0 else "attempt:>=0")
    if last is not None:
        words.append(f"attempt:<={last}" if last >= 0 else "attempt:<0")
    return words


def _rendered_duration(length: timedelta) -> str:
    milliseconds = length // timedelta(milliseconds=1)
    unit = next(unit for unit, size in _DURATION_UNITS.items() if milliseconds % size == 0)
    return f"{milliseconds // _DURATION_UNITS[unit]}{unit}"


def _rendered(value: Scalar) -> str:
    if isinstance(value, str):
        # A text that parses as another value keeps its quotes.
        plain = _BARE(value) and len(_scalars(value, False)) == 1
        return value if plain else as_value(value, always=True)
    return json.dumps(value)


def as_value(value: str, *, always: bool = False) -> str:
    """Return a value in the syntax of a search, in quotes if needed."""
    if not always and _BARE(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

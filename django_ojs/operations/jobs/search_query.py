"""The search parser, for `state:retryable queue:email args.user_id:42` (ojs-admin-api §7.1).

A search is a list of words, each a qualifier, a colon and a value; double quotes keep spaces
together. A word that cannot be parsed is left out and reported as an error with the valid choices.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec import json
from django_ojs.spec.envelope import MAX_PRIORITY, MIN_PRIORITY
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State
from django_ojs.storage.dialects.json_contains import JSONMatch, Scalar

#: The qualifiers, with examples.
QUALIFIERS: Final[dict[str, str]] = {
    "state": "state:retryable or state:available,scheduled",
    "queue": "queue:email",
    "type": "type:email.send or type:email.*",
    "tag": "tag:vip",
    "id": "id:0192…",
    "error": 'error:Timeout or error:"card was declined"',
    "error_type": "error_type:Timeout (the exact type)",
    "args": "args.user_id:42, args.0:42 or args:42",
    "meta": "meta.tenant_id:acme",
    "created": "created:<2h (in the last two hours), created:>2h, created:>2026-01-31",
    "ended": "ended:<1d",
    "priority": "priority:10",
    "worker": "worker:web-1",
    "is": "is:dead",
}

#: Characters of a search.
MAX_LENGTH: Final = 2_000

#: Adds a value to the arguments of a Filter.
_Parser = Callable[[dict[str, Any], str, datetime], None]

_WORD: Final = re.compile(r'((?:[^\s:"]+:)?)("(?:[^"\\]|\\.)*"?|[^\s]+)')
_AGE: Final = re.compile(r"([<>])(\d{1,6})(s|m|h|d|w)").fullmatch
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,18})?").fullmatch
_BARE: Final = re.compile(r'[^\s":]+').fullmatch


@dataclass(kw_only=True, slots=True)
class Search:
    """The filter of all words that could be parsed, and error messages for the others."""

    filter: JobFilter
    errors: list[str] = field(default_factory=list)


class _Invalid(Exception):
    """A word that cannot be parsed; the text says what it must be."""


def parse(text: str, *, now: datetime | None = None) -> Search:
    """Parse a search; every text has a result."""
    values: dict[str, Any] = {}
    errors: list[str] = []
    now = now or timezone.now()
    if len(text) > MAX_LENGTH:
        errors.append(f"A search has at most {MAX_LENGTH} characters.")
        text = ""
    for qualifier, raw in _WORD.findall(text):
        value, quoted = _unquoted(raw)
        try:
            _add(values, qualifier.rstrip(":"), value, quoted, now)
        except _Invalid as reason:
            errors.append(str(reason))
    try:
        return Search(filter=JobFilter(**values), errors=errors)
    except OJSError:
        return Search(filter=_valid_only(values, errors), errors=errors)


def _unquoted(raw: str) -> tuple[str, bool]:
    if not raw.startswith('"'):
        return raw, False
    inner = raw[1:-1] if raw.endswith('"') and len(raw) > 1 else raw[1:]
    return re.sub(r"\\(.)", r"\1", inner), True


def _add(values: dict[str, Any], name: str, value: str, quoted: bool, now: datetime) -> None:
    base, _, path = name.partition(".")
    if not name:
        base, value = _bare(value)
    if not (name + value).isprintable():
        raise _Invalid("Use printable characters only.")
    if base in ("args", "meta"):
        held = _held(base, path, value, quoted)
        values["held"] = (*values.get("held", ()), held)
        return
    parser = _PARSERS.get(base) if not path else None
    if parser is None:
        shown = name if name.isprintable() and len(name) <= 40 else "this"
        raise _Invalid(f"There is no qualifier {shown}. Use one of {', '.join(QUALIFIERS)}.")
    parser(values, value, now)


def _bare(value: str) -> tuple[str, str]:
    """Return the qualifier of a word without one: an id, or the beginning of a type."""
    try:
        UUID(value)
    except ValueError:
        return "type", value if value.endswith("*") else f"{value}*"
    return "id", value


def _state(values: dict[str, Any], value: str, now: datetime) -> None:
    names = [name for name in value.lower().split(",") if name]
    if not names or not {*names} <= {*State}:
        raise _Invalid(f"state must be one of {', '.join(State)}.")
    values["states"] = tuple(dict.fromkeys(State(name) for name in names))


def _id(values: dict[str, Any], value: str, now: datetime) -> None:
    try:
        keys = [UUID(key) for key in value.split(",") if key][:100]
    except ValueError:
        raise _Invalid("id must be the complete id of a job.") from None
    values["ids"] = (*values.get("ids", ()), *keys)


def _priority(values: dict[str, Any], value: str, now: datetime) -> None:
    is_short = re.fullmatch(r"-?\d{1,3}", value)
    if not is_short or not MIN_PRIORITY <= int(value) <= MAX_PRIORITY:
        raise _Invalid(f"priority must be an integer from {MIN_PRIORITY} to {MAX_PRIORITY}.")
    values["priority"] = int(value)


def _tag(values: dict[str, Any], value: str, now: datetime) -> None:
    values["tags"] = (*values.get("tags", ()), value)


def _is(values: dict[str, Any], value: str, now: datetime) -> None:
    if value not in ("dead", "alive"):
        raise _Invalid("is must be dead or alive, as in is:dead for dead letters.")
    values["dead_letter"] = value == "dead"


def _text(field: str) -> _Parser:
    return lambda values, value, now: values.update({field: value})


def _time(name: str, since: str, until: str) -> _Parser:
    def add(values: dict[str, Any], value: str, now: datetime) -> None:
        if found := _AGE(value):
            try:
                moment = now - timedelta(**{_UNITS[found[3]]: int(found[2])})
            except OverflowError:
                raise _Invalid(f"{name} must be a more recent time.") from None
            # An age: more than two hours old is before that moment.
            values[until if found[1] == ">" else since] = moment
            return
        try:
            moment = datetime.fromisoformat(value.lstrip("<>="))
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise _Invalid(
                f"{name} must be an age such as {name}:<2h or {name}:>7d (s, m, h, d, w), "
                f"or a date such as {name}:>2026-01-31."
            ) from None
        values[until if value.startswith("<") else since] = moment

    return add


#: The fields of a Filter that a qualifier sets: a text, or the beginning and end of a period.
_TEXTS: Final = {
    "queue": "queue",
    "type": "type",
    "error_type": "error_type",
    "error": "error",
    "worker": "worker_id",
}
_PERIODS: Final = {"created": ("since", "until"), "ended": ("ended_since", "ended_until")}

_PARSERS: Final[dict[str, _Parser]] = {
    "state": _state,
    "id": _id,
    "priority": _priority,
    "tag": _tag,
    "is": _is,
    **{name: _text(field) for name, field in _TEXTS.items()},
    **{name: _time(name, *fields) for name, fields in _PERIODS.items()},
}


def _held(column: Any, path: str, value: str, quoted: bool) -> JSONMatch:
    keys = tuple(path.split(".")) if path else ()
    if '"' in path or "\\" in path or not all(keys) or len(keys) > 10:
        raise _Invalid(f"{column} needs a path and a value, as in {QUALIFIERS[column]}.")
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


def _valid_only(values: dict[str, Any], errors: list[str]) -> JobFilter:
    """Return the filter of the valid values; the messages of the others go to `errors`."""
    good: dict[str, Any] = {}
    for name, value in values.items():
        try:
            JobFilter(**{name: value})
        except OJSError as error:
            errors.append(error.message)
        else:
            good[name] = value
    return JobFilter(**good)


def render(which: JobFilter) -> str:
    """Return a text that parses as this filter."""
    words = [f"id:{key}" for key in which.ids]
    if which.dead_letter is not None:
        words.append("is:dead" if which.dead_letter else "is:alive")
    if which.states:
        words.append(f"state:{','.join(which.states)}")
    for name, value in (
        *((name, getattr(which, attribute)) for name, attribute in _TEXTS.items()),
        ("priority", which.priority),
        *(("tag", tag) for tag in which.tags),
    ):
        if value is not None:
            words.append(f"{name}:{_quoted(str(value))}")
    for held in which.held:
        # Two values are a number and its text.
        text = held.values[-1] if len(held.values) > 1 else _rendered(held.values[0])
        words.append(f"{'.'.join((held.column, *held.path))}:{text}")
    for name, fields in _PERIODS.items():
        for sign, attribute in zip("><", fields, strict=True):
            moment = getattr(which, attribute)
            if moment is not None:
                words.append(f"{name}:{sign}{moment.astimezone(UTC).isoformat()}")
    return " ".join(words)


def _rendered(value: Scalar) -> str:
    if isinstance(value, str):
        # A text that parses as another value keeps its quotes.
        plain = _BARE(value) and len(_scalars(value, False)) == 1
        return value if plain else _quoted(value, always=True)
    return json.dumps(value)


def _quoted(value: str, *, always: bool = False) -> str:
    if not always and _BARE(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

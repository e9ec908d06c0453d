"""What strict JSON can carry, the same on every database and language (json-format §3.3, §13).

`measure` is the fast walk that says yes, and how large the text can get at most; `explain` is the
slow one that runs after a no and names the place. Both stop at MAX_DEPTH, so that no input reaches
the interpreter's recursion limit.
"""

import re
from collections.abc import Iterable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

#: Beyond it a reader whose numbers are doubles would round (json-format §4.2).
MAX_INTEGER: Final = 2**53 - 1
MAX_EXACT_INTEGER: Final = 2**63 - 1

#: Arrays and objects inside one another; the outermost one is the first.
MAX_DEPTH: Final = 64

#: Characters of a member name. Nothing but abuse has longer ones.
MAX_NAME: Final = 65_536

# Upper bounds of what a value takes as text, a comma included. A control character is six bytes.
_STRING: Final = 6
_QUOTES: Final = 3
_NUMBER: Final = 26
_WORD: Final = 6
_BRACKETS: Final = 3

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,64}")


class Refused(Exception):
    """Raised by `measure`, without a reason: `explain` finds it."""


class LargeInteger:
    """Stands for an integer literal with too many digits to be worth reading."""


LARGE_INTEGER: Final = LargeInteger()


def measure(value: object, *, exact_integers: bool = False, depth: int = MAX_DEPTH) -> int:
    """Return an upper bound of the UTF-8 bytes of `value` as compact JSON. Raises Refused."""
    largest = MAX_EXACT_INTEGER if exact_integers else MAX_INTEGER
    try:
        return _bound((value,), depth, largest)
    except UnicodeEncodeError:
        raise Refused from None


def _bound(values: Iterable[object], room: int, largest: int) -> int:
    total = 0
    for value in values:
        kind = type(value)
        if kind is str:
            total += _text(value)  # type: ignore[arg-type]  # narrowed by identity, which mypy does not follow
        elif kind is int:
            if not -largest <= value <= largest:  # type: ignore[operator]  # as above
                raise Refused
            total += _NUMBER
        elif value is None or kind is bool:
            total += _WORD
        elif isinstance(value, list | tuple):
            if room <= 0:
                raise Refused
            total += _BRACKETS + _bound(value, room - 1, largest)
        elif isinstance(value, dict):
            if room <= 0:
                raise Refused
            total += _BRACKETS + _bound(value.values(), room - 1, largest)
            for name in value:
                if not isinstance(name, str) or len(name) > MAX_NAME:
                    raise Refused
                total += _text(name)
        elif isinstance(value, float):
            if value - value != 0.0:  # NaN and both infinities
                raise Refused
            total += _NUMBER
        elif isinstance(value, str):  # StrEnum, SafeString
            total += _text(value)
        elif isinstance(value, int):  # IntEnum
            if not -largest <= value <= largest:
                raise Refused
            total += _NUMBER
        else:
            raise Refused
    return total


def _text(text: str) -> int:
    if "\0" in text:
        raise Refused
    if text.isascii():
        return _STRING * len(text) + _QUOTES
    text.encode()  # UnicodeEncodeError for a lone surrogate
    return _STRING * len(text) + _QUOTES


def explain(
    value: object, place: str, *, exact_integers: bool = False, depth: int = MAX_DEPTH
) -> str | None:
    """Return "place rule" for the first thing in `value` that JSON cannot carry, else None."""
    largest = MAX_EXACT_INTEGER if exact_integers else MAX_INTEGER
    return _explain(value, place, depth, largest, depth, ())


def _explain(
    value: object, place: str, room: int, largest: int, depth: int, above: tuple[int, ...]
) -> str | None:
    rule: str | None = None
    if isinstance(value, str):
        rule = _text_rule(value)
    elif value is None or isinstance(value, bool):
        pass
    elif isinstance(value, int):
        if not -largest <= value <= largest:
            rule = _large(largest)
    elif isinstance(value, float):
        if value - value != 0.0:
            rule = "is NaN, infinite or too large for a number"
    elif isinstance(value, list | tuple | dict):
        if id(value) in above:
            rule = "contains itself"
        elif room <= 0:
            return f"{_outermost(place)} is nested more than {depth} levels deep"
        elif isinstance(value, dict):
            return _explain_object(value, place, room, largest, depth, (*above, id(value)))
        else:
            for index, item in enumerate(value):
                found = _explain(
                    item, f"{place}[{index}]", room - 1, largest, depth, (*above, id(value))
                )
                if found:
                    return found
    elif isinstance(value, LargeInteger):
        rule = _large(largest)
    else:
        rule = _foreign(value)
    return f"{place or 'the document'} {rule}" if rule else None


def _explain_object(
    value: dict[Any, Any],
    place: str,
    room: int,
    largest: int,
    depth: int,
    above: tuple[int, ...],
) -> str | None:
    for name, item in value.items():
        if not isinstance(name, str):
            kind = name.__class__.__name__
            return f"{place or 'the document'} has a name that is a {kind}: names are strings"
        rule = _text_rule(name)
        if rule is None and len(name) > MAX_NAME:
            rule = f"is longer than {MAX_NAME} characters"
        if rule:
            return f"{place or 'the document'} has a name that {rule}"
        # A name is the caller's text: only what looks like an identifier is repeated.
        shown = name if _PLAIN_NAME.fullmatch(name) else "*"
        found = _explain(
            item, f"{place}.{shown}" if place else shown, room - 1, largest, depth, above
        )
        if found:
            return found
    return None


def _outermost(place: str) -> str:
    """Return the outermost name of a place: a path of sixty steps helps nobody."""
    return re.split(r"[.\[]", place, maxsplit=1)[0] or "the document"


def _text_rule(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return None


def _large(largest: int) -> str:
    bits = largest.bit_length()
    return f"is an integer beyond ±(2**{bits}-1): send it as a string"


def _foreign(value: object) -> str:
    """Say what to send in place of something that is not JSON."""
    kind = value.__class__.__name__
    if isinstance(value, Enum):
        return f"is a {kind}: send its value"
    if isinstance(value, Decimal | UUID):
        return f"is a {kind}: send a string"
    if isinstance(value, date | time):  # datetime is a date
        return f"is a {kind}: send an ISO 8601 string"
    if isinstance(value, timedelta):
        return f"is a {kind}: send an ISO 8601 duration such as PT30S"
    if isinstance(value, set | frozenset):
        return f"is a {kind}: send a list"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"is a {kind}: send base64url text"
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return f"is a {kind}: send its primary key"
    return f"is a {kind}: send a string, a number, a boolean, None, a list or a dict"

"""The values that strict JSON allows in every database and language (json-format §3.3, §13).

`measure` is the fast check; it returns an upper bound of the size of the text. `explain` is slow,
runs after `measure` refused, and names the path and the rule: `check` is both. They stop at
MAX_DEPTH, so that no input reaches the interpreter's recursion limit.
"""

import re
from collections.abc import Iterable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from django_ojs.spec.errors import InvalidArgs, OJSError

#: Beyond it a reader whose numbers are doubles rounds (json-format §4.2).
MAX_INTEGER: Final = 2**53 - 1
MAX_EXACT_INTEGER: Final = 2**63 - 1

#: The limit of nested arrays and objects; the outermost one counts as the first level.
MAX_DEPTH: Final = 64

#: The limit of a member name, in characters. Only abuse has longer ones.
MAX_NAME: Final = 65_536

# Upper bounds of the size of a value as text, a comma included. A control character is six bytes.
_STRING: Final = 6
_QUOTES: Final = 3
_NUMBER: Final = 26
_WORD: Final = 6
_BRACKETS: Final = 3

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,64}")


class Refused(Exception):
    """Raised by `measure`, without a reason; `explain` returns the reason."""


class LargeInteger:
    """Stands for an integer literal with too many digits to read."""


LARGE_INTEGER: Final = LargeInteger()


def check(
    value: object,
    place: str,
    *,
    exact_integers: bool = False,
    error: type[OJSError] = InvalidArgs,
) -> int:
    """Return an upper bound of the bytes of a value as compact JSON.

    Raises `error` where JSON cannot represent it: "args[1] is a Decimal: send a string". Tuples are
    accepted as arrays, subclasses of str and int (StrEnum, IntEnum) as their values.
    """
    try:
        return measure(value, exact_integers=exact_integers)
    except Refused:
        found = explain(value, place, exact_integers=exact_integers)
        message = found or f"{place} cannot be stored as JSON"
        raise error(message, details={"field": place} if place else None) from None


def measure(value: object, *, exact_integers: bool = False, depth: int = MAX_DEPTH) -> int:
    """Return an upper bound of the UTF-8 bytes of `value` as compact JSON. Raises Refused."""
    largest = MAX_EXACT_INTEGER if exact_integers else MAX_INTEGER
    try:
        return _bound((value,), depth, largest)
    except UnicodeEncodeError:
        raise Refused from None


def _bound(values: Iterable[object], levels: int, largest: int) -> int:
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
            if levels <= 0:
                raise Refused
            total += _BRACKETS + _bound(value, levels - 1, largest)
        elif isinstance(value, dict):
            if levels <= 0:
                raise Refused
            total += _BRACKETS + _bound(value.values(), levels - 1, largest)
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
    value: object, path: str, *, exact_integers: bool = False, depth: int = MAX_DEPTH
) -> str | None:
    """Return "path rule" for the first part of `value` that JSON cannot represent, else None."""
    largest = MAX_EXACT_INTEGER if exact_integers else MAX_INTEGER
    return _explain(value, path, depth, largest, depth, ())


def _explain(
    value: object, path: str, levels: int, largest: int, depth: int, above: tuple[int, ...]
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
        elif levels <= 0:
            return f"{_outermost(path)} is nested more than {depth} levels deep"
        elif isinstance(value, dict):
            return _explain_object(value, path, levels, largest, depth, (*above, id(value)))
        else:
            for index, item in enumerate(value):
                found = _explain(
                    item, f"{path}[{index}]", levels - 1, largest, depth, (*above, id(value))
                )
                if found:
                    return found
    elif isinstance(value, LargeInteger):
        rule = _large(largest)
    else:
        rule = _foreign(value)
    return f"{path or 'the document'} {rule}" if rule else None


def _explain_object(
    value: dict[Any, Any],
    path: str,
    levels: int,
    largest: int,
    depth: int,
    above: tuple[int, ...],
) -> str | None:
    for name, item in value.items():
        if not isinstance(name, str):
            kind = name.__class__.__name__
            return f"{path or 'the document'} has a name that is a {kind}: names are strings"
        rule = _text_rule(name)
        if rule is None and len(name) > MAX_NAME:
            rule = f"is longer than {MAX_NAME} characters"
        if rule:
            return f"{path or 'the document'} has a name that {rule}"
        # A name is the client's text: only one that looks like an identifier is repeated.
        shown = name if _PLAIN_NAME.fullmatch(name) else "*"
        found = _explain(
            item, f"{path}.{shown}" if path else shown, levels - 1, largest, depth, above
        )
        if found:
            return found
    return None


def _outermost(path: str) -> str:
    """Return the outermost name of a path: one of sixty steps is of no use."""
    return re.split(r"[.\[]", path, maxsplit=1)[0] or "the document"


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
    """Return what to send instead of a value that is not JSON."""
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

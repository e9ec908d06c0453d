"""Strict JSON: which values it allows, in every database and language, and reading and writing it.

See json-format §2.3, §3.3 and §13, and RFC 8259. No other module uses the json of the standard
library.

`measure` is the fast check; it returns an upper bound of the size of the text. `explain` is slow,
runs after `measure` rejected, and names the path and the rule. `check` calls both. They stop at
MAX_DEPTH, so that no input reaches the interpreter's recursion limit.
"""

import json
import logging
import re
from collections.abc import Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID

from django_ojs.spec.errors import InvalidArgs, InvalidPayload, OJSError

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

#: A reader whose numbers are doubles rounds larger integers (json-format §4.2).
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

_DOCUMENT: Final = "the document"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,64}")

#: The limit for a whole request: `args` of MAX_DEPTH levels are three levels deeper in
#: `{"jobs": [{"args": …}]}`.
BODY_DEPTH: Final = MAX_DEPTH + 3

logger = logging.getLogger("django_ojs.json")

_encode: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode

# An integer beyond 2**53 - 1 has at least sixteen digits; a text without them needs no check of its
# integers. All digits are translated to "0" before the search: 15 ms for 10 MiB, where a regular
# expression takes 70 to 190 ms.
_ALIKE: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_INTEGER: Final = b"0" * 16
# How a number may be infinite, besides being a long integer: by an exponent, or by its name.
_NOT_FINITE: Final = re.compile(r"\d[eE]|N|I").search
_BRACKETS_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
# For a shorter text, `measure` is as fast.
_SHORT: Final = 512
#: What was read from a text is, as compact JSON, at most this many times as long as the text: no
#: string gets longer, and no number is longer than this.
MOST_GROWTH: Final = 26
# No 64-bit integer has more characters. Parsing thousands of digits takes quadratic time.
_LONGEST: Final = 20


class Rejected(Exception):
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
    except Rejected:
        found = explain(value, place, exact_integers=exact_integers)
        message = found or f"{place} cannot be stored as JSON"
        raise error(message, details={"field": place} if place else None) from None


def measure(value: object, *, exact_integers: bool = False, depth: int = MAX_DEPTH) -> int:
    """Return an upper bound of the UTF-8 bytes of `value` as compact JSON. Raises Rejected."""
    largest = MAX_EXACT_INTEGER if exact_integers else MAX_INTEGER
    try:
        return _bound((value,), depth, largest)
    except UnicodeEncodeError:
        raise Rejected from None


def _bound(values: Iterable[object], levels: int, largest: int) -> int:
    total = 0
    for value in values:
        kind = type(value)
        if kind is str:
            total += _text(value)  # type: ignore[arg-type]  # narrowed by identity, which mypy does not follow
        elif kind is int:
            if not -largest <= value <= largest:  # type: ignore[operator]  # as above
                raise Rejected
            total += _NUMBER
        elif value is None or kind is bool:
            total += _WORD
        # `isinstance` cannot be used: Django's lazy objects have the class of what they stand for,
        # and the encoder cannot write them.
        elif issubclass(kind, (list, tuple)):
            if levels <= 0:
                raise Rejected
            total += _BRACKETS + _bound(value, levels - 1, largest)  # type: ignore[arg-type]  # as above
        elif issubclass(kind, dict):
            if levels <= 0:
                raise Rejected
            total += _BRACKETS + _bound(value.values(), levels - 1, largest)  # type: ignore[attr-defined]  # as above
            for name in value:  # type: ignore[attr-defined]  # as above
                if not issubclass(type(name), str) or len(name) > MAX_NAME:
                    raise Rejected
                total += _text(name)
        elif issubclass(kind, float):
            if value - value != 0.0:  # type: ignore[operator]  # NaN and both infinities
                raise Rejected
            total += _NUMBER
        elif issubclass(kind, str):  # StrEnum, SafeString
            total += _text(value)  # type: ignore[arg-type]  # as above
        elif issubclass(kind, int):  # IntEnum
            if not -largest <= value <= largest:  # type: ignore[operator]  # as above
                raise Rejected
            total += _NUMBER
        else:
            raise Rejected
    return total


def _text(text: str) -> int:
    if "\0" in text:
        raise Rejected
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
    if value.__class__ is not type(value):  # as in `_bound`
        rule = _foreign(value)
    elif isinstance(value, str):
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
    return f"{path or _DOCUMENT} {rule}" if rule else None


def _explain_object(
    value: dict[Any, Any],
    path: str,
    levels: int,
    largest: int,
    depth: int,
    above: tuple[int, ...],
) -> str | None:
    for name, item in value.items():
        if not issubclass(type(name), str):
            kind = "lazy text" if _is_lazy_text(name) else type(name).__name__
            return f"{path or _DOCUMENT} has a name that is a {kind}: names are strings"
        rule = _text_rule(name)
        if rule is None and len(name) > MAX_NAME:
            rule = f"is longer than {MAX_NAME} characters"
        if rule:
            return f"{path or _DOCUMENT} has a name that {rule}"
        # A name is the client's text: only one that looks like an identifier is repeated.
        shown = name if _PLAIN_NAME.fullmatch(name) else "*"
        found = _explain(
            item, f"{path}.{shown}" if path else shown, levels - 1, largest, depth, above
        )
        if found:
            return found
    return None


def _outermost(path: str) -> str:
    """Return the outermost name of a path, because a path of sixty steps is of no use."""
    return re.split(r"[.\[]", path, maxsplit=1)[0] or _DOCUMENT


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


def _is_lazy_text(value: object) -> bool:
    """Whether a value is a text that Django makes when it is shown, such as a translation."""
    return type(value).__name__ == "__proxy__"  # The class has no public name.


def _foreign(value: object) -> str:
    """Return what to send instead of a value that is not JSON."""
    if _is_lazy_text(value):
        return "is a lazy text: send str() of it"
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
    kind = type(value).__name__  # "is a str: send a string" would be no help.
    return f"is a {kind}: send a string, a number, a boolean, None, a list or a dict"


def dumps(value: Any) -> str:
    """Return the compact JSON of a value that `check` has accepted, not escaped to ASCII.

    Raises InvalidPayload for foreign types, NaN, NUL, lone surrogates and cycles as well; only
    `check` judges the size of integers and the type of names.
    """
    try:
        text = _encode(value)
        if text.isascii():
            if "\\u0000" not in text:
                return text
        else:
            text.encode()  # UnicodeEncodeError for a lone surrogate
            if "\\u0000" not in text:
                return text
    except (TypeError, ValueError, RecursionError):
        raise InvalidPayload(explain(value, "") or "the value cannot be written as JSON") from None
    # An escaped backslash before "u0000" looks the same in the text.
    found = explain(value, "", exact_integers=True)
    if found is not None and "NUL" in found:
        raise InvalidPayload(found)
    return text


def dumps_lists(lists: Sequence[list[Any]], *, exact_integers: bool) -> tuple[str, list[int]]:
    """Return lists as the compact JSON of one array, and the bytes of each, after `check` of each.

    Raises InvalidPayload, which does not name the value, if `check` or `dumps` rejects one.
    """
    # One call of the encoder writes all. If its text shows that the values are harmless, they need
    # no other check.
    try:
        text = _encode(lists)
    except (TypeError, ValueError, RecursionError):
        raise InvalidPayload("a value cannot be written as JSON") from None
    is_flat = text.count("[") == len(lists) + 1 and "{" not in text
    if not (is_flat and text.isascii() and "\\u0000" not in text and not has_long_integer(text)):
        try:
            measure(lists, exact_integers=exact_integers, depth=MAX_DEPTH + 1)
        except Rejected:
            raise InvalidPayload("a value cannot be stored as JSON") from None
    # If no list contains the text that separates two lists, there is one part for each list.
    parts = text[2:-2].split("],[")
    if len(parts) != len(lists):
        parts = [dumps(value)[1:-1] for value in lists]
    if text.isascii():
        return text, [len(part) + 2 for part in parts]
    return text, [len(part.encode()) + 2 for part in parts]


def pretty(value: Any) -> str:
    """Return a stored value as indented text, without rounding its integers."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def loads(
    data: str | bytes,
    *,
    path: str = "",
    exact_integers: bool = False,
    max_depth: int = MAX_DEPTH,
) -> JSON:
    """Read strict JSON: UTF-8, no BOM, finite numbers, safe integers, clean text, limited depth.

    Raises InvalidPayload naming the path and the rule. A repeated name takes its last value, with a
    warning.
    """
    text = _decode(data) if isinstance(data, bytes) else data
    if text.startswith("\ufeff"):
        raise InvalidPayload("the document must not begin with a byte order mark")
    repeated = 0

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        result = dict(items)
        repeated += len(items) - len(result)
        return result

    try:
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=_short_integer if has_long_integer(text) else None,
        )
    except json.JSONDecodeError as error:
        # Its message is about the grammar and quotes nothing.
        raise InvalidPayload(
            f"the document is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidPayload(f"the document is nested more than {max_depth} levels deep") from None
    if repeated:
        logger.warning("JSON with %d repeated names: the last value of each was taken", repeated)
    if _is_harmless(text, max_depth):
        return value  # type: ignore[no-any-return]  # json.loads returns Any
    try:
        measure(value, exact_integers=exact_integers, depth=max_depth)
    except Rejected:
        found = explain(value, path, exact_integers=exact_integers, depth=max_depth)
        raise InvalidPayload(found or "the document cannot be stored") from None
    return value  # type: ignore[no-any-return]  # as above


def _is_harmless(text: str, levels: int) -> bool:
    """Whether the text alone shows that `measure` accepts its value, as most texts do.

    A few calls search the text, while `measure` visits each value. If this returns False, `measure`
    must decide.
    """
    # If there is no backslash, strings are as they are written, and every second quote ends one.
    if len(text) < _SHORT or "\\" in text or not text.isascii():
        return False
    parts = text.split('"')
    outside = '"'.join(parts[::2])
    if _NOT_FINITE(outside) or has_long_integer(outside):
        return False
    if len(text) > MAX_NAME and max(map(len, parts[1::2]), default=0) > MAX_NAME:
        return False
    # Each step removes the innermost level.
    brackets = outside.encode().translate(_BRACKETS_ALIKE, _NO_BRACKETS)
    while brackets and levels > 0:
        brackets, levels = brackets.replace(b"[]", b""), levels - 1
    return not brackets


def loads_stored(text: str, *, exact_integers: bool = False) -> JSON:
    """Read JSON that this package has checked and stored.

    PostgreSQL's jsonb writes the float 1e300 as an integer of 301 digits. No integer beyond the
    safe range is ever accepted, so such a literal was a float and becomes one again. With
    `exact_integers`, the range is 64 bits.
    """
    if text == "{}":  # Most jobs have no meta and no options.
        return {}
    if not has_long_integer(text):
        return json.loads(text)  # type: ignore[no-any-return]  # json.loads returns Any
    return json.loads(  # type: ignore[no-any-return]  # json.loads returns Any
        text, parse_int=_stored_exact if exact_integers else _stored
    )


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPayload("the document must be encoded as UTF-8") from None


def has_long_integer(text: str) -> bool:
    """Whether a text may have an integer beyond the safe range: one of at least 16 digits."""
    if len(text) < len(_LONG_INTEGER):
        return False
    # `measure` rejects a lone surrogate; here it merely counts as no digit.
    return _LONG_INTEGER in text.encode(errors="replace").translate(_ALIKE)


def _short_integer(digits: str) -> int | LargeInteger:
    return int(digits) if len(digits) <= _LONGEST else LARGE_INTEGER


def _stored(digits: str) -> int | float:
    return _integer_or_float(digits, MAX_INTEGER)


def _stored_exact(digits: str) -> int | float:
    return _integer_or_float(digits, MAX_EXACT_INTEGER)


def _integer_or_float(digits: str, largest: int) -> int | float:
    if len(digits) <= _LONGEST:
        number = int(digits)
        if -largest <= number <= largest:
            return number
    return float(digits)

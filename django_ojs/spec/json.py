"""Strict JSON, and the only place where the standard library's is used.

See json-format §2.3 and §13, and RFC 8259.
"""

import json
import logging
from typing import Any, Final, TypeAlias

from django_ojs.spec.errors import InvalidArgs, InvalidPayload, OJSError
from django_ojs.spec.json_rules import (
    LARGE_INTEGER,
    MAX_DEPTH,
    MAX_EXACT_INTEGER,
    MAX_INTEGER,
    LargeInteger,
    Refused,
    explain,
    measure,
)

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

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
# No 64-bit integer has more characters. Parsing thousands of digits takes quadratic time.
_LONGEST: Final = 20


def dumps(value: Any) -> str:
    """Return a value that `check` has accepted as compact JSON text, not escaped to ASCII.

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
    """Read strict JSON: UTF-8 without BOM, finite numbers, safe integers, clean text, a depth.

    Raises InvalidPayload naming the path and the rule. A repeated name takes its last value, with
    a warning.
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
            parse_int=_short_integer if _has_long_integer(text) else None,
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
    try:
        measure(value, exact_integers=exact_integers, depth=max_depth)
    except Refused:
        found = explain(value, path, exact_integers=exact_integers, depth=max_depth)
        raise InvalidPayload(found or "the document cannot be stored") from None
    return value  # type: ignore[no-any-return]  # json.loads returns Any


def loads_stored(text: str, *, exact_integers: bool = False) -> JSON:
    """Read JSON that this package has checked and stored.

    PostgreSQL's jsonb writes the float 1e300 as an integer of 301 digits. No integer beyond the
    safe range is ever accepted, so such a literal was a float and becomes one again; with
    `exact_integers`, beyond 64 bits.
    """
    if not _has_long_integer(text):
        return json.loads(text)  # type: ignore[no-any-return]  # json.loads returns Any
    return json.loads(  # type: ignore[no-any-return]  # json.loads returns Any
        text, parse_int=_stored_exact if exact_integers else _stored
    )


def check(
    value: object,
    path: str,
    *,
    exact_integers: bool = False,
    error: type[OJSError] = InvalidArgs,
) -> None:
    """Check that JSON can represent a value. Raises `error`: "args[1] is a Decimal: send a string".

    Tuples are accepted as arrays, subclasses of str and int (StrEnum, IntEnum) as their values.
    """
    try:
        measure(value, exact_integers=exact_integers)
    except Refused:
        found = explain(value, path, exact_integers=exact_integers)
        raise error(found or f"{path} cannot be stored as JSON") from None


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPayload("the document must be encoded as UTF-8") from None


def _has_long_integer(text: str) -> bool:
    # `measure` refuses a lone surrogate; here it only is not a digit.
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

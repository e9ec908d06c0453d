"""Canonical JSON (RFC 8785): the same text for the same value, however it was written."""

import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from django_ojs.spec.json import dumps

# Beyond these powers of ten ECMAScript writes an exponent.
_LARGEST_PLAIN: Final = 21
_SMALLEST_PLAIN: Final = -6


def canonical(value: Any) -> str:
    """Return the canonical JSON of a value that `json.check` has accepted, its strings in NFC.

    Names are sorted by their UTF-16 code units, and numbers are written as ECMAScript does: 1.0 is
    1. Integers beyond ±2**53 keep all their digits, where a double would round.
    """
    if value is None or isinstance(value, bool):
        return dumps(value)
    if isinstance(value, str):
        return dumps(unicodedata.normalize("NFC", value))
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(canonical, value))}]"
    return _object(value)


def _object(value: Mapping[str, Any]) -> str:
    # The names are sorted before NFC, so that the same one always wins where NFC makes two names
    # equal.
    members = {unicodedata.normalize("NFC", name): value[name] for name in sorted(value)}
    names = sorted(members, key=lambda name: name.encode("utf-16-be"))
    return f"{{{','.join(f'{dumps(name)}:{canonical(members[name])}' for name in names)}}}"


def _number(value: float) -> str:
    """Write a double as ECMA-262's Number::toString does."""
    if value == 0:  # -0.0 as well
        return "0"
    # Python's repr has the same shortest digits; only the point and the exponent differ.
    sign, found, exponent = Decimal(float.__repr__(value)).as_tuple()
    assert isinstance(exponent, int)  # not NaN, not infinite
    text = "".join(map(str, found))
    point = len(text) + exponent
    digits = text.rstrip("0")
    count = len(digits)
    if count <= point <= _LARGEST_PLAIN:
        number = digits + "0" * (point - count)
    elif 0 < point <= _LARGEST_PLAIN:
        number = f"{digits[:point]}.{digits[point:]}"
    elif _SMALLEST_PLAIN < point <= 0:
        number = f"0.{'0' * -point}{digits}"
    else:
        mantissa = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
        number = f"{mantissa}e{point - 1:+d}"
    return f"-{number}" if sign else number

"""Canonical JSON: the examples of RFC 8785, and numbers as ECMAScript writes them."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from django_ojs.spec import json
from django_ojs.spec.canonical import canonical
from tests.cases import together


def test_the_example_of_the_rfc() -> None:
    # RFC 8785 §3.2.2; its strings are in NFC.
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\x0f\nA'\x42\x22\x5c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical(value) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_names_are_sorted_by_their_utf_16_code_units() -> None:
    # RFC 8785 §3.2.3: code points would put the emoji last.
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\xf6"]
    # U+FB33 has a decomposition that NFC keeps, so it is left out here.
    names.remove("\ufb33")
    text = canonical({**dict.fromkeys(names, 0), "\uff61": 0})
    order = list(json.loads(text))  # type: ignore[arg-type]  # an object
    assert order == ["\r", "1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\uff61"]


@together(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (5e-324, "5e-324"),
        (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (999999999999999900000.0, "999999999999999900000"),
        (333333333.3333332, "333333333.3333332"),
        (0.000001, "0.000001"),
        (0.0000033333333333333335, "0.0000033333333333333333"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (-0.0000033333333333333335, "-0.0000033333333333333333"),
        (1424953923781206.2, "1424953923781206.2"),
        (2**53 - 1, "9007199254740991"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_a_number_is_written_as_ecmascript_does(number: float, text: str) -> None:
    assert canonical(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_read_back_as_it_was(number: float) -> None:
    text = canonical(number)
    assert float(text) == number
    assert not text.startswith("-") or math.copysign(1, number) < 0


TREES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def rewritten(value: Any, form: str) -> Any:
    """Return the same value as another client would send it: reversed names, another form."""
    if isinstance(value, str):
        return unicodedata.normalize(form, value)  # type: ignore[arg-type]  # one of two
    if isinstance(value, list):
        return tuple(rewritten(item, form) for item in value)
    if isinstance(value, dict):
        return {
            unicodedata.normalize(form, name): rewritten(value[name], form)  # type: ignore[arg-type]
            for name in sorted(value, reverse=True)
        }
    return value


def unambiguous(value: Any) -> bool:
    """Say whether no two names of an object are one in NFC."""
    if isinstance(value, list):
        return all(map(unambiguous, value))
    if isinstance(value, dict):
        names = {unicodedata.normalize("NFC", name) for name in value}
        return len(names) == len(value) and all(map(unambiguous, value.values()))
    return True


@given(TREES.filter(unambiguous), st.sampled_from(["NFC", "NFD"]))
def test_the_text_depends_on_neither_the_order_of_names_nor_the_form(value: Any, form: str) -> None:
    again = json.loads_stored(canonical(value))
    assert canonical(rewritten(value, form)) == canonical(value) == canonical(again)


def test_of_two_names_that_are_one_in_nfc_the_same_wins_in_every_order() -> None:
    one, other = "\u00e9", "e\u0301"
    assert canonical({one: 1, other: 2}) == canonical({other: 2, one: 1})

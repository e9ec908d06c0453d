"""Texts that are made of texts have the bytes that decoding and encoding gives them."""

from __future__ import annotations

import json as standard
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from django_ojs.spec import json, json_text

#: Text with what separates values and ends strings.
words = st.text(st.sampled_from('ab ",:{}[]\\/\n\t\x7f.Ee-019é😀'), max_size=8)
numbers = st.one_of(
    st.integers(-json.MAX_INTEGER, json.MAX_INTEGER),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e300, 1e-7, 1e16, 1.5]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=10,
)


def positional(number: float) -> str:
    """Write a float as jsonb does, without an exponent."""
    if number == 0:
        return "0.0"
    return f"{number:f}" if abs(number) < 1e15 else f"{number:.0f}"


def stored(value: Any, *, ascii_only: bool, exponents: bool) -> str:
    """Write a value as a database returns it: with spaces, and its own way of numbers."""
    if isinstance(value, dict):
        members = [
            f"{stored(name, ascii_only=ascii_only, exponents=exponents)}: "
            f"{stored(each, ascii_only=ascii_only, exponents=exponents)}"
            for name, each in value.items()
        ]
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        items = [stored(each, ascii_only=ascii_only, exponents=exponents) for each in value]
        return f"[{', '.join(items)}]"
    if isinstance(value, float) and not exponents:
        return positional(value)
    return standard.dumps(value, ensure_ascii=ascii_only)


def as_today(text: str) -> str:
    return json.dumps(json.loads_stored(text))


@given(st.lists(values, max_size=6), st.booleans(), st.booleans())
@example([[1, "x"], {"a": 1}, []], False, False)
@example([["a, b: c", "1e5 .E-0"], {"x ": " y"}], False, False)
@example([[1], [1.5], ["\\"]], False, False)
def test_compact_texts_are_those_of_the_values(
    given_values: list[Any], ascii_only: bool, exponents: bool
) -> None:
    texts = [stored(each, ascii_only=ascii_only, exponents=exponents) for each in given_values]
    assert json_text.compact(texts) == [as_today(text) for text in texts]


@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    "[1E5]",
                    "[1e5]",
                    "[-0]",
                    "[-0.0]",
                    "[1.10]",
                    "[0.0000001]",
                    "[true, false, null]",
                ),
                *('["\\/"]', '["\\u00e9"]', '["a\\"b, c"]', "[1,2]", "[ 1 ]", "[1,\n2]", "[1,\t2]"),
                f"[{'9' * 16}]",
                f"[1{'0' * 300}]",
                f'["{"9" * 20}, 1"]',
                '{"a": 1, "b": {"c": [1, "d: e"]}}',
                '"\u2028, \x7f"',
            ]
        ),
        max_size=5,
    )
)
def test_texts_that_another_writer_stored_are_read_and_written(texts: list[str]) -> None:
    assert json_text.compact(texts) == [as_today(text) for text in texts]


def test_most_texts_are_neither_read_nor_written(monkeypatch: Any) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError("a text was read or written")

    texts = ["[1, 2]", '["a, b", {"c": true}]', "{}", '["née"]']
    expected = [as_today(text) for text in texts]
    monkeypatch.setattr(json_text, "loads_stored", never)
    monkeypatch.setattr(json_text, "dumps", never)
    assert json_text.compact(texts) == expected


@given(st.dictionaries(words, values, max_size=6), st.data())
def test_a_filled_template_is_the_text_of_the_object(
    value: dict[str, Any], data: st.DataObject
) -> None:
    own = [name for name in value if standard.dumps(name, ensure_ascii=False) == f'"{name}"']
    if own:
        own = data.draw(st.lists(st.sampled_from(own), unique=True))
    template = json_text.template(value, dict.fromkeys(own, "%s"))
    filled = template % tuple(json.dumps(value[name]) for name in value if name in own)
    assert filled == json.dumps(value)


def test_a_per_cent_sign_stays_one() -> None:
    template = json_text.template({"a%s": "100%", "id": 1}, {"id": '"%s"'})
    assert template % "%d" == '{"a%s":"100%","id":"%d"}'


@given(values)
def test_a_value_is_written_at_most_so_many_times_longer(value: Any) -> None:
    for text in (standard.dumps(value), standard.dumps(value, separators=(",", ":"))):
        read = json.loads(text, max_depth=200)
        assert len(json.dumps(read).encode()) <= json.MOST_GROWTH * len(text)


def test_the_number_that_grows_most_grows_less() -> None:
    for exponent in range(16):
        text = f"1e{exponent}"
        assert math.isfinite(float(text))
        assert len(json.dumps(json.loads(text))) <= json.MOST_GROWTH * len(text)

"""Strict JSON: what passes, what is rejected, and that nothing hostile takes long."""

from __future__ import annotations

import json as standard
import logging
import time
import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
from django.urls import reverse_lazy
from django.utils.functional import SimpleLazyObject
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, pgettext_lazy
from hypothesis import example, given
from hypothesis import strategies as st

from django_ojs.spec import json
from django_ojs.spec.errors import InvalidArgs, InvalidMetadata, InvalidPayload
from tests.cases import together

MAX = 2**53 - 1
clean_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX, MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | clean_text,
    lambda inner: st.lists(inner) | st.dictionaries(clean_text, inner),
    max_leaves=30,
)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@given(values)
def test_a_value_survives_writing_and_both_ways_of_reading(value: Any) -> None:
    json.check(value, "args")
    text = json.dumps(value)
    assert json.loads(text) == value
    assert json.loads(text.encode()) == value
    assert json.loads_stored(text) == value


@given(values)
def test_the_measure_is_never_below_the_size(value: Any) -> None:
    assert json.measure(value) >= len(json.dumps(value).encode())


def test_text_is_compact_and_not_escaped() -> None:
    assert json.dumps({"a": ["ä", 1.5, None]}) == '{"a":["ä",1.5,null]}'


@together(
    ("data", "rule"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[1,]", "is not JSON"),
        ("[01]", "is not JSON"),
        ("['a']", "is not JSON"),
        ('["\t"]', "is not JSON"),
        ('["\x00"]', "is not JSON"),
        ("[] []", "is not JSON"),
        ("[NaN]", "[0] is NaN"),
        ("[Infinity]", "[0] is NaN"),
        ("[1, -Infinity]", "[1] is NaN"),
        ('{"a": {"b": 1e400}}', "a.b is NaN"),
        (r'{"a": "\u0000"}', "a contains a NUL"),
        (r'{"\u0000": 1}', "a name that contains a NUL"),
        (r'{"a": ["\ud800"]}', "a[0] contains a lone surrogate"),
        (r'{"\udfff": 1}', "a name that contains a lone surrogate"),
        (f"[{MAX + 1}]", "[0] is an integer beyond"),
        (f"[{-MAX - 1}]", "[0] is an integer beyond"),
        ("[" + "9" * 5_000 + "]", "[0] is an integer beyond"),
        ("[" + "9" * 1_000_000 + "]", "[0] is an integer beyond"),
        (nested(65), "nested more than 64"),
        (nested(100_000), "nested more than 64"),
        ('{"a":' * 100_000, "nested more than 64"),
        ("[" * 100_000, "nested more than 64"),
        ("\ufeff[]", "byte order mark"),
        (b"\xef\xbb\xbf[]", "byte order mark"),
        ("[]".encode("utf-16"), "UTF-8"),
        (b'["\xff"]', "UTF-8"),
        (b'["\xed\xa0\x80"]', "UTF-8"),
        ('{"' + "k" * 70_000 + '": 1}', "longer than"),
    ],
    ids=lambda value: f"{type(value).__name__} {len(value)}",
)
def test_what_is_not_strict_json_is_rejected_quickly(data: str | bytes, rule: str) -> None:
    start = time.thread_time()
    with pytest.raises(InvalidPayload) as rejected:
        json.loads(data)
    assert rule in rejected.value.message
    assert time.thread_time() - start < 20


@pytest.mark.parametrize("data", [f"[{MAX}, {-MAX}]", nested(64), r'["\ud83d\ude00"]', "1e300"])
def test_what_is_just_within_the_limits_passes(data: str) -> None:
    assert json.loads(data) is not None


def test_a_body_may_be_deeper_than_what_it_carries() -> None:
    assert json.loads(nested(67), max_depth=json.BODY_DEPTH)
    with pytest.raises(InvalidPayload):
        json.loads(nested(68), max_depth=json.BODY_DEPTH)


def test_a_site_of_python_workers_may_keep_64_bits() -> None:
    assert json.loads(f"[{2**63 - 1}]", exact_integers=True) == [2**63 - 1]
    with pytest.raises(InvalidPayload, match="send it as a string"):
        json.loads(f"[{2**63}]", exact_integers=True)


def test_the_last_of_repeated_names_counts_and_is_logged_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert json.loads('{"secret": 1, "secret": 2}') == {"secret": 2}
    assert "1 repeated" in caplog.text
    assert "secret" not in caplog.text


def test_floats_that_jsonb_wrote_out_come_back_as_floats() -> None:
    text = f'{{"a": 1{"0" * 300}, "b": {MAX}, "c": -{MAX + 2}}}'
    assert json.loads_stored(text) == {"a": 1e300, "b": MAX, "c": -float(MAX + 2)}
    read = json.loads_stored(f"[{MAX + 1}]")
    assert isinstance(read, list)
    assert type(read[0]) is float
    exact = json.loads_stored(f"[{2**60}, 1{'0' * 300}]", exact_integers=True)
    assert exact == [2**60, 1e300]
    assert isinstance(exact, list)
    assert [type(item) for item in exact] == [int, float]


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    A = "a"


class Plain(Enum):
    A = "a"


class Model:
    _meta = object()
    pk = 5


@together(
    ("value", "message"),
    [
        (Decimal("1.5"), "is a Decimal: send a string"),
        (datetime(2026, 1, 1), "is a datetime: send an ISO 8601 string"),  # noqa: DTZ001 - any
        (date(2026, 1, 1), "is a date: send an ISO 8601 string"),
        (timedelta(1), "is a timedelta: send an ISO 8601 duration"),
        (uuid.UUID(int=0), "is a UUID: send a string"),
        ({1}, "is a set: send a list"),
        (b"x", "is a bytes: send base64url"),
        (Plain.A, "is a Plain: send its value"),
        (Model(), "is a Model: send its primary key"),
        (object(), "is a object: send a string"),
        (2**53, "is an integer beyond ±(2**53-1): send it as a string"),
        (-(2**53), "is an integer beyond"),
        (10**5_000, "is an integer beyond"),
        (float("nan"), "is NaN"),
        (float("inf"), "is NaN"),
        ("a\0", "contains a NUL"),
        ("ä\0", "contains a NUL"),
        ("\ud800", "contains a lone surrogate"),
        ({1: 2}, "has a name that is a int: names are strings"),
        ({None: 2}, "has a name that is a NoneType"),
        ({"\0": 1}, "has a name that contains a NUL"),
    ],
    ids=lambda value: value if type(value) is str and value.isprintable() else type(value).__name__,
)
def test_what_json_cannot_carry_is_named_with_its_place_and_cure(value: Any, message: str) -> None:
    with pytest.raises(InvalidArgs) as rejected:
        json.check([0, {"price": value}], "args")
    assert rejected.value.message.startswith(f"args[1].price {message}")


def test_values_of_enums_and_tuples_pass() -> None:
    value = [Number.ONE, Word.A, (1, (2,))]
    json.check(value, "args")
    assert json.loads(json.dumps(value)) == [1, "a", [1, [2]]]


@together("value", ["x", 1, True, None, 1.5, [1], {"a": 1}], ids=repr)
def test_a_lazy_object_is_not_what_it_stands_for(value: Any) -> None:
    lazy = SimpleLazyObject(lambda: value)
    message = r"^args\[0\]\.price is a SimpleLazyObject: send a string, a number"
    with pytest.raises(InvalidArgs, match=message) as rejected:
        json.check([{"price": lazy}], "args")
    assert rejected.value.details == {"field": "args"}
    with pytest.raises(InvalidPayload, match="is a SimpleLazyObject"):
        json.dumps([lazy])


@together(
    "lazy",
    [
        gettext_lazy("Yes"),
        pgettext_lazy("of a person", "Yes"),
        format_lazy("{}!", "Yes"),
        reverse_lazy("admin:index"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_lazy_text_says_that_it_is_one(lazy: Any) -> None:
    with pytest.raises(InvalidArgs, match=r"^args\[0\] is a lazy text: send str\(\) of it$"):
        json.check([lazy], "args")


def test_a_name_that_is_a_lazy_text_says_so() -> None:
    with pytest.raises(InvalidArgs, match="has a name that is a lazy text: names are strings"):
        json.check([{gettext_lazy("Yes"): 1}], "args")


def test_a_lazy_name_is_no_name() -> None:
    with pytest.raises(InvalidArgs, match="has a name that is a SimpleLazyObject"):
        json.check({SimpleLazyObject(lambda: "a"): 1}, "args")


def test_a_name_that_is_free_text_is_not_repeated() -> None:
    with pytest.raises(InvalidArgs) as rejected:
        json.check({"my secret": object()}, "args")
    assert rejected.value.message.startswith("args.* is a object")


def test_the_class_of_the_error_is_the_callers_choice() -> None:
    with pytest.raises(InvalidMetadata, match=r"^meta\.a is a set"):
        json.check({"a": set()}, "meta", error=InvalidMetadata)


def test_a_cycle_is_rejected() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(InvalidArgs, match=r"^args\[0\]\.again contains itself"):
        json.check(loop, "args")
    with pytest.raises(InvalidPayload):
        json.dumps(loop)


def test_depth_is_counted_and_not_recursed_into() -> None:
    deep: Any = []
    for _ in range(63):
        deep = [deep]
    json.check(deep, "args")
    with pytest.raises(InvalidArgs, match=r"^args is nested more than 64 levels deep"):
        json.check([deep], "args")
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArgs, match="nested more than 64"):
        json.check(deep, "args")
    with pytest.raises(InvalidPayload, match="nested more than 64"):
        json.dumps(deep)


@pytest.mark.parametrize("value", [float("nan"), {"a": "\0"}, "\ud800", b"x", "ä\0"])
def test_dumps_rejects_what_was_never_checked(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        json.dumps(value)


def test_an_escaped_backslash_is_not_taken_for_a_nul() -> None:
    assert json.loads(json.dumps("\\u0000")) == "\\u0000"


def test_a_hundred_thousand_names_are_read_quickly() -> None:
    text = "{" + ",".join(f'"k{number}":1' for number in range(100_000)) + "}"
    start = time.thread_time()
    assert len(json.loads(text)) == 100_000  # type: ignore[arg-type]  # an object
    assert time.thread_time() - start < 5


#: Some of them are no JSON, or beyond what a job may hold.
any_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.sampled_from(["],[", "[", "{", "0" * 20, "\\u0000", "\0", "\ud800", b"x", {1}, {1: 2}]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=12,
)


@given(st.lists(st.lists(any_values), min_size=1), st.booleans())
def test_lists_are_written_at_once_as_one_by_one_and_rejected_as_one_by_one(
    lists: list[list[Any]], exact: bool
) -> None:
    rejected = False
    for each in lists:
        try:
            json.measure(each, exact_integers=exact)
        except json.Rejected:
            rejected = True
    if rejected:
        with pytest.raises(InvalidPayload):
            json.dumps_lists(lists, exact_integers=exact)
        return
    text, sizes = json.dumps_lists(lists, exact_integers=exact)
    assert text == json.dumps(lists)
    assert sizes == [len(json.dumps(each).encode()) for each in lists]


def test_lists_that_are_nested_too_deep_or_contain_themselves_are_rejected() -> None:
    deepest: list[Any] = []
    for _ in range(json.MAX_DEPTH - 1):
        deepest = [deepest]
    json.check(deepest, "args")
    text, sizes = json.dumps_lists([[], deepest], exact_integers=False)
    assert sizes == [2, len(text) - 5]
    cycle: list[Any] = []
    cycle.append(cycle)
    for wrong in ([deepest], cycle):
        with pytest.raises(InvalidPayload):
            json.dumps_lists([[1], wrong], exact_integers=False)


#: Longer than what is measured anyway.
FILLER = "x" * 600


@given(any_values, st.booleans(), st.integers(1, 8))
@example({"a": "]["}, False, 3)
@example(["]", ["]", ["]", ["]"]]]], False, 3)
@example([[], [[]], [[[]]]], False, 4)
@example({"a": float("inf")}, False, 5)
@example({"a": float("nan")}, False, 5)
@example({"a": -float("inf")}, False, 5)
@example([2**53 - 1, -(2**53)], False, 5)
@example([2**53 - 1, -(2**53)], True, 5)
@example(["\0"], False, 5)
@example(["\ud800"], False, 5)
def test_a_long_text_is_read_or_rejected_as_its_value_is_measured(
    value: Any, exact: bool, depth: int
) -> None:
    document = [FILLER, value]
    for ascii_only in (True, False):
        try:
            text = standard.dumps(document, ensure_ascii=ascii_only)
        except (TypeError, ValueError, RecursionError):
            return  # No text has this value.
        read = standard.loads(text)
        try:
            json.measure(read, exact_integers=exact, depth=depth)
        except json.Rejected:
            with pytest.raises(InvalidPayload):
                json.loads(text, exact_integers=exact, max_depth=depth)
        else:
            assert repr(json.loads(text, exact_integers=exact, max_depth=depth)) == repr(read)


@pytest.mark.parametrize("number", ["1e400", "-1E400", "1" + "0" * 400, "Infinity", "-Infinity"])
def test_a_number_that_is_too_large_is_rejected_in_a_long_text(number: str) -> None:
    with pytest.raises(InvalidPayload):
        json.loads(f'["{FILLER}", {number}]')


def test_a_name_that_is_too_long_is_rejected_in_a_plain_text() -> None:
    assert json.loads(f'{{"{"n" * json.MAX_NAME}": "{FILLER}"}}')
    with pytest.raises(InvalidPayload, match="longer than"):
        json.loads(f'{{"{"n" * (json.MAX_NAME + 1)}": "{FILLER}"}}')


def test_a_long_text_that_is_plain_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **options: Any) -> int:
        raise AssertionError("the value was measured")

    monkeypatch.setattr(json, "measure", never)
    jobs = {"jobs": [{"type": "a.b", "args": [n, 1.5, "x", None]} for n in range(100)]}
    assert json.loads(standard.dumps(jobs)) == jobs

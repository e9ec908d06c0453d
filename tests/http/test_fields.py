"""Reading fields: what is wrong is rejected by name, and without its value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from django_ojs.http import fields
from django_ojs.spec.errors import InvalidRequest
from tests.cases import together

CHOICES = ("a", "b")
READERS: dict[str, Any] = {
    "string": fields.string,
    "text": fields.text,
    "texts": lambda data, name: fields.texts(data, name, 2, 5),
    "integer": lambda data, name: fields.integer(data, name, minimum=-1, maximum=5),
    "boolean": fields.boolean,
    "object_": fields.object_,
    "strings": fields.strings,
    "choice": lambda data, name: fields.choice(data, name, CHOICES, "b"),
    "milliseconds": fields.milliseconds,
    "timestamp": fields.timestamp,
}
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)

GOOD = [
    ("string", "", ""),
    ("string", "x", "x"),
    ("text", "ä b", "ä b"),
    ("text", "x" * 255, "x" * 255),
    ("texts", ["a", ""], ("a", "")),
    ("integer", -1, -1),
    ("integer", 5, 5),
    ("boolean", True, True),
    ("boolean", False, False),
    ("object_", {}, {}),
    ("strings", [], []),
    ("strings", ["a"], ["a"]),
    ("choice", "a", "a"),
    ("milliseconds", 1, timedelta(milliseconds=1)),
    ("timestamp", "2030-01-31T12:00:00Z", NOON),
    ("timestamp", "2030-01-31T14:00:00+02:00", NOON.astimezone(timezone(timedelta(hours=2)))),
]
LEFT_OUT = {"text": "", "texts": (), "boolean": False, "choice": "b"}
BAD = [
    *(("string", bad) for bad in (1, True, [], {}, 1.5)),
    *(("text", bad) for bad in ("x" * 256, "a\nb", "\0", "\ud800", "\x7f", 1)),
    *(("texts", bad) for bad in (["a"] * 3, ["x" * 6], ["\n"], [1], "a")),
    *(("integer", bad) for bad in (-2, 6, 1.0, True, "1", [], 10**400)),
    *(("boolean", bad) for bad in (1, 0, "true", [])),
    *(("object_", bad) for bad in ([], "{}", 1, True)),
    *(("strings", bad) for bad in ("a", [1], [None], {}, [["a"]])),
    *(("choice", bad) for bad in ("c", "", 1, True, [], {}, "A")),
    *(("milliseconds", bad) for bad in (0, -1, 2**31, 1.0, "1", True)),
    *(("timestamp", bad) for bad in ("x", "2030-01-31T12:00:00", 1, "2030-13-01T00:00:00Z")),
]


@together(("reader", "given", "expected"), GOOD)
def test_what_is_right_is_read(reader: str, given: Any, expected: Any) -> None:
    assert READERS[reader]({"f": given}, "f") == expected


@together("reader", READERS)
def test_null_equals_absent(reader: str) -> None:
    assert READERS[reader]({}, "f") == READERS[reader]({"f": None}, "f") == LEFT_OUT.get(reader)


@together(("reader", "given"), BAD)
def test_what_is_wrong_is_rejected_by_name(reader: str, given: Any) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        READERS[reader]({"some_field": given}, "some_field")
    assert rejected.value.message.startswith("some_field ")


@together("reader", sorted(set(READERS) - {"timestamp"}))
def test_the_details_hold_the_field(reader: str) -> None:
    bad = next(given for name, given in BAD if name == reader)
    with pytest.raises(InvalidRequest) as rejected:
        READERS[reader]({"some_field": bad}, "some_field")
    assert rejected.value.details == {"field": "some_field"}


def test_a_required_field_may_have_two_names() -> None:
    assert fields.required({"b": 0}, "a", "b") == 0
    assert fields.required({"a": None, "b": 2}, "a", "b") == 2
    with pytest.raises(InvalidRequest, match="a is required"):
        fields.required({"a": None}, "a", "b")


@together("given", [None, False, "true", 1, "yes", [True], {}])
def test_only_true_confirms(given: Any) -> None:
    fields.confirm({"confirm": True})
    with pytest.raises(InvalidRequest, match="confirm must be true"):
        fields.confirm({"confirm": given})


class TestQueries:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [("", 7), ("1", 1), ("007", 7), ("0" * 20 + "15", 15), ("100", 100), ("101", 100)],
    )
    def test_an_integer(self, given: str, expected: int) -> None:
        found = fields.query_integer({"n": given}, "n", default=7, minimum=1, maximum=100)
        assert found == expected

    @pytest.mark.parametrize("given", ["9" * 10, "9" * 5_000])
    def test_a_long_integer_is_the_maximum(self, given: str) -> None:
        assert fields.query_integer({"n": given}, "n", default=7, maximum=100) == 100

    @together("given", ["0", "-1", "1.0", "x", " 1", "1_0", "\u0661", "²", "+1"])
    def test_no_integer(self, given: str) -> None:
        with pytest.raises(InvalidRequest, match="n must be an integer of at least 1"):
            fields.query_integer({"n": given}, "n", default=7, minimum=1, maximum=100)

    @pytest.mark.parametrize("given", ["2030-01-31T14:00:00 02:00", "2030-01-31T14:00:00+02:00"])
    def test_a_moment_whose_plus_was_not_escaped(self, given: str) -> None:
        assert fields.query_timestamp({"t": given}, "t") == NOON
        assert fields.query_timestamp({}, "t") is None

    def test_a_list_is_repeated_or_has_commas(self) -> None:
        assert fields.query_list(["a,b", " c ", "", ",,"]) == ["a", "b", "c"]

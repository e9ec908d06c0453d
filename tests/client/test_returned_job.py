"""The model of an enqueue's result is the job that is read later, field by field."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from django.db import connection
from django.utils.safestring import mark_safe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.spec.json import JSON
from django_ojs.storage.dialects.job_row import NewRow
from tests.cases import together
from tests.databases import KIND
from tests.sizes import FULL

pytestmark = pytest.mark.django_db


class Color(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


def enqueue(args: Any = (), **options: Any) -> Job:
    return ojs.enqueue("test.returned", args, **options).model()


def assert_faithful(job: Job) -> None:
    stored = ojs.get_job(job.pk)
    for field in Job._meta.concrete_fields:
        assert getattr(job, field.attname) == getattr(stored, field.attname), field.name
    assert job.envelope() == stored.envelope()
    assert not job._state.adding
    assert job._state.db == stored._state.db
    assert job.get_deferred_fields() == set()


OPTIONS: list[dict[str, Any]] = [
    {},
    {"queue": "other", "priority": -100, "tags": ("a", "é"), "meta": {"a": {"b": [None, True]}}},
    {"priority": Size.LARGE, "queue": Color.RED, "tags": [Color.RED], "meta": {Color.RED: (1, 2)}},
    {"scheduled_at": timedelta(minutes=5), "expires_at": "+PT10M"},
    {"scheduled_at": timedelta(microseconds=1)},
    {"scheduled_at": datetime(2090, 1, 31, 9, 30, 1, 234567, tzinfo=UTC)},
    {"expires_at": datetime(2090, 1, 1, tzinfo=timezone(timedelta(hours=-11, minutes=-30)))},
    {"scheduled_at": "2090-01-31T11:30:00.123456789+02:00", "expires_at": "9999-12-29T00:00:00Z"},
    {"scheduled_at": "2001-01-01T00:00:00Z"},
    {"scheduled_at": timedelta(0)},
    {"pending": True, "scheduled_at": "+PT1H"},
    {"timeout": 0.25, "visibility_timeout": timedelta(hours=1)},
    {"schema": "urn:ojs:schema:test:v1"},
    {"retry": ojs.RetryPolicy(max_attempts=9, initial_interval=0.5, backoff_coefficient=1.1)},
    {"retry": {"max_attempts": 0, "non_retryable_errors": ["a.*"], "x_note": {"why": (1, 2.5)}}},
]


@together("options", OPTIONS, undo=True)
def test_every_field_is_what_a_later_read_gives(options: dict[str, Any]) -> None:
    assert_faithful(enqueue(["x"], **options))


def test_every_field_is_right_in_a_batch_too() -> None:
    jobs = ojs.enqueue_batch([ojs.request("test.batch", [n], **o) for n, o in enumerate(OPTIONS)])
    for number, job in enumerate(result.model() for result in jobs):
        assert job.args == [number]
        assert_faithful(job)


@together(
    "value",
    [
        1e300,
        -1e300,
        1e-300,
        5e-324,
        1e16,
        float(2**53),
        1e22,
        0.1 + 0.2,
        1.0,
        2**53 - 1,
        -(2**53 - 1),
        "é ü 中文 🎉 \u2028 \u200f",
        'a\\b"c\n\t\x01\x7f \\u0000',
        "",
        "x" * 10_000,
        {"": None, "\u00e9": 1, "e\u0301": 2, "a.b": [[], {}]},
        [[[[]]]],
    ],
    undo=True,
)
def test_a_value_comes_back_as_it_was(value: JSON) -> None:
    job = enqueue([value])
    assert_faithful(job)
    (stored,) = ojs.get_job(job.pk).args
    assert stored == value
    assert type(stored) is type(value)


def test_minus_zero_may_lose_its_sign_and_nothing_else() -> None:
    job = enqueue([-0.0])
    assert_faithful(job)
    (stored,) = ojs.get_job(job.pk).args
    assert (stored, type(stored)) == (0.0, float)
    # jsonb keeps numbers as decimals, which have one zero.
    assert math.copysign(1.0, stored) == (1.0 if KIND == "postgresql" else -1.0)


def test_what_json_has_no_word_for_is_returned_as_it_will_be_read() -> None:
    job = enqueue([(1, (2, {"a": (3,)})), Color.RED, Size.LARGE, mark_safe("<b>")])
    assert job.args == [[1, [2, {"a": [3]}]], "red", 3, "<b>"]
    assert_faithful(job)


def test_the_returned_job_shares_nothing_with_the_caller_s_objects() -> None:
    args: list[Any] = [{"lines": [1]}]
    meta: dict[str, Any] = {"a": {"b": 1}}
    tags = ["a"]
    job = enqueue(args, meta=meta, tags=tags)
    args[0]["lines"].append(2)
    meta["a"]["b"] = 2
    tags.append("b")
    assert (job.args, job.meta, job.tags) == ([{"lines": [1]}], {"a": {"b": 1}}, ["a"])


# A character of its own for each rule that JSON text has; NUL and surrogates are rejected.
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.requirement("CORE-5.5-1")
@pytest.mark.sized
@settings(
    max_examples=150 if FULL else 40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(args=st.lists(values, max_size=4), meta=st.dictionaries(text, values, max_size=3))
def test_whatever_json_can_carry_comes_back_equal(args: list[JSON], meta: dict[str, JSON]) -> None:
    job = enqueue(args, meta=meta)
    assert_faithful(job)
    stored = ojs.get_job(job.pk)
    assert (stored.args, stored.meta) == (args, meta)


def test_only_postgresql_loses_the_sign_of_a_zero() -> None:
    stored = ojs.get_job(enqueue([-0.0]).pk)
    assert repr(stored.args) == ("[0.0]" if connection.vendor == "postgresql" else "[-0.0]")


@pytest.mark.parametrize("is_alike", [True, False])
def test_results_do_not_change_with_what_the_caller_gave(is_alike: bool) -> None:
    meta = {"order": {"number": 1}, "lines": [[1], (2,)]}
    tags = ["x"]
    other = tags if is_alike else ["y"]
    requests = [ojs.request("test.job", [0], meta=meta, tags=each) for each in (tags, other)]
    jobs = [*ojs.enqueue_batch(requests), ojs.enqueue("test.job", meta=meta, tags=tags)]
    meta["order"]["number"] = 2  # type: ignore[call-overload, index]  # it is a dict
    meta["lines"].append(3)  # type: ignore[attr-defined]  # it is a list
    stored = {"order": {"number": 1}, "lines": [[1], [2]]}
    assert [job.model().meta for job in jobs] == [stored] * 3
    assert [job.job().meta for job in jobs] == [stored] * 3
    # Nor with one another.
    assert isinstance(jobs[0].row, NewRow)
    jobs[0].row.envelope.meta["order"]["number"] = 3  # type: ignore[index, call-overload]  # as above
    assert [job.model().meta["order"]["number"] for job in jobs[1:]] == [1, 1]

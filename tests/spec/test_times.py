"""Timestamps and durations: every dialect in, one out, nothing overflows."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_ojs.spec import times
from django_ojs.spec.errors import InvalidRequest
from tests.cases import together
from tests.worker.parts import claimed

durations = st.timedeltas(min_value=timedelta(0), max_value=times.MAX_DURATION)
moments = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001 - hypothesis adds the timezone
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)


@together(
    ("text", "moment"),
    [
        ("2026-03-15T09:30:00Z", datetime(2026, 3, 15, 9, 30, tzinfo=UTC)),
        ("2026-03-15t09:30:00z", datetime(2026, 3, 15, 9, 30, tzinfo=UTC)),
        ("2026-03-15T09:30:00+02:00", datetime(2026, 3, 15, 7, 30, tzinfo=UTC)),
        ("2026-03-15T09:30:00-05:30", datetime(2026, 3, 15, 15, 0, tzinfo=UTC)),
        ("2026-03-15T09:30:00-00:00", datetime(2026, 3, 15, 9, 30, tzinfo=UTC)),
        ("2026-03-15T09:30:00.5Z", datetime(2026, 3, 15, 9, 30, 0, 500_000, tzinfo=UTC)),
        ("2026-03-15T09:30:00.1234567Z", datetime(2026, 3, 15, 9, 30, 0, 123_456, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2028-02-29T00:00:00Z", datetime(2028, 2, 29, tzinfo=UTC)),
    ],
)
def test_a_timestamp_with_any_offset_is_read_as_utc(text: str, moment: datetime) -> None:
    assert times.parse_timestamp(text, "scheduled_at") == moment
    assert times.parse_timestamp(text, "scheduled_at").tzinfo is UTC


@together(
    "bad",
    [
        "2026-03-15T09:30:00",
        "2026-03-15",
        "2026-03-15 09:30:00Z",
        "2026-03-15T09:30Z",
        "2026-02-30T00:00:00Z",
        "2027-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+02:60",
        "2026-01-01T00:00:00+0200",
        "2026-01-01T00:00:00Z\n",
        "٢٠٢٦-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "1767225600",
        "",
        "tomorrow",
    ],
)
def test_other_timestamps_are_rejected_naming_the_field_only(bad: str) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        times.parse_timestamp(bad, "expires_at")
    assert rejected.value.message.startswith("expires_at must ")
    assert not bad or bad not in rejected.value.message


def test_a_missing_offset_is_named_as_the_reason() -> None:
    with pytest.raises(InvalidRequest, match=r"must end with Z or an offset"):
        times.parse_timestamp("2026-03-15T09:30:00", "scheduled_at")


@given(moments)
def test_what_is_formatted_is_read_back_to_the_millisecond(moment: datetime) -> None:
    text = times.format_timestamp(moment)
    assert text.endswith("Z")
    assert len(text) == 24
    read = times.parse_timestamp(text, "x")
    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)


@given(moments, st.integers(-23 * 60, 23 * 60))
def test_the_offset_of_a_moment_does_not_change_its_text(moment: datetime, minutes: int) -> None:
    moved = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert times.format_timestamp(moved) == times.format_timestamp(moment)


def test_a_naive_moment_cannot_be_formatted() -> None:
    with pytest.raises(ValueError, match="aware"):
        times.format_timestamp(datetime(2026, 1, 1))  # noqa: DTZ001 - naive is the point


@together(
    ("text", "seconds"),
    [
        ("PT1S", 1),
        ("PT0S", 0),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("PT1.5H", 5_400),
        ("PT5M", 300),
        ("PT24H", 86_400),
        ("P1D", 86_400),
        ("P2W", 14 * 86_400),
        ("P1M", 30 * 86_400),
        ("P1Y", 365 * 86_400),
        ("P1Y2M3DT4H5M6.007S", (365 + 60 + 3) * 86_400 + 4 * 3_600 + 5 * 60 + 6.007),
        ("1s", 1),
        ("300s", 300),
        ("5m", 300),
        ("2h", 7_200),
        ("1d", 86_400),
        ("500ms", 0.5),
        ("1.5s", 1.5),
    ],
)
def test_every_dialect_of_durations_is_read(text: str, seconds: float) -> None:
    assert times.parse_duration(text, "x") == timedelta(seconds=seconds)


@together(
    "bad",
    [
        "", "P", "PT", "P1DT", "1", "S", "PT1", "PS", "T1S", "PT1S ", "PT-1S", "-PT1S", "+PT1S",
        "P1S", "PT1D", "PT1.5M1S", "PT1M1H", "pt1s", "PT1S\n", "five", "1 s", "PT.5S", "PT٣S",
        "P1001Y", "PT999999999999999S", "P" + "9" * 5_000 + "Y", "9" * 5_000 + "s",
        1, 1.5, True, None, [], {}, timedelta(seconds=-1), timedelta.max,
    ],
    ids=lambda value: repr(value)[:24],
)  # fmt: skip
def test_other_durations_are_rejected(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^retry\.max_interval must "):
        times.parse_duration(bad, "retry.max_interval")


@given(durations)
@example(timedelta(0))
@example(timedelta(microseconds=1))
def test_a_duration_survives_the_round_trip(duration: timedelta) -> None:
    assert times.parse_duration(times.format_duration(duration), "x") == duration


@together(
    ("seconds", "text"),
    [
        (0, "PT0S"),
        (1, "PT1S"),
        (0.5, "PT0.5S"),
        (60, "PT1M"),
        (300, "PT5M"),
        (86_400, "PT24H"),
        (3_661.25, "PT1H1M1.25S"),
    ],
)
def test_a_duration_is_written_in_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert times.format_duration(timedelta(seconds=seconds)) == text


def test_a_negative_duration_cannot_be_formatted() -> None:
    with pytest.raises(ValueError, match="not negative"):
        times.format_duration(timedelta(seconds=-1))


@given(st.text())
def test_no_text_makes_a_reader_raise_anything_else(text: str) -> None:
    for read in (times.parse_timestamp, times.parse_duration, times.parse_when):
        with contextlib.suppress(InvalidRequest):
            read(text, "x")


@given(st.from_regex(r"\A[+]?P([0-9]{1,20}Y)?([0-9]{1,20}D)?(T[0-9]{1,20}(\.[0-9]{1,20})?S)?\Z"))
def test_no_duration_overflows_when_added_to_now(text: str) -> None:
    try:
        when = times.parse_when(text, "x")
    except InvalidRequest:
        return
    assert isinstance(when, timedelta)
    assert datetime(2026, 1, 1, tzinfo=UTC) + when


@given(moments, st.integers(-14 * 60, 14 * 60))
def test_no_moment_overflows_when_moved_to_another_timezone(moment: datetime, offset: int) -> None:
    read = times.parse_timestamp(times.format_timestamp(moment), "x")
    assert read.astimezone(timezone(timedelta(minutes=offset))) == read


def test_when_is_a_moment_or_a_time_from_now() -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert times.parse_when(moment, "x") == moment
    assert times.parse_when(timedelta(minutes=5), "x") == timedelta(minutes=5)
    assert times.parse_when("+PT2S", "x") == timedelta(seconds=2)
    assert times.parse_when("2026-01-01T10:00:00Z", "x") == moment


def test_a_naive_datetime_is_rejected_with_a_cure() -> None:
    with pytest.raises(
        InvalidRequest, match=r"^scheduled_at is a naive datetime: use .*make_aware"
    ):
        times.parse_when(datetime(2026, 1, 1), "scheduled_at")  # noqa: DTZ001 - naive is the point


@together(
    "bad",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=23))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
        timedelta(seconds=-1),
        timedelta.max,
        "PT2S",
        "+",
        "+PT",
        0,
        1_767_225_600,
        True,
        None,
        {},
    ],
)
def test_what_is_no_when_is_rejected(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^x must "):
        times.parse_when(bad, "x")


def test_elapsed_is_right_where_the_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for start in (
        datetime(2026, 3, 29, 0, 58, tzinfo=UTC),
        datetime(2026, 10, 25, 0, 58, tzinfo=UTC),
    ):
        end = start + timedelta(minutes=5)
        local = start.astimezone(berlin), end.astimezone(berlin)
        assert local[1] - local[0] != timedelta(minutes=5)
        assert times.elapsed(*local) == timedelta(minutes=5)
        assert times.elapsed(end, start) == timedelta(0)
        row = claimed()
        row.started_at, row.lease_until = local
        assert row.lease == timedelta(minutes=5)


def test_milliseconds_are_whole_ones_and_none_where_the_clock_is_ahead() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for microseconds, expected in ((1_999, 1), (1_500, 1), (0, 0), (-1, 0), (-5_000, 0)):
        end = start + timedelta(microseconds=microseconds)
        assert times.milliseconds_between(start, end) == expected

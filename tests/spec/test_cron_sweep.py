"""Cron expressions against a minute-by-minute brute force, in twelve timezones."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_ojs.extensions.cron.spec import CronExpression
from tests.cases import together

# Half hours (Lord Howe), quarters (Chatham), no daylight saving time (Kolkata), both hemispheres,
# midnight (Beirut, Santiago), transitions for Ramadan (Casablanca), at -1:00 (Nuuk).
ZONES = [
    "UTC",
    "Europe/Paris",
    "Europe/London",
    "America/New_York",
    "America/Santiago",
    "America/Nuuk",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
]
FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass
class Case:
    """An expression, and what it must match, computed by other means."""

    text: str
    minutes: set[int]
    hours: set[int]
    day: Callable[[date], bool]

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.day(wall.date())


def length_of(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def weekday_of(day: date) -> int:
    return day.isoweekday() % 7


def is_nearest_workday(day: date, wanted: int) -> bool:
    """Search outwards from the wanted day, without leaving its month."""
    if wanted > length_of(day):
        return False
    for distance in (0, -1, 1, -2, 2):
        number = wanted + distance
        if 1 <= number <= length_of(day) and day.replace(day=number).isoweekday() <= 5:
            return day.day == number
    raise AssertionError("a month without a workday")


@st.composite
def numbers(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int]]:
    """A field of numbers: a wildcard, a step, or a list of values and ranges."""
    kind = draw(st.sampled_from(["*", "step", "list"]))
    if kind == "*":
        return "*", set(range(low, high + 1))
    if kind == "step":
        step = draw(st.integers(1, high - low + 1))
        return f"*/{step}", {n for n in range(low, high + 1) if (n - low) % step == 0}
    texts, values = [], set()
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, 5))
        text = str(first) if first == last else f"{first}-{last}"
        if first != last and step > 1:
            text += f"/{step}"
        texts.append(text)
        values |= {n for n in range(first, last + 1) if (n - first) % step == 0}
    return ",".join(texts), values


@st.composite
def days_of_month(draw: st.DrawFn) -> tuple[str, Callable[[date], bool]]:
    n = draw(st.integers(1, 31))
    if draw(st.booleans()):
        text, values = draw(numbers(1, 31))
        return text, lambda day: day.day in values
    return draw(
        st.sampled_from(
            [
                ("L", lambda day: day.day == length_of(day)),
                (
                    "LW",
                    lambda day: (
                        day.day
                        == max(
                            d
                            for d in range(1, length_of(day) + 1)
                            if day.replace(day=d).isoweekday() <= 5
                        )
                    ),
                ),
                (f"{n}W", lambda day: is_nearest_workday(day, n)),
            ]
        )
    )


@st.composite
def days_of_week(draw: st.DrawFn) -> tuple[str, Callable[[date], bool]]:
    if draw(st.booleans()):
        text, values = draw(numbers(0, 6))
        return text, lambda day: weekday_of(day) in values
    weekday, n = draw(st.integers(0, 7)), draw(st.integers(1, 5))
    return draw(
        st.sampled_from(
            [
                (
                    f"{weekday}L",
                    lambda day: weekday_of(day) == weekday % 7 and day.day > length_of(day) - 7,
                ),
                (
                    f"{weekday}#{n}",
                    lambda day: weekday_of(day) == weekday % 7 and (day.day - 1) // 7 + 1 == n,
                ),
            ]
        )
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    minute, minutes = draw(numbers(0, 59))
    hour, hours = draw(numbers(0, 23))
    of_month, in_month = draw(st.one_of(st.just(("*", lambda day: True)), days_of_month()))
    month, months = draw(st.one_of(st.just(("*", set(range(1, 13)))), numbers(1, 12)))
    of_week, in_week = draw(st.one_of(st.just(("*", lambda day: True)), days_of_week()))
    either = not of_month.startswith("*") and not of_week.startswith("*")

    def day(day: date) -> bool:
        found = (in_month(day), in_week(day))
        return day.month in months and (any(found) if either else all(found))

    return Case(f"{minute} {hour} {of_month} {month} {of_week}", minutes, hours, day)


def never(case: Case) -> bool:
    """A leap year and a common one for each day of the week on which a year can begin."""
    days = (date(1996, 1, 1) + timedelta(days=n) for n in range(28 * 366))
    return not any(case.day(day) for day in days)


def transitions(zone: str) -> list[datetime]:
    """The hours in which the offset of a timezone changes."""
    found, at = [], FIRST
    timezone = ZoneInfo(zone)
    while at < LAST:
        day = at + timedelta(days=1)
        if at.astimezone(timezone).utcoffset() != day.astimezone(timezone).utcoffset():
            found.append(at)
        at = day
    return found


TRANSITIONS = [(zone, at) for zone in ZONES for at in transitions(zone)]
windows = st.one_of(
    st.sampled_from(TRANSITIONS),
    st.tuples(
        st.sampled_from(ZONES),
        st.integers(0, (LAST - FIRST).days - 3).map(lambda days: FIRST + timedelta(days=days)),
    ),
)


def clock(
    timezone: ZoneInfo, start: datetime, end: datetime
) -> Iterator[tuple[datetime | None, datetime]]:
    """Iterate over what a clock shows, minute by minute, without what it shows again.

    The moment is None for the minutes that it leaves out.
    """
    before = start.astimezone(timezone).replace(tzinfo=None)
    at = start
    while at < end:
        at += MINUTE
        local = at.astimezone(timezone)
        wall = local.replace(tzinfo=None, fold=0)
        while (missing := before + MINUTE) < wall:
            yield None, missing
            before = missing
        if not local.fold:
            yield at, wall
        before = wall


@given(case=cases(), window=windows)
@example(
    case=Case("30 2 * * *", {30}, {2}, lambda day: True),
    window=("Europe/Paris", datetime(2026, 3, 28, tzinfo=UTC)),
)
@example(
    case=Case("30 2 * * *", {30}, {2}, lambda day: True),
    window=("Europe/Paris", datetime(2026, 10, 24, tzinfo=UTC)),
)
def test_it_fires_as_a_brute_force_over_the_minutes_says(
    case: Case, window: tuple[str, datetime]
) -> None:
    if never(case):
        with pytest.raises(ValueError, match="never fire"):
            CronExpression.parse(case.text)
        return
    expression = CronExpression.parse(case.text)
    timezone = ZoneInfo(window[0])
    start, end = window[1], window[1] + timedelta(days=2)

    found = list(takewhile(lambda o: o.at <= end, expression.occurrences(start, timezone)))
    expected = [(wall, at) for at, wall in clock(timezone, start, end) if case.matches(wall)]

    assert [(o.wall, None if o.skipped else o.at) for o in found] == expected
    assert [o.at for o in found] == sorted(o.at for o in found)


SAMPLE = [
    Case("*/15 * * * *", {0, 15, 30, 45}, set(range(24)), lambda day: True),
    Case("30 2 * * *", {30}, {2}, lambda day: True),
    Case("0,30 0-3 * * *", {0, 30}, {0, 1, 2, 3}, lambda day: True),
    Case("0 9 * * MON-FRI", {0}, {9}, lambda day: day.isoweekday() <= 5),
    Case("15 23 L * *", {15}, {23}, lambda day: day.day == length_of(day)),
    Case("0 0 29 2 *", {0}, {0}, lambda day: (day.month, day.day) == (2, 29)),
    Case("0 12 15W * *", {0}, {12}, lambda day: is_nearest_workday(day, 15)),
    Case("45 1 13 * 5", {45}, {1}, lambda day: day.day == 13 or day.isoweekday() == 5),
    Case(
        "0 2 * * 7L",
        {0},
        {2},
        lambda day: day.isoweekday() == 7 and day.day > length_of(day) - 7,
    ),
]


@pytest.mark.storm
@together("zone", ZONES)
def test_ten_years_minute_by_minute(zone: str) -> None:
    timezone = ZoneInfo(zone)
    iterators = [CronExpression.parse(case.text).occurrences(FIRST, timezone) for case in SAMPLE]
    days = [lru_cache(case.day) for case in SAMPLE]
    at_time = {
        (hour, minute): [
            n for n, case in enumerate(SAMPLE) if hour in case.hours and minute in case.minutes
        ]
        for hour in range(24)
        for minute in range(60)
    }
    for at, wall in clock(timezone, FIRST, LAST):
        for n in at_time[wall.hour, wall.minute]:
            if days[n](wall.date()):
                found = next(iterators[n])
                assert (found.wall, None if found.skipped else found.at) == (wall, at)

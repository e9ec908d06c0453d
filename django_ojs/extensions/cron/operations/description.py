"""A cron expression in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_ojs.extensions.cron.spec import CronExpression
from django_ojs.extensions.cron.spec.fields import MONTHS, WEEKDAYS, DayKind, DayRule, Days

#: The most times of a day that are listed; more are described by their fields.
_MAX_TIMES: Final = 6
_NTH: Final = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Time:
    """When in a day an expression fires, in words.

    `is_at` says that the words begin with "at", so that the day comes first. `hourly` says that
    they already mention every hour.
    """

    words: str
    is_at: bool = False
    hourly: bool = False


def describe(expression: CronExpression, timezone_name: str | None = None) -> str:
    """Return an expression in words: "every weekday at 09:00 (Europe/Paris)"."""
    words = _words(expression)
    if not timezone_name:
        return words
    return f"{words} ({timezone_name})"


def _words(expression: CronExpression) -> str:
    days = expression.days
    if expression.interval is not None or days is None:
        return _interval(expression.interval or timedelta())
    time = _time(expression.seconds, expression.minutes, expression.hours)
    is_any_day = _is_any_day(days) and _is_any_weekday(days) and len(days.months) == 12
    if is_any_day and (time.hourly or not time.is_at):
        return time.words
    if time.is_at:
        return f"{_day(days)} {time.words}"
    return f"{time.words}, {_day(days)}"


def _interval(interval: timedelta) -> str:
    minutes, seconds = divmod(interval.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    given = [
        (number, unit)
        for number, unit in ((hours, "hour"), (minutes, "minute"), (seconds, "second"))
        if number
    ]
    if len(given) == 1:
        return _every(*given[0])
    return f"every {_joined(_count(*each) for each in given)}"


def _every(number: float, unit: str) -> str:
    return f"every {unit}" if number == 1 else f"every {_count(number, unit)}"


def _count(number: float, unit: str) -> str:
    return f"{number:g} {_plural(unit, number)}"


def _plural(unit: str, number: float) -> str:
    return unit if number == 1 else f"{unit}s"


def _time(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> _Time:
    exact = list(seconds) == [0]
    every_hour = len(hours) == 24
    if len(seconds) * len(minutes) * len(hours) <= _MAX_TIMES:
        times = _joined(
            f"{h:02}:{m:02}" + ("" if exact else f":{s:02}")
            for h in hours
            for m in minutes
            for s in seconds
        )
        return _Time(words=f"at {times}", is_at=True)
    if not exact:
        return _with_seconds(seconds, minutes, hours)
    often = _regularly(minutes, 60, "minute")
    if often and every_hour:
        return _Time(words=often)
    if often and _is_run(hours):
        return _Time(words=_between(often, hours, minutes))
    if often:
        return _Time(words=f"{often} of {_of_hours(hours)}")
    if len(minutes) > 1:
        return _at_minutes(minutes, hours)
    hourly = _regularly(hours, 24, "hour")
    if not hourly and _is_run(hours):
        return _Time(words=_between("every hour", hours, minutes))
    if not hourly:
        return _at_minutes(minutes, hours)
    if not minutes[0]:
        return _Time(words=hourly)
    return _Time(words=f"{hourly} at minute {minutes[0]}")


def _with_seconds(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> _Time:
    often = _regularly(seconds, 60, "second")
    words = often or f"at {_plural('second', len(seconds))} {_numbers(seconds)}"
    if len(hours) == 24 and len(minutes) == 60:
        return _Time(words=often or f"{words} of every minute", is_at=not often, hourly=True)
    return _Time(
        words=f"{words} of {_of_minutes(minutes)} of {_of_hours(hours)}",
        is_at=not often,
        hourly=len(hours) == 24,
    )


def _at_minutes(minutes: Sequence[int], hours: Sequence[int]) -> _Time:
    return _Time(
        words=f"at {_of_minutes(minutes)} of {_of_hours(hours)}",
        is_at=True,
        hourly=len(hours) == 24,
    )


def _regularly(values: Sequence[int], size: int, unit: str) -> str:
    """Return words such as "every 15 minutes" if they describe all values, or an empty text."""
    step = size // len(values)
    if len(values) < 2 or list(values) != list(range(0, size, step)):
        return ""
    return _every(step, unit)


def _between(often: str, hours: Sequence[int], minutes: Sequence[int]) -> str:
    end = f"{hours[-1]:02}:{minutes[-1]:02}"
    start = f"{hours[0]:02}:{minutes[0]:02}"
    return f"{often} from {start} to {end}"


def _of_hours(hours: Sequence[int]) -> str:
    if len(hours) == 24:
        return "every hour"
    return f"{_plural('hour', len(hours))} {_numbers(hours)}"


def _of_minutes(minutes: Sequence[int]) -> str:
    if len(minutes) == 60:
        return "every minute"
    return f"{_plural('minute', len(minutes))} {_numbers(minutes)}"


def _is_any_day(days: Days) -> bool:
    found = {rule.value for rule in days.of_month if rule.kind is DayKind.DAY}
    return found >= set(range(1, 32))


def _is_any_weekday(days: Days) -> bool:
    found = {rule.value for rule in days.of_week if rule.kind is DayKind.WEEKDAY}
    return found >= set(range(7))


def _day(days: Days) -> str:
    words, needs_month = _day_words(days)
    if len(days.months) < 12:
        months = _joined(MONTHS[month - 1] for month in days.months)
        if needs_month and len(days.of_month) == len(days.months) == 1:
            only = days.of_month[0]
            if only.kind is DayKind.DAY:
                return f"every year on {only.value} {months}"
        return f"{words} in {months}"
    return f"{words} of the month" if needs_month else words


def _day_words(days: Days) -> tuple[str, bool]:
    """Return the days in words, without the months, and whether they are only days of a month."""
    if _is_any_weekday(days):
        if _is_any_day(days):
            return "every day", False
        return _of_month(days.of_month), True
    if _is_any_day(days):
        return _of_week(days.of_week), False
    if days.either:
        return f"{_of_month(days.of_month)} of the month and {_of_week(days.of_week)}", False
    return f"{_of_week(days.of_week)} that falls {_of_month(days.of_month)} of the month", False


def _of_month(rules: Sequence[DayRule]) -> str:
    numbers = sorted({rule.value for rule in rules if rule.kind is DayKind.DAY})
    parts = []
    if numbers:
        parts.append(f"{_plural('day', len(numbers))} {_numbers(numbers)}")
    for rule in rules:
        if rule.kind is DayKind.LAST_DAY:
            parts.append("the last day")
        elif rule.kind is DayKind.LAST_WORKDAY:
            parts.append("the last weekday")
        elif rule.kind is DayKind.NEAREST_WORKDAY:
            parts.append(f"the weekday nearest to day {rule.value}")
    return f"on {_joined(parts)}"


def _of_week(rules: Sequence[DayRule]) -> str:
    plain = {rule.value for rule in rules if rule.kind is DayKind.WEEKDAY}
    parts = []
    if plain == {1, 2, 3, 4, 5}:
        parts.append("every weekday")
    elif plain:
        # The week begins on Monday.
        ordered = sorted(plain, key=lambda weekday: weekday or 7)
        parts.append(f"every {_joined(WEEKDAYS[weekday] for weekday in ordered)}")
    for rule in rules:
        weekday = WEEKDAYS[rule.value % 7]
        if rule.kind is DayKind.NTH_WEEKDAY:
            parts.append(f"on the {_NTH[rule.nth - 1]} {weekday} of the month")
        elif rule.kind is DayKind.LAST_WEEKDAY:
            parts.append(f"on the last {weekday} of the month")
    return _joined(parts)


def _numbers(values: Sequence[int]) -> str:
    if len(values) > 2 and _is_run(values):
        return f"{values[0]} to {values[-1]}"
    return _joined(str(value) for value in values)


def _is_run(values: Sequence[int]) -> bool:
    return len(values) > 1 and values[-1] - values[0] == len(values) - 1


def _joined(parts: Iterable[str]) -> str:
    *most, last = parts
    if not most:
        return last
    return f"{', '.join(most)} and {last}"

"""A cron expression in plain English."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from django_ojs.spec.cron.fields import MONTHS, WEEKDAYS, DayKind, DayRule, Days

_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth")

#: As many times of a day are listed; more are described by their fields.
_MAX_TIMES: Final = 6


def describe(
    interval: timedelta | None,
    seconds: Sequence[int],
    minutes: Sequence[int],
    hours: Sequence[int],
    days: Days | None,
) -> str:
    """Return the words for an interval, or for the fields of an expression."""
    if interval is not None or days is None:
        return f"every {_duration(interval or timedelta())}"
    time, day = _time(seconds, minutes, hours), _day(days)
    if day == "every day" and (time.endswith("of every hour") or not time.startswith("at ")):
        return time
    return f"{day} {time}" if time.startswith("at ") else f"{time}, {day}"


def _duration(interval: timedelta) -> str:
    minutes, seconds = divmod(interval.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [
        f"{number:g} {unit}{'' if number == 1 else 's'}"
        for number, unit in ((hours, "hour"), (minutes, "minute"), (seconds, "second"))
        if number
    ]
    return _joined(parts) if len(parts) > 1 else parts[0].removeprefix("1 ")


def _time(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    exact = list(seconds) == [0]
    every_hour = len(hours) == 24
    if len(seconds) * len(minutes) * len(hours) <= _MAX_TIMES:
        return "at " + _joined(
            f"{h:02}:{m:02}" + ("" if exact else f":{s:02}")
            for h in hours
            for m in minutes
            for s in seconds
        )
    if not exact:
        second = _every(seconds, 60, "second") or _at("second", seconds)
        if every_hour and len(minutes) == 60:
            return second
        return f"{second} of {_of('minute', minutes, 60)} of {_of('hour', hours, 24)}"
    often = _every(minutes, 60, "minute")
    if often:
        return often if every_hour else f"{often} {_from(hours, minutes)}"
    if len(minutes) > 1:
        return f"{_at('minute', minutes)} of {_of('hour', hours, 24)}"
    hourly = _every(hours, 24, "hour") or (
        f"every hour {_from(hours, minutes)}" if _is_run(hours) else ""
    )
    if not hourly:
        return f"{_at('minute', minutes)} of {_of('hour', hours, 24)}"
    return hourly + (f" at minute {minutes[0]}" if minutes[0] and "from" not in hourly else "")


def _every(values: Sequence[int], size: int, unit: str) -> str:
    """Return "every 15 minutes" where that is the whole truth."""
    step = size // len(values)
    if len(values) > 1 and list(values) == list(range(0, size, step)):
        return f"every {unit}" if step == 1 else f"every {step} {unit}s"
    return ""


def _from(hours: Sequence[int], minutes: Sequence[int]) -> str:
    if _is_run(hours):
        return f"from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
    return f"of {_of('hour', hours, 24)}"


def _at(unit: str, values: Sequence[int]) -> str:
    return f"at {unit}{'' if len(values) == 1 else 's'} {_numbers(values)}"


def _of(unit: str, values: Sequence[int], size: int) -> str:
    if len(values) == size:
        return f"every {unit}"
    return f"{unit}{'' if len(values) == 1 else 's'} {_numbers(values)}"


def _day(days: Days) -> str:
    every_month = len(days.months) == 12
    months = _joined(MONTHS[month - 1] for month in days.months)
    any_day = {rule.value for rule in days.of_month if rule.kind is DayKind.DAY} >= set(
        range(1, 32)
    )
    any_weekday = {r.value for r in days.of_week if r.kind is DayKind.WEEKDAY} >= set(range(7))
    suffix = "" if every_month else f" in {months}"
    if any_day and any_weekday:
        return f"every day{suffix}"
    if any_weekday and not any_day:
        only = days.of_month[0]
        if len(days.of_month) == len(days.months) == 1 and only.kind is DayKind.DAY:
            return f"every year on {only.value} {months}"
        return f"{_of_month(days.of_month)}{suffix or ' of the month'}"
    if any_day:
        return f"{_of_week(days.of_week)}{suffix}"
    if days.either:
        both = f"{_of_month(days.of_month)} of the month and {_of_week(days.of_week)}"
    else:
        both = f"{_of_week(days.of_week)} that falls {_of_month(days.of_month)} of the month"
    return both + suffix


def _of_month(rules: Sequence[DayRule]) -> str:
    numbers = sorted({rule.value for rule in rules if rule.kind is DayKind.DAY})
    parts = [f"day{'' if len(numbers) == 1 else 's'} {_numbers(numbers)}"] if numbers else []
    for rule in rules:
        if rule.kind is DayKind.LAST_DAY:
            parts.append("the last day")
        elif rule.kind is DayKind.LAST_WORKDAY:
            parts.append("the last weekday")
        elif rule.kind is DayKind.NEAREST_WORKDAY:
            parts.append(f"the weekday nearest to day {rule.value}")
    return "on " + _joined(parts)


def _of_week(rules: Sequence[DayRule]) -> str:
    plain = {rule.value for rule in rules if rule.kind is DayKind.WEEKDAY}
    parts = []
    if plain == {1, 2, 3, 4, 5}:
        parts.append("every weekday")
    elif plain:
        # The week begins on Monday.
        ordered = sorted(plain, key=lambda weekday: weekday or 7)
        parts.append("every " + _joined(WEEKDAYS[weekday] for weekday in ordered))
    for rule in rules:
        weekday = WEEKDAYS[rule.value]
        if rule.kind is DayKind.NTH_WEEKDAY:
            parts.append(f"on the {_ORDINALS[rule.nth - 1]} {weekday} of the month")
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
    return f"{', '.join(most)} and {last}" if most else last

"""A cron expression in words, in the language of the reader."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.utils.dates import MONTHS, WEEKDAYS
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, npgettext, pgettext

from django_ojs.formatting import decimal
from django_ojs.spec.cron import CronExpression
from django_ojs.spec.cron.fields import DayKind, DayRule, Days

#: As many times of a day are listed; more are described by their fields.
_MAX_TIMES: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Time:
    """When it fires in a day, in words.

    `is_at`: they begin with "at", so that the day comes first. `hourly`: they say so of every hour.
    """

    words: str
    is_at: bool = False
    hourly: bool = False


def describe(expression: CronExpression, timezone_name: str | None = None) -> str:
    """Return an expression in words: "every weekday at 09:00 (Europe/Paris)"."""
    words = _words(expression)
    if not timezone_name:
        return words
    return _("%(schedule)s (%(timezone)s)") % {"schedule": words, "timezone": timezone_name}


def _words(expression: CronExpression) -> str:
    days = expression.days
    if expression.interval is not None or days is None:
        return _interval(expression.interval or timedelta())
    time = _time(expression.seconds, expression.minutes, expression.hours)
    is_any_day = _is_any_day(days) and _is_any_weekday(days) and len(days.months) == 12
    if is_any_day and (time.hourly or not time.is_at):
        return time.words
    values = {"day": _day(days), "time": time.words}
    if time.is_at:
        # Translators: `day` is such as "every weekday", `time` such as "at 09:00 and 17:30".
        return _("%(day)s %(time)s") % values
    # Translators: `time` is such as "every 15 minutes", `day` such as "every weekday".
    return _("%(time)s, %(day)s") % values


def _interval(interval: timedelta) -> str:
    minutes, seconds = divmod(interval.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    given = [
        (number, unit)
        for number, unit in ((hours, "hour"), (minutes, "minute"), (seconds, "second"))
        if number
    ]
    if len(given) == 1:
        ((number, unit),) = given
        plural, values = _plural(number), {"number": _number(number)}
        if unit == "hour":
            return _every_hour(number)
        if unit == "minute":
            return ngettext("every minute", "every %(number)s minutes", plural) % values
        return ngettext("every second", "every %(number)s seconds", plural) % values
    return _("every %(duration)s") % {"duration": _joined(_count(*each) for each in given)}


def _every_hour(number: float) -> str:
    text = ngettext("every hour", "every %(number)s hours", _plural(number))
    return text % {"number": _number(number)}


def _count(number: float, unit: str) -> str:
    plural, values = _plural(number), {"number": _number(number)}
    if unit == "hour":
        return npgettext("every", "%(number)s hour", "%(number)s hours", plural) % values
    if unit == "minute":
        return npgettext("every", "%(number)s minute", "%(number)s minutes", plural) % values
    return npgettext("every", "%(number)s second", "%(number)s seconds", plural) % values


def _plural(number: float) -> int:
    # A fraction is plural.
    return int(number) if number == int(number) else 2


def _number(number: float) -> str:
    return decimal(f"{number:g}")


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
        return _Time(words=_("at %(times)s") % {"times": times}, is_at=True)
    if not exact:
        return _with_seconds(seconds, minutes, hours)
    often = _every(minutes, 60, "minute")
    if often and every_hour:
        return _Time(words=often)
    if often and _is_run(hours):
        return _Time(words=_between(often, hours, minutes))
    if often:
        values = {"time": often, "hours": _of_hours(hours)}
        return _Time(words=_("%(time)s of %(hours)s") % values)
    if len(minutes) > 1:
        return _at_minutes(minutes, hours)
    hourly = _every(hours, 24, "hour")
    if not hourly and _is_run(hours):
        return _Time(words=_between(_every_hour(1), hours, minutes))
    if not hourly:
        return _at_minutes(minutes, hours)
    if not minutes[0]:
        return _Time(words=hourly)
    values = {"time": hourly, "minute": str(minutes[0])}
    return _Time(words=_("%(time)s at minute %(minute)s") % values)


def _with_seconds(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> _Time:
    often = _every(seconds, 60, "second")
    text = ngettext("at second %(numbers)s", "at seconds %(numbers)s", len(seconds))
    words = often or text % {"numbers": _numbers(seconds)}
    if len(hours) == 24 and len(minutes) == 60:
        return _Time(words=words, is_at=not often)
    values = {"time": words, "minutes": _of_minutes(minutes), "hours": _of_hours(hours)}
    return _Time(
        words=_("%(time)s of %(minutes)s of %(hours)s") % values,
        is_at=not often,
        hourly=len(hours) == 24,
    )


def _at_minutes(minutes: Sequence[int], hours: Sequence[int]) -> _Time:
    text = ngettext(
        "at minute %(numbers)s of %(hours)s", "at minutes %(numbers)s of %(hours)s", len(minutes)
    )
    return _Time(
        words=text % {"numbers": _numbers(minutes), "hours": _of_hours(hours)},
        is_at=True,
        hourly=len(hours) == 24,
    )


def _every(values: Sequence[int], size: int, unit: str) -> str:
    """Return "every 15 minutes" where that is the whole truth."""
    step = size // len(values)
    if len(values) < 2 or list(values) != list(range(0, size, step)):
        return ""
    if unit == "hour":
        return _every_hour(step)
    if unit == "minute":
        text = ngettext("every minute", "every %(number)s minutes", step)
    else:
        text = ngettext("every second", "every %(number)s seconds", step)
    return text % {"number": step}


def _between(often: str, hours: Sequence[int], minutes: Sequence[int]) -> str:
    return _("%(time)s from %(start)s to %(end)s") % {
        "time": often,
        "start": f"{hours[0]:02}:{minutes[0]:02}",
        "end": f"{hours[-1]:02}:{minutes[-1]:02}",
    }


def _of_hours(hours: Sequence[int]) -> str:
    if len(hours) == 24:
        return pgettext('after "of"', "every hour")
    text = npgettext('after "of"', "hour %(numbers)s", "hours %(numbers)s", len(hours))
    return text % {"numbers": _numbers(hours)}


def _of_minutes(minutes: Sequence[int]) -> str:
    if len(minutes) == 60:
        return pgettext('after "of"', "every minute")
    text = npgettext('after "of"', "minute %(numbers)s", "minutes %(numbers)s", len(minutes))
    return text % {"numbers": _numbers(minutes)}


def _is_any_day(days: Days) -> bool:
    found = {rule.value for rule in days.of_month if rule.kind is DayKind.DAY}
    return found >= set(range(1, 32))


def _is_any_weekday(days: Days) -> bool:
    found = {rule.value for rule in days.of_week if rule.kind is DayKind.WEEKDAY}
    return found >= set(range(7))


def _day(days: Days) -> str:
    words, needs_month = _day_words(days)
    if len(days.months) < 12:
        months = _joined(str(MONTHS[month]) for month in days.months)
        if needs_month and len(days.of_month) == len(days.months) == 1:
            only = days.of_month[0]
            if only.kind is DayKind.DAY:
                values = {"day": only.value, "month": months}
                return _("every year on %(day)s %(month)s") % values
        return _("%(day)s in %(months)s") % {"day": words, "months": months}
    return _("%(day)s of the month") % {"day": words} if needs_month else words


def _day_words(days: Days) -> tuple[str, bool]:
    """Return the days without the months, and whether they are days of a month alone."""
    if _is_any_weekday(days):
        if _is_any_day(days):
            return _("every day"), False
        return _of_month(days.of_month), True
    if _is_any_day(days):
        return _of_week(days.of_week), False
    values = {"days": _of_month(days.of_month), "weekdays": _of_week(days.of_week)}
    if days.either:
        return _("%(days)s of the month and %(weekdays)s") % values, False
    return _("%(weekdays)s that falls %(days)s of the month") % values, False


def _of_month(rules: Sequence[DayRule]) -> str:
    numbers = sorted({rule.value for rule in rules if rule.kind is DayKind.DAY})
    parts = []
    if numbers:
        text = npgettext('after "on"', "day %(numbers)s", "days %(numbers)s", len(numbers))
        parts.append(text % {"numbers": _numbers(numbers)})
    for rule in rules:
        if rule.kind is DayKind.LAST_DAY:
            parts.append(pgettext('after "on"', "the last day"))
        elif rule.kind is DayKind.LAST_WORKDAY:
            parts.append(pgettext('after "on"', "the last weekday"))
        elif rule.kind is DayKind.NEAREST_WORKDAY:
            text = pgettext('after "on"', "the weekday nearest to day %(day)d")
            parts.append(text % {"day": rule.value})
    return _("on %(days)s") % {"days": _joined(parts)}


def _of_week(rules: Sequence[DayRule]) -> str:
    plain = {rule.value for rule in rules if rule.kind is DayKind.WEEKDAY}
    parts = []
    if plain == {1, 2, 3, 4, 5}:
        parts.append(_("every weekday"))
    elif plain:
        # The week begins on Monday.
        ordered = sorted(plain, key=lambda weekday: weekday or 7)
        names = _joined(_weekday(weekday) for weekday in ordered)
        parts.append(_("every %(weekdays)s") % {"weekdays": names})
    for rule in rules:
        values = {"weekday": _weekday(rule.value)}
        if rule.kind is DayKind.NTH_WEEKDAY:
            parts.append(_nth_weekday(rule.nth) % values)
        elif rule.kind is DayKind.LAST_WEEKDAY:
            parts.append(_("on the last %(weekday)s of the month") % values)
    return _joined(parts)


def _nth_weekday(nth: int) -> str:
    return (
        _("on the first %(weekday)s of the month"),
        _("on the second %(weekday)s of the month"),
        _("on the third %(weekday)s of the month"),
        _("on the fourth %(weekday)s of the month"),
        _("on the fifth %(weekday)s of the month"),
    )[nth - 1]


def _weekday(number: int) -> str:
    # Django counts from Monday, cron from Sunday.
    return str(WEEKDAYS[(number - 1) % 7])


def _numbers(values: Sequence[int]) -> str:
    if len(values) > 2 and _is_run(values):
        return _("%(first)s to %(last)s") % {"first": values[0], "last": values[-1]}
    return _joined(str(value) for value in values)


def _is_run(values: Sequence[int]) -> bool:
    return len(values) > 1 and values[-1] - values[0] == len(values) - 1


def _joined(parts: Iterable[str]) -> str:
    *most, last = parts
    if not most:
        return last
    return _("%(first)s and %(last)s") % {"first": ", ".join(most), "last": last}

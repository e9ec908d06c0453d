"""When a cron expression fires: wall-clock matches, mapped to moments (ojs-cron §3-§5).

A small evaluator of our own, because the established libraries break the rules of daylight saving
time (§5.2): croniter and cronsim move a skipped 02:30 to 03:00, and croniter fires a repeated one
twice.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from django_ojs.extensions.cron.spec.fields import HOUR, MINUTE, SECOND, CronExpressionError, Days
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.spec.times import LATEST, MAX_DURATION

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

#: How far a search goes: longer than the 40 years between two 29 February on the same weekday.
SEARCH_YEARS: Final = 100

MAX_LENGTH: Final = 255

_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h))+", re.ASCII)
_COMPONENT: Final = re.compile(r"([\d.]+)(ms|s|m|h)", re.ASCII)
_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One match of an expression.

    `at` is the moment, `wall` what clocks in the timezone show. `skipped` is "dst_skip" if no clock
    shows `wall`, because daylight saving time begins; then `at` is the moment at which it begins.
    """

    at: datetime
    wall: datetime
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed expression. `text` is as it was written, without outer spaces.

    `interval` is the duration of `@every`, else None. The next occurrence of an interval is the
    previous one plus the interval, in elapsed time and without regard to the timezone; the first is
    the time of registration plus the interval. An interval below a second becomes a second, because
    schedules are not evaluated more often (ojs-cron §7.3).
    """

    text: str
    interval: timedelta | None = field(default=None, compare=False)
    seconds: tuple[int, ...] = field(default=(), compare=False)
    minutes: tuple[int, ...] = field(default=(), compare=False)
    hours: tuple[int, ...] = field(default=(), compare=False)
    days: Days | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str) -> "CronExpression":
        """Parse five fields, six with seconds first, an alias, or `@every` with a duration.

        Raises CronExpressionError, also for an expression that would never fire.
        """
        text = text.strip()
        if not text:
            raise CronExpressionError(
                "expression", "is missing. Write five fields: 0 9 * * MON-FRI."
            )
        if len(text) > MAX_LENGTH:
            raise CronExpressionError("expression", f"use at most {MAX_LENGTH} characters.")
        if text.startswith("@"):
            word, *rest = text.split()
            if word.lower() == "@every":
                return cls(text, interval=_parse_interval("".join(rest)))
            if rest or word.lower() not in ALIASES:
                raise CronExpressionError(
                    "expression",
                    f"{word[:20]} is no alias. {did_you_mean(word, [*ALIASES, '@every'])}",
                )
        fields = ALIASES.get(text.lower(), text).split()
        if len(fields) not in (5, 6):
            raise CronExpressionError(
                "expression",
                f"the number of fields is {len(fields)}. Write five (minute, hour, day of month, "
                "month, day of week), or six with the second first.",
            )
        *second, minute, hour, day_of_month, month, day_of_week = fields
        return cls(
            text,
            seconds=tuple(sorted(SECOND.values(second[0]))) if second else (0,),
            minutes=tuple(sorted(MINUTE.values(minute))),
            hours=tuple(sorted(HOUR.values(hour))),
            days=Days.parse(day_of_month, month, day_of_week),
        )

    def __str__(self) -> str:
        return self.text

    @property
    def warning(self) -> str | None:
        """What the author of a valid expression may not expect (ojs-cron §3.5)."""
        if self.days is None or not self.days.rare:
            return None
        return (
            f"Not every chosen month has the day {self.days.rare}, and it does not fire on "
            "another day instead. L is the last day of each month."
        )

    def occurrences(self, after: datetime, timezone: ZoneInfo) -> Iterator[Occurrence]:
        """Iterate over the matches after a moment, in order, for a hundred years.

        A time that clocks show twice, when daylight saving time ends, matches only the first time.
        For an interval, `after` is the previous occurrence.
        """
        if after.utcoffset() is None:
            raise ValueError("occurrences() needs an aware datetime")
        after = after.astimezone(UTC)
        if self.interval is not None:
            yield from _repeat(self.interval, after, timezone)
            return
        gap_end: datetime | None = None
        gap_at = after
        for wall in self._walls(_first_wall(after, timezone)):
            if gap_end is not None and wall < gap_end:
                yield Occurrence(gap_at, wall, "dst_skip")
                continue
            at = wall.replace(tzinfo=timezone).astimezone(UTC)
            if at <= after:
                continue
            if at.astimezone(timezone).replace(tzinfo=None) == wall:
                yield Occurrence(at, wall)
                continue
            # With fold=1, the offset that holds after the gap applies, which leads to a time before
            # the gap.
            before = wall.replace(tzinfo=timezone, fold=1).astimezone(UTC)
            gap_at = _transition(before, at, timezone)
            gap_end = _wall(gap_at, timezone)
            yield Occurrence(gap_at, wall, "dst_skip")

    def _walls(self, start: datetime) -> Iterator[datetime]:
        for year, month, day in self._dates(start.date()):
            if (year, month, day) == (start.year, start.month, start.day):
                times = self._times(start.hour, start.minute, start.second)
            else:
                times = self._times(0, 0, 0)
            for hour, minute, second in times:
                yield datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - a wall clock

    def _dates(self, start: date) -> Iterator[tuple[int, int, int]]:
        days = self.days
        assert days is not None
        # The last year of datetime is left out: it has no room for the offset of a timezone.
        for year in range(start.year, min(start.year + SEARCH_YEARS, 9999)):
            for month in days.months:
                if year == start.year and month < start.month:
                    continue
                found = days.in_month(year, month, date(year, month, 1).isoweekday() % 7)
                if year == start.year and month == start.month:
                    found = found[bisect_left(found, start.day) :]
                for day in found:
                    yield year, month, day

    def _times(self, hour: int, minute: int, second: int) -> Iterator[tuple[int, int, int]]:
        """Iterate over the times of a day from this one."""
        for h in self.hours[bisect_left(self.hours, hour) :]:
            first_minute = bisect_left(self.minutes, minute) if h == hour else 0
            for m in self.minutes[first_minute:]:
                same = h == hour and m == minute
                for s in self.seconds[bisect_left(self.seconds, second) if same else 0 :]:
                    yield h, m, s


def _parse_interval(text: str) -> timedelta:
    if not _DURATION.fullmatch(text):
        raise CronExpressionError(
            "interval", "write a duration of hours, minutes and seconds: @every 1h30m."
        )
    interval = timedelta()
    for number, unit in _COMPONENT.findall(text):
        interval += float(number) * _UNITS[unit]
        if interval > MAX_DURATION:
            raise CronExpressionError("interval", "use at most 1000 years.")
    if not interval:
        raise CronExpressionError("interval", "use a duration above zero: @every 30s.")
    return max(interval, timedelta(seconds=1))


def _repeat(interval: timedelta, at: datetime, timezone: ZoneInfo) -> Iterator[Occurrence]:
    while interval <= LATEST - at:
        at += interval
        yield Occurrence(at, _wall(at, timezone))


def _wall(at: datetime, timezone: ZoneInfo) -> datetime:
    return at.astimezone(timezone).replace(tzinfo=None, fold=0)


def _first_wall(after: datetime, timezone: ZoneInfo) -> datetime:
    """Return the first wall-clock time that can match after a moment.

    Within an hour that clocks show for the second time, this is the end of that hour.
    """
    local = after.astimezone(timezone)
    if local.fold:
        first = local.replace(fold=0)
        at = _transition(first.astimezone(UTC), after, timezone)
        offset = first.utcoffset()
        assert offset is not None
        local = at + offset
    return local.replace(tzinfo=None, fold=0, microsecond=0)


def _transition(low: datetime, high: datetime, timezone: ZoneInfo) -> datetime:
    """Return the moment between these two at which the offset of a timezone changes."""
    old = low.astimezone(timezone).utcoffset()
    base = low.replace(microsecond=0)
    left, right = 0, int((high - base).total_seconds()) + 1
    while right - left > 1:
        middle = (left + right) // 2
        if (base + timedelta(seconds=middle)).astimezone(timezone).utcoffset() == old:
            left = middle
        else:
            right = middle
    return base + timedelta(seconds=right)

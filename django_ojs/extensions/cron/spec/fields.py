"""The fields of a cron expression: which values each one allows and matches (ojs-cron §3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class CronExpressionError(ValueError):
    """An expression or a timezone is invalid; `field` names the invalid part.

    `message` says what is wrong and what to write instead.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field.replace('_', ' ')}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class CronField:
    """The values of one field: numbers from low to high, and names for some of them."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)

    def values(self, text: str) -> frozenset[int]:
        """Return what a whole field matches, without `L`, `W` and `#`."""
        return frozenset(value for item in self.items(text) for value in self.item_values(item))

    def items(self, text: str) -> list[str]:
        """Return the parts of a list."""
        found = text.split(",")
        if "" in found:
            raise self.error("a value of the list is missing. Write a list as 1,15.")
        return found

    def item_values(self, item: str) -> Iterable[int]:
        """Return what one part of a list matches: a value, a range, `*`, with a step or without."""
        body, slash, step = item.partition("/")
        if body == "*":
            low, high = self.low, self.high
        else:
            first, dash, last = body.partition("-")
            low = self.value(first)
            # As in Quartz: 5/15 begins at 5 and continues to the end of the field.
            high = self._last_value(last, low) if dash else self.high if slash else low
        if low > high:
            raise self.error(
                f"the range {body} ends before it begins. To go on from the start of the field, "
                f"write {low}-{self.high},{self.low}-{high}."
            )
        return range(low, high + 1, self._step(step) if slash else 1)

    def value(self, text: str) -> int:
        """Return the number that a number or a name stands for."""
        number = self.names.get(text.upper())
        if number is None and text.isascii() and text.isdigit():
            number = int(text[:9])
        if number is None:
            raise self.error(f"{_shown(text)} is no value. Use {self._allowed()}.")
        if not self.low <= number <= self._largest():
            raise self.error(f"{_shown(text)} is out of range. Use {self._allowed()}.")
        return number

    def error(self, message: str) -> CronExpressionError:
        return CronExpressionError(self.name, message)

    def _last_value(self, text: str, low: int) -> int:
        return self.value(text)

    def _largest(self) -> int:
        return self.high

    def _step(self, text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise self.error(f"{_shown(text)} is not a step. Write a step as */15.")
        step = int(text[:9])
        size = self.high - self.low + 1
        if not 1 <= step <= size:
            raise self.error(
                f"the step {_shown(text)} is out of range. Use 1 to {size}, or @every for an "
                "interval that does not fit into this field."
            )
        return step

    def _allowed(self) -> str:
        numbers = f"{self.low} to {self._largest()}"
        if not self.names:
            return numbers
        first, *_names, last = self.names
        return f"{numbers}, or {first} to {last}"


@dataclass(frozen=True, slots=True)
class _WeekdayField(CronField):
    """Sunday is 0 and 7: `*` goes from 0 to 6, and a range may end with either."""

    def _largest(self) -> int:
        return 7

    def _last_value(self, text: str, low: int) -> int:
        return CronField.value(self, text) or (7 if low else 0)


def _short(names: Iterable[str], start: int) -> dict[str, int]:
    return {name[:3].upper(): number for number, name in enumerate(names, start)}


SECOND: Final = CronField("second", 0, 59)
MINUTE: Final = CronField("minute", 0, 59)
HOUR: Final = CronField("hour", 0, 23)
DAY_OF_MONTH: Final = CronField("day_of_month", 1, 31)
MONTH: Final = CronField("month", 1, 12, _short(MONTHS, 1))
DAY_OF_WEEK: Final = _WeekdayField("day_of_week", 0, 6, _short(WEEKDAYS, 0))


class DayKind(Enum):
    """What a rule says about the days of a month."""

    DAY = "a day of the month"
    LAST_DAY = "the last day of the month"
    LAST_WORKDAY = "the last day from Monday to Friday"
    NEAREST_WORKDAY = "the day from Monday to Friday that is nearest to a day of the month"
    WEEKDAY = "every such day of the week"
    NTH_WEEKDAY = "the nth such day of the week in the month"
    LAST_WEEKDAY = "the last such day of the week in the month"


@dataclass(frozen=True, slots=True)
class DayRule:
    """One rule of the day fields. `value` is a day of the month, or of the week (0 is Sunday)."""

    kind: DayKind
    value: int = 0
    nth: int = 0

    def days(self, first: int, length: int) -> Iterable[int]:
        """Return the days of a month of this length whose first day is this day of the week."""
        match self.kind:
            case DayKind.DAY:
                return (self.value,) if self.value <= length else ()
            case DayKind.LAST_DAY:
                return (length,)
            case DayKind.LAST_WORKDAY:
                return (_nearest_workday(length, first, length),)
            case DayKind.NEAREST_WORKDAY:
                return (
                    (_nearest_workday(self.value, first, length),) if self.value <= length else ()
                )
            case _:
                found = range(1 + (self.value - first) % 7, length + 1, 7)
                if self.kind is DayKind.NTH_WEEKDAY:
                    return found[self.nth - 1 : self.nth]
                return found if self.kind is DayKind.WEEKDAY else found[-1:]


def is_either_enough(of_month: str, of_week: str) -> bool:
    """Whether a day has to match only one of the day fields; see `Days`."""
    return not (of_month.startswith("*") or of_week.startswith("*"))


@dataclass(frozen=True, slots=True)
class Days:
    """The days that both day fields match together.

    If both are restricted, a day has to match only one of them, as in crontab(5). A field that
    begins with `*` is not restricted; then a day must match both.
    """

    months: tuple[int, ...]
    of_month: tuple[DayRule, ...]
    of_week: tuple[DayRule, ...]
    either: bool
    #: The largest day of the month that is named and that some of the months do not have, or 0.
    rare: int = 0
    _cache: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, of_month: str, month: str, of_week: str) -> "Days":
        months = tuple(sorted(MONTH.values(month)))
        found = cls(
            months,
            _rules_of_month(of_month),
            _rules_of_week(of_week),
            either=is_either_enough(of_month, of_week),
            rare=_rare_day(of_month, months),
        )
        # Each month begins on each day of the week in some year.
        if not any(
            found.of(first, length)
            for month_number in months
            for length in ((28, 29) if month_number == 2 else (_LENGTHS[month_number],))
            for first in range(7)
        ):
            raise DAY_OF_MONTH.error(
                "no chosen month has such a day, so this would never fire. Choose a day that "
                "exists, or L for the last day of the month."
            )
        return found

    def in_month(self, year: int, month: int, first: int) -> tuple[int, ...]:
        """Return the matching days of a month; `first` is the day of the week it begins with."""
        leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return self.of(first, _LENGTHS[month] + leap)

    def of(self, first: int, length: int) -> tuple[int, ...]:
        """Return the matching days of a month by its first day of the week and its length."""
        found = self._cache.get((first, length))
        if found is None:
            of_month = {day for rule in self.of_month for day in rule.days(first, length)}
            of_week = {day for rule in self.of_week for day in rule.days(first, length)}
            both = of_month | of_week if self.either else of_month & of_week
            found = self._cache[first, length] = tuple(sorted(both))
        return found


_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _rules_of_month(text: str) -> tuple[DayRule, ...]:
    found: list[DayRule] = []
    for item in DAY_OF_MONTH.items(text):
        special = item.upper()
        if special == "L":
            found.append(DayRule(DayKind.LAST_DAY))
        elif special == "LW":
            found.append(DayRule(DayKind.LAST_WORKDAY))
        elif special.endswith("W"):
            day = DAY_OF_MONTH.value(special[:-1])
            found.append(DayRule(DayKind.NEAREST_WORKDAY, day))
        else:
            found += (DayRule(DayKind.DAY, day) for day in DAY_OF_MONTH.item_values(item))
    return tuple(found)


def _rare_day(of_month: str, months: Iterable[int]) -> int:
    shortest = min(_LENGTHS[month] for month in months)
    named = [item.upper().removesuffix("W") for item in DAY_OF_MONTH.items(of_month)]
    return max((int(day) for day in named if day.isdigit() and int(day) > shortest), default=0)


def _rules_of_week(text: str) -> tuple[DayRule, ...]:
    found: list[DayRule] = []
    for item in DAY_OF_WEEK.items(text):
        special = item.upper()
        if special == "L":
            raise DAY_OF_WEEK.error("L needs a day of the week. Write 5L for the last Friday.")
        day, sharp, nth = special.partition("#")
        if sharp:
            if nth not in {"1", "2", "3", "4", "5"}:
                raise DAY_OF_WEEK.error(f"{_shown(nth)} is not a week. Use #1 to #5.")
            found.append(DayRule(DayKind.NTH_WEEKDAY, DAY_OF_WEEK.value(day) % 7, int(nth)))
        elif special.endswith("L"):
            value = DAY_OF_WEEK.value(special[:-1]) % 7
            found.append(DayRule(DayKind.LAST_WEEKDAY, value))
        else:
            found += (DayRule(DayKind.WEEKDAY, day % 7) for day in DAY_OF_WEEK.item_values(item))
    return tuple(found)


def _nearest_workday(day: int, first: int, length: int) -> int:
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else 3
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 20 else text[:20] + "...")

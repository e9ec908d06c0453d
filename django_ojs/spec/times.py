"""Timestamps (RFC 3339) and durations (ISO 8601): parsed in every dialect, formatted in one.

No accepted value overflows: a moment can be converted to any timezone, and a duration can be added
to any moment of the next six thousand years.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from django_ojs.spec.errors import InvalidRequest

# A day inside the range of datetime, so that no offset (at most a day) leaves the range.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)

#: The longest duration: a thousand years of 365 days.
MAX_DURATION: Final = timedelta(days=365_000)

_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(?:\.(\d{1,32}))?(?:([Zz])|([+-])(\d\d):(\d\d))?",
    re.ASCII,
)

_NOTHING: Final = timedelta(0)
_MILLISECOND: Final = timedelta(milliseconds=1)

_RANGE: Final = "must be a number between zero and 1000 years"
_SECOND: Final = 1_000_000
# Years and months have no fixed length: they count as 365 and 30 days, as docs/reference says.
_UNITS: Final = (
    365 * 86_400 * _SECOND,
    30 * 86_400 * _SECOND,
    7 * 86_400 * _SECOND,
    86_400 * _SECOND,
    3_600 * _SECOND,
    60 * _SECOND,
    _SECOND,
)
_N: Final = r"(\d{1,15}(?:[.,]\d{1,15})?)"
_ISO: Final = re.compile(
    rf"P(?!$)(?:{_N}Y)?(?:{_N}M)?(?:{_N}W)?(?:{_N}D)?(?:T(?!$)(?:{_N}H)?(?:{_N}M)?(?:{_N}S)?)?",
    re.ASCII,
)
_SHORT: Final = re.compile(rf"{_N}(ms|s|m|h|d)", re.ASCII)
_SHORT_UNITS: Final = {
    "ms": 1_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3_600 * _SECOND,
    "d": 86_400 * _SECOND,
}


def parse_timestamp(text: str, field: str) -> datetime:
    """Return the moment that an RFC 3339 timestamp names, in UTC. Raises InvalidRequest.

    Any offset is accepted, a missing one is rejected; digits beyond the microsecond are cut off.
    """
    found = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRequest.of(field, "must be an RFC 3339 timestamp such as 2030-01-31T09:30:00Z")
    date, minute, second, fraction, utc, sign, hours, minutes = found.groups()
    if utc is None and sign is None:
        raise InvalidRequest.of(field, "must end with Z or an offset such as +02:00")
    if sign is not None and (int(hours) > 23 or int(minutes) > 59):
        raise InvalidRequest.of(field, "must have an offset between -23:59 and +23:59")
    # RFC 3339 has leap seconds, datetime does not: 23:59:60 is the first moment of the next minute.
    leap = second == "60"
    try:
        moment = datetime.fromisoformat(f"{date}T{minute}:{'59' if leap else second}+00:00")
    except ValueError:
        raise InvalidRequest.of(field, "must be a date and a time that exist") from None
    shift = timedelta(seconds=leap)
    if fraction:
        shift += timedelta(microseconds=int(fraction[:6].ljust(6, "0")))
    if sign is not None:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        shift += -offset if sign == "+" else offset
    if EARLIEST <= moment <= LATEST:  # only then is the sum safe
        moment += shift
        if EARLIEST <= moment <= LATEST:
            return moment
    raise _out_of_range(field)


def format_timestamp(moment: datetime) -> str:
    """Return an aware moment as RFC 3339 in UTC, with `Z` and milliseconds (cut, not rounded)."""
    if moment.tzinfo is not UTC:
        if moment.utcoffset() is None:
            raise ValueError("format_timestamp() needs an aware datetime")
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def elapsed(start: datetime, end: datetime) -> timedelta:
    """Return the time that has passed from one aware datetime to another.

    The result is 0 if the end is before the start, which happens if a clock is set back, or if
    two machines took the times. Python subtracts the clock times of two datetimes in the same time
    zone, such as those of a database with a `TIME_ZONE`. That is an hour off if daylight saving
    time begins or ends between them.
    """
    if start.tzinfo is not UTC or end.tzinfo is not UTC:
        start, end = start.astimezone(UTC), end.astimezone(UTC)
    return end - start if end > start else _NOTHING


def milliseconds_between(start: datetime, end: datetime) -> int:
    """Return the whole milliseconds that have passed from one aware datetime to another."""
    return elapsed(start, end) // _MILLISECOND


def parse_duration(value: object, field: str) -> timedelta:
    """Return the timedelta of an ISO 8601 duration, a short form ("5m", "500ms") or a timedelta.

    The last component may have a fraction. The duration must not be negative, nor longer than
    MAX_DURATION. Raises InvalidRequest.
    """
    if isinstance(value, timedelta):
        return _bounded(value, field)
    if isinstance(value, str):
        short = _SHORT.fullmatch(value)
        if short is not None:
            number, unit = short.groups()
            return _from_microseconds(_microseconds(number, _SHORT_UNITS[unit]), field)
        found = _ISO.fullmatch(value)
        if found is not None:
            parts = [
                (n, unit) for n, unit in zip(found.groups(), _UNITS, strict=True) if n is not None
            ]
            if all(number.isdigit() for number, _ in parts[:-1]):
                return _from_microseconds(sum(_microseconds(n, unit) for n, unit in parts), field)
    raise InvalidRequest.of(field, "must be an ISO 8601 duration such as PT30S")


def parse_seconds(value: object, field: str) -> timedelta:
    """Return a number of seconds, or a duration as `parse_duration` takes it. Raises as it does."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise InvalidRequest.of(field, _RANGE) from None
    return parse_duration(value, field)


def parse_milliseconds(value: object, field: str) -> timedelta:
    """Return a number of milliseconds as a timedelta. Raises InvalidRequest."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _bounded(timedelta(milliseconds=value), field)
        except (InvalidRequest, OverflowError, ValueError):
            pass
    raise InvalidRequest.of(field, _RANGE)


def format_duration(duration: timedelta) -> str:
    """Return a duration as ISO 8601 in hours, minutes and seconds: PT24H, PT1M0.5S, PT0S.

    Raises ValueError.
    """
    # Hours are used instead of days, in any number, because every parser must know H, M and S
    # (ojs-retry §4.2).
    total = duration // timedelta(microseconds=1)
    if total < 0:
        raise ValueError("a duration is not negative")
    minutes, microseconds = divmod(total, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    seconds, fraction = divmod(microseconds, _SECOND)
    text = "PT"
    if hours:
        text += f"{hours}H"
    if minutes:
        text += f"{minutes}M"
    if fraction:
        text += f"{seconds}.{fraction:06d}".rstrip("0") + "S"
    elif seconds or not total:
        text += f"{seconds}S"
    return text


def parse_when(value: object, field: str) -> datetime | timedelta:
    """Return a moment in UTC; for a timedelta or a relative "+PT2S", the time from now.

    Raises InvalidRequest, for a naive datetime as well.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidRequest.of(
                field,
                "is a naive datetime: use django.utils.timezone.now() or make_aware()",
            )
        if not EARLIEST <= value <= LATEST:
            raise _out_of_range(field)
        return value.astimezone(UTC)
    if isinstance(value, timedelta):
        return _bounded(value, field)
    if isinstance(value, str):
        if value.startswith("+"):
            return parse_duration(value[1:], field)
        return parse_timestamp(value, field)
    raise InvalidRequest.of(
        field,
        "must be an RFC 3339 timestamp with an offset, or relative such as +PT5M",
    )


def _microseconds(number: str, unit: int) -> int:
    whole, _, fraction = number.replace(",", ".").partition(".")
    result = int(whole) * unit
    if fraction:
        result += int(fraction) * unit // 10 ** len(fraction)
    return result


def _from_microseconds(total: int, field: str) -> timedelta:
    if total > MAX_DURATION // timedelta(microseconds=1):
        raise InvalidRequest.of(field, "must be at most 1000 years")
    return timedelta(microseconds=total)


def _bounded(value: timedelta, field: str) -> timedelta:
    if value < timedelta(0):
        raise InvalidRequest.of(field, "must not be negative")
    if value > MAX_DURATION:
        raise InvalidRequest.of(field, "must be at most 1000 years")
    return value


def _out_of_range(field: str) -> InvalidRequest:
    return InvalidRequest.of(field, "must lie between the years 1 and 9999")

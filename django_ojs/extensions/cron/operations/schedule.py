"""When a cron job is due: its expression, evaluated in its timezone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from django_ojs.extensions.cron.operations import description
from django_ojs.extensions.cron.spec import (
    CronExpression,
    CronExpressionError,
    Occurrence,
    check_timezone,
)

#: The most missed occurrences that are counted. If there are more, their number is not known.
MOST_PASSED: Final = 1_000

_MICROSECOND: Final = timedelta(microseconds=1)

#: A site may evaluate ten thousand schedules again and again, and parsing is the slower part.
parse_expression: Final = lru_cache(maxsize=16_384)(CronExpression.parse)


@dataclass(frozen=True, slots=True)
class Times:
    """When a cron job is due next: the next occurrence, and the next one that is not skipped."""

    due_at: datetime | None
    next_run_at: datetime | None


NEVER: Final = Times(None, None)


@dataclass(frozen=True, slots=True)
class Passed:
    """The occurrences of a cron job that are due now, and its next ones.

    A job is enqueued for `fires_at`, the earliest that is not skipped. `missed` is how many more
    are due, the first of them at `missed_from`; with `is_cut` there may be more. `gaps`
    are the wall-clock times that a change to summer time skips, each as the moment of the change.
    """

    fires_at: datetime | None = None
    missed_from: datetime | None = None
    missed: int = 0
    is_cut: bool = False
    gaps: list[datetime] = field(default_factory=list)
    next: Times = NEVER


def first(expression: str, timezone: str, now: datetime) -> Times:
    """Return when a cron job that is registered or enabled now is due. Raises CronExpressionError.

    The interval of `@every` counts from now.
    """
    return _times(_after(expression, timezone, now))


def passed(
    expression: str, timezone: str, due_at: datetime, now: datetime, *, is_skipped: bool = False
) -> Passed:
    """Return the occurrences of a cron job that has been due since `due_at`.

    `is_skipped` says that `due_at` is the moment of a change to summer time, which skips the
    occurrence. Otherwise the cron job fires at `due_at`, even if its expression has changed since
    and does not match. An interval counts from the occurrence before, so that its times do not
    drift. Raises CronExpressionError.
    """
    due_at, now = due_at.astimezone(UTC), now.astimezone(UTC)
    interval = parse_expression(expression).interval
    if interval is not None:
        missed = (now - due_at) // interval
        following = due_at + (missed + 1) * interval
        return Passed(
            fires_at=due_at,
            missed_from=due_at + interval if missed else None,
            missed=missed,
            next=Times(following, following),
        )
    # `due_at` itself is included, because skipped times have the moment of the change, at which
    # another time may fire.
    occurrences = _after(expression, timezone, due_at - _MICROSECOND)
    until_now = list(islice(takewhile(lambda each: each.at <= now, occurrences), MOST_PASSED + 1))
    fires = [each.at for each in until_now if each.skipped is None]
    if not is_skipped and due_at not in fires[:1]:
        fires.insert(0, due_at)
    return Passed(
        fires_at=fires[0] if fires else None,
        missed_from=fires[1] if len(fires) > 1 else None,
        missed=max(0, len(fires) - 1),
        is_cut=len(until_now) > MOST_PASSED,
        gaps=[each.at for each in until_now if each.skipped is not None],
        next=first(expression, timezone, now),
    )


def is_late(expression: str, timezone: str, now: datetime, due_at: datetime) -> bool:
    """Whether at least two occurrences are before the next time at which a cron job is due."""
    interval = parse_expression(expression).interval
    if interval is not None:
        return due_at - now >= 2 * interval
    following = list(islice(_after(expression, timezone, now), 2))
    return len(following) == 2 and following[1].at < due_at


def _after(expression: str, timezone: str, after: datetime) -> Iterator[Occurrence]:
    zone: ZoneInfo = check_timezone(timezone)
    return parse_expression(expression).occurrences(after, zone)


def _times(occurrences: Iterator[Occurrence]) -> Times:
    earliest = next(occurrences, None)
    if earliest is None:
        return NEVER
    real = next((each for each in chain([earliest], occurrences) if each.skipped is None), None)
    return Times(earliest.at, None if real is None else real.at)


def describe(expression: str, timezone: str) -> str:
    """Return a schedule in words, or the expression itself if it cannot be evaluated any more."""
    try:
        return description.describe(parse_expression(expression), timezone)
    except CronExpressionError:
        return f"{expression} ({timezone})"

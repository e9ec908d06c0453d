"""Limits on how many jobs run at once and how many start in a period (ojs-rate-limiting §5, §6).

The limits of a queue are in its configuration; the limits of a key are sent with each job.

A window is a sliding one: no period of its length has more starts than its limit, wherever it
begins. A throttle is the generic cell rate algorithm (GCRA): starts are evenly spaced.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from math import ceil
from typing import Any, Final, Self

from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.times import parse_duration

#: No limit, as a number of jobs.
UNLIMITED: Final = sys.maxsize

#: The largest limit of a rate.
MAX_STARTS: Final = 1_000_000_000


class OnLimit(StrEnum):
    """What is done with a job that meets a limit."""

    WAIT = "wait"
    #: It is scheduled for when the limit is expected to have room.
    RESCHEDULE = "reschedule"
    #: It is discarded.
    DROP = "drop"


#: A window divides its period into this many parts, and counts the starts in each as if they were
#: at the end of the part, so a window opens up to a fiftieth of its period late, and never early.
PARTS: Final = 50

#: A throttle makes up for starts that it missed within this many milliseconds, because a worker
#: does not claim more often than that. A slower throttle allows one start at a time.
TOLERANCE_MS: Final = 100


def check_number(value: object, field: str, *, least: int = 1) -> None:
    """Check a number of jobs or of starts. Raises InvalidRequest."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_STARTS:
        raise InvalidRequest.of(field, f"must be an integer from {least} to {MAX_STARTS}")


def check_on_limit(value: object, field: str) -> None:
    """Check the name of an action. Raises InvalidRequest."""
    if value not in list(OnLimit):
        raise InvalidRequest.of(field, f"must be one of {', '.join(OnLimit)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A number of starts in a period."""

    limit: int
    period_ms: int

    @classmethod
    def of(cls, limit: int, period: str) -> Self:
        """Return the rate of a checked limit and period."""
        return cls(limit=limit, period_ms=max(1, parse_duration(period, "") // _MILLISECOND))


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimit:
    """All limits of a queue or of a job, which apply together. None and () mean no limit."""

    concurrency: int | None = None
    windows: tuple[Rate, ...] = ()
    throttles: tuple[Rate, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self | None:
        """Return the limits of a checked queue configuration, or None if it has none."""
        given = values.get("rate_limit") or {}
        at_once = [n for n in (values.get("concurrency"), given.get("concurrency")) if n]
        windows = [_rate(given), _rate(given.get("rate"))]
        if given.get("max_per_second"):
            windows.append(Rate(limit=given["max_per_second"], period_ms=1000))
        throttle = _rate(given.get("throttle"))
        found = cls(
            concurrency=min(at_once, default=None),
            windows=tuple(window for window in windows if window is not None),
            throttles=() if throttle is None else (throttle,),
        )
        return None if found == cls() else found

    @classmethod
    def of_job(cls, policy: Mapping[str, Any]) -> Self:
        """Return the limits of a checked policy of a job; a concurrency of 0 holds all (§6.2)."""
        members = ("rate", "throttle", "max_per_second")
        found = cls.of({"rate_limit": {name: policy.get(name) for name in members}}) or cls()
        return replace(found, concurrency=policy.get("concurrency"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Starts:
    """When jobs started, as far as rates need it; times are in milliseconds since 1970.

    `windows` has, by the period, the starts within it as (time, number). `throttles` has, by the
    interval, when the next start is due (the theoretical arrival time of GCRA).
    """

    windows: Mapping[int, tuple[tuple[int, int], ...]]
    throttles: Mapping[float, float]

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Return the starts from the JSON of `render`."""
        windows = stored.get("windows") or {}
        throttles = stored.get("throttles") or {}
        return cls(
            windows={int(ms): tuple((at, n) for at, n in log) for ms, log in windows.items()},
            throttles={float(interval): due for interval, due in throttles.items()},
        )

    def render(self) -> dict[str, Any]:
        """Return the starts as JSON."""
        return {
            "windows": {
                str(ms): [list(entry) for entry in log] for ms, log in self.windows.items()
            },
            "throttles": {repr(interval): due for interval, due in self.throttles.items()},
        }

    def until(self, now: int) -> "Starts":
        """Return the starts, with those that are later than now moved to now.

        There are such starts after the clock was set back. The result has to be stored: starts that
        are moved for one decision only would never become older.
        """
        windows = {
            ms: tuple((min(at, _part_end(ms, now)), n) for at, n in log)
            for ms, log in self.windows.items()
        }
        throttles = {interval: min(due, now + interval) for interval, due in self.throttles.items()}
        return replace(self, windows=windows, throttles=throttles)

    def are_over(self, now: int) -> bool:
        """Whether no rate counts any of the starts any more."""
        return all(at <= now - ms for ms, log in self.windows.items() for at, _ in log) and all(
            due <= now for due in self.throttles.values()
        )

    def in_window(self, rate: Rate, now: int) -> int:
        """Return how many jobs started within the period of a rate."""
        return sum(n for _, n in self._log(rate, now))

    def window_moves_at(self, rate: Rate, now: int) -> int | None:
        """Return when the first of the starts within the period of a rate leaves it."""
        log = self._log(rate, now)
        return log[0][0] + rate.period_ms if log else None

    def room(self, limit: RateLimit, now: int) -> int:
        """Return how many jobs may start now, apart from the concurrency."""
        room = UNLIMITED
        for rate in limit.windows:
            room = min(room, rate.limit - self.in_window(rate, now))
        for rate in limit.throttles:
            room = min(room, self._due(rate, now))
        return max(0, room)

    def next_at(self, limit: RateLimit, now: int) -> int:
        """Return when a job may start as far as the rates decide; this may be `now`."""
        times = [now]
        for rate in limit.windows:
            left = self.in_window(rate, now)
            for at, n in self._log(rate, now):
                if left < rate.limit:
                    break
                left -= n
                times.append(at + rate.period_ms)
        times += [ceil(self._arrival(rate, now)) for rate in limit.throttles]
        return max(times)

    def after(self, limit: RateLimit, number: int, now: int) -> "Starts":
        """Return the starts with `number` new ones now, without old ones that no rate needs."""
        windows = {}
        for rate in limit.windows:
            end = _part_end(rate.period_ms, now)
            log = [*self._log(rate, now)]
            if log and log[-1][0] >= end:
                at, before = log.pop()
                log.append((at, before + number))
            else:
                log.append((end, number))
            windows[rate.period_ms] = tuple(log)
        throttles = {}
        for rate in limit.throttles:
            interval = _interval(rate)
            throttles[interval] = self._arrival(rate, now) + number * interval
        return replace(self, windows=windows, throttles=throttles)

    def after_one_of_key(self, limit: RateLimit, now: int) -> "Starts":
        """Return the starts with one more now, of a key whose jobs may have different limits.

        The start counts for each rate that a job of the key had, as long as that rate needs its
        starts.
        """
        if not (self.windows or self.throttles or limit.windows or limit.throttles):
            return self
        used = [Rate(limit=1, period_ms=ms) for ms in self.windows]
        windows = {rate for rate in used if self._log(rate, now)} | set(limit.windows)
        started = self.after(replace(limit, windows=tuple(windows)), 1, now)
        others = {
            interval: max(due, now) + interval
            for interval, due in self.throttles.items()
            if due > now - interval
        }
        return replace(started, throttles={**others, **started.throttles})

    @property
    def expires_at(self) -> int:
        """The time from which no rate needs the starts."""
        ends = [at + ms for ms, log in self.windows.items() for at, _ in log]
        ends += [ceil(due + interval) for interval, due in self.throttles.items()]
        return max(ends, default=0)

    def _log(self, rate: Rate, now: int) -> list[tuple[int, int]]:
        log = self.windows.get(rate.period_ms, ())
        return [(at, n) for at, n in log if at > now - rate.period_ms]

    def _due(self, rate: Rate, now: int) -> int:
        behind = now - self._arrival(rate, now)
        return 0 if behind < 0 else int(behind / _interval(rate)) + 1

    def _arrival(self, rate: Rate, now: int) -> float:
        interval = _interval(rate)
        most = max(0, int(TOLERANCE_MS / interval) - 1)
        # After a long time without a start, starts of at most TOLERANCE_MS are made up for.
        return max(self.throttles.get(interval, float(now)), now - most * interval)


_MILLISECOND: Final = timedelta(milliseconds=1)


def _rate(given: Mapping[str, Any] | None) -> Rate | None:
    if not given or not given.get("limit") or given.get("period") is None:
        return None
    return Rate.of(given["limit"], given["period"])


def _part_end(period_ms: int, now: int) -> int:
    part = max(1, period_ms // PARTS)
    return (now // part + 1) * part - 1


def _interval(rate: Rate) -> float:
    return rate.period_ms / rate.limit

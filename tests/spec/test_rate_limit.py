"""Sliding windows and evenly spaced starts (ojs-rate-limiting §5.2, §5.3)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from django_ojs.extensions.limits.rate_limit import PARTS, Rate, RateLimit, Starts
from tests.cases import together

NOW = 1_800_000_000_000


def run(limit: RateLimit, *, seed: int, most: int, until: int) -> list[int]:
    """Start as many jobs as there is room for, at random times; return when each started."""
    dice = random.Random(seed)
    starts, now, started = Starts.parse({}), NOW, []
    while now < NOW + until:
        number = min(starts.room(limit, now), dice.randint(1, most))
        if number:
            starts = Starts.parse(starts.after(limit, number, now).render())
            started += [now] * number
        now += dice.randint(1, 40)
    return started


@together("seed", range(5))
@together("period", [100, 1000, 1234])
def test_no_period_has_more_starts_than_the_limit_wherever_it_begins(
    seed: int, period: int
) -> None:
    limit = RateLimit(windows=(Rate(limit=7, period_ms=period),))
    started = run(limit, seed=seed, most=5, until=20_000)
    for first in started:
        assert sum(first <= at < first + period for at in started) <= 7
    # Nearly all of the room is used: a window opens up to a part late, and a check comes up to 40
    # milliseconds after that.
    assert len(started) >= 0.9 * 7 * 20_000 / (period + period / PARTS + 40)


@pytest.mark.parametrize("seed", range(5))
def test_starts_of_a_throttle_are_spaced(seed: int) -> None:
    limit = RateLimit(throttles=(Rate(limit=10, period_ms=2000),))
    started = run(limit, seed=seed, most=5, until=20_000)
    assert min(b - a for a, b in pairwise(started)) >= 200
    assert len(started) >= 80


def test_a_fast_throttle_makes_up_for_the_last_tenth_of_a_second() -> None:
    limit = RateLimit(throttles=(Rate(limit=1000, period_ms=1000),))
    starts = Starts.parse({})
    assert starts.room(limit, NOW) == 1
    starts = starts.after(limit, 1, NOW)
    assert starts.room(limit, NOW) == 0
    assert starts.room(limit, NOW + 50) == 50
    assert starts.room(limit, NOW + 60_000) == 100


def test_starts_later_than_now_are_moved_to_now() -> None:
    limit = RateLimit(
        windows=(Rate(limit=2, period_ms=1000),), throttles=(Rate(limit=2, period_ms=3000),)
    )
    starts = Starts.parse({}).after(limit, 1, NOW)
    assert starts.until(NOW) == starts
    moved = starts.until(NOW - 3_600_000)
    assert moved == Starts.parse({}).after(limit, 1, NOW - 3_600_000)


def test_it_says_when_the_next_job_may_start() -> None:
    limit = RateLimit(
        windows=(Rate(limit=2, period_ms=1000),), throttles=(Rate(limit=2, period_ms=3000),)
    )
    starts = Starts.parse({})
    assert starts.next_at(limit, NOW) == NOW
    starts = starts.after(limit, 1, NOW)
    assert starts.next_at(limit, NOW) == NOW + 1500
    window = RateLimit(windows=limit.windows)
    full = Starts.parse({}).after(window, 2, NOW)
    at = full.next_at(window, NOW)
    assert NOW + 1000 <= at <= NOW + 1000 + 1000 // PARTS
    assert (full.room(window, at - 1), full.room(window, at)) == (0, 2)

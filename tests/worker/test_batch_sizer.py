"""The gauge: how many jobs to claim at a time."""

from __future__ import annotations

import pytest

from django_ojs.worker.batch_sizer import LARGEST, PATIENCE, Gauge


def having_seen(slots: int, *durations: float) -> Gauge:
    gauge = Gauge(slots)
    for duration in durations:
        gauge.saw(duration)
    return gauge


def test_a_worker_that_has_seen_nothing_claims_what_its_slots_take() -> None:
    gauge = Gauge(8)
    assert (gauge.target, gauge.wanted(0), gauge.wanted(5), gauge.wanted(8)) == (8, 8, 3, 0)


@pytest.mark.parametrize("slots", [1, 10, 64])
def test_long_jobs_are_not_claimed_ahead(slots: int) -> None:
    gauge = having_seen(slots, 5.0)
    assert gauge.wanted(slots) == 0
    assert gauge.wanted(slots - 1) == 1


@pytest.mark.parametrize("duration", [0.0, 1e-9, 0.0005, 0.003, 0.02])
def test_what_is_claimed_ahead_waits_no_longer_than_the_patience(duration: float) -> None:
    gauge = having_seen(4, duration)
    ahead = gauge.target - 4
    assert 0 <= ahead <= LARGEST
    assert ahead * duration / 4 <= PATIENCE


def test_one_claim_never_asks_for_more_than_the_largest_batch() -> None:
    assert having_seen(300, 0.0001).wanted(0) == LARGEST


def test_claims_come_in_batches_and_not_one_by_one() -> None:
    gauge = having_seen(1, 0.001)
    full = gauge.target
    assert full > 20
    assert gauge.wanted(full - 1) == 0
    assert gauge.wanted(full // 2 + 1) == 0
    assert gauge.wanted(full // 2) == full - full // 2


def test_a_free_slot_is_filled_however_many_answers_are_under_way() -> None:
    assert having_seen(10, 1.0).wanted(9) == 1


def test_a_long_job_among_short_ones_is_believed_at_once() -> None:
    gauge = having_seen(4, *[0.001] * 50)
    assert gauge.target > 50
    gauge.saw(2.0)
    assert gauge.target == 4


def test_short_jobs_after_long_ones_are_believed_within_some_dozens() -> None:
    gauge = having_seen(4, 0.5, *[0.0001] * 40)
    assert gauge.target > 100

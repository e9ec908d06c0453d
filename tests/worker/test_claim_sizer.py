"""The batch sizer: how many jobs to claim at a time."""

from __future__ import annotations

import pytest

from django_ojs.worker.claim_sizer import MAX_BATCH, MAX_SLOT_WAIT, ClaimSizer


def having_seen(slots: int, *durations: float) -> ClaimSizer:
    sizer = ClaimSizer(slots)
    for duration in durations:
        sizer.record(duration)
    return sizer


def test_a_worker_that_has_seen_nothing_claims_what_its_slots_take() -> None:
    sizer = ClaimSizer(8)
    assert (sizer.target, sizer.claim_size(0), sizer.claim_size(5), sizer.claim_size(8)) == (
        8,
        8,
        3,
        0,
    )


@pytest.mark.parametrize("slots", [1, 10, 64])
def test_long_jobs_are_not_claimed_ahead(slots: int) -> None:
    sizer = having_seen(slots, 5.0)
    assert sizer.claim_size(slots) == 0
    assert sizer.claim_size(slots - 1) == 1


@pytest.mark.parametrize("duration", [0.0, 1e-9, 0.0005, 0.003, 0.02])
def test_what_is_claimed_ahead_waits_no_longer_than_its_limit(duration: float) -> None:
    sizer = having_seen(4, duration)
    ahead = sizer.target - 4
    assert 0 <= ahead <= MAX_BATCH
    assert ahead * duration / 4 <= MAX_SLOT_WAIT


def test_jobs_without_a_handler_are_passed_by_in_growing_claims() -> None:
    sizer, claims = ClaimSizer(1), []
    while sum(claims) < 3_000:
        claims.append(sizer.claim_size(0))
        sizer.pass_by(claims[-1])
    assert claims[:4] == [1, 2, 4, 8]
    assert max(claims) == MAX_BATCH
    assert len(claims) < 20
    assert sizer.claim_size(1) == 0  # A handler runs.
    sizer.pass_by(0)
    assert sizer.claim_size(0) == 1


def test_one_claim_never_asks_for_more_than_the_largest_batch() -> None:
    assert having_seen(300, 0.0001).claim_size(0) == MAX_BATCH


def test_claims_come_in_batches_and_not_one_by_one() -> None:
    sizer = having_seen(1, 0.001)
    full = sizer.target
    assert full > 20
    assert sizer.claim_size(full - 1) == 0
    assert sizer.claim_size(full // 2 + 1) == 0
    assert sizer.claim_size(full // 2) == full - full // 2


def test_a_free_slot_is_filled_however_many_outcomes_are_not_stored_yet() -> None:
    assert having_seen(10, 1.0).claim_size(9) == 1


def test_a_long_job_among_short_ones_is_believed_at_once() -> None:
    sizer = having_seen(4, *[0.001] * 50)
    assert sizer.target > 50
    sizer.record(2.0)
    assert sizer.target == 4


def test_short_jobs_after_long_ones_are_believed_within_some_dozens() -> None:
    sizer = having_seen(4, 0.5, *[0.0001] * 40)
    assert sizer.target > 100

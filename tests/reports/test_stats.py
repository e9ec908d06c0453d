"""Totals and rates: from counts and rollups, never from the jobs."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.statistics import rollups, stats
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.spec.states import State
from tests.factories import HOUR, WorkerFactory, in_state, push
from tests.figures import note

pytestmark = [pytest.mark.django_db, pytest.mark.requirement("ADM-005")]


@pytest.fixture(autouse=True)
def nothing_noted(db: None) -> None:
    """Write what earlier tests left in memory, and forget it."""
    rollups.flush()
    Rollup.objects.all().delete()


def happened(queue: str, *, completed: int = 0, failed: int = 0, waited: float = 0.01) -> None:
    for _ in range(completed):
        note(rollups.COMPLETED, queue, "a.b", waited=waited, ran=0.02)
    if failed:
        note(rollups.FAILED, queue, "a.b", number=failed)
    rollups.flush()


def test_the_totals_hold_every_state_and_add_up_all_queues() -> None:
    for state in State:
        in_state(state)
    push()
    WorkerFactory(id="w")
    found = stats.totals()
    assert found.jobs == {state: 2 if state == "available" else 1 for state in State}
    assert (found.queues, found.workers) == (9, 1)
    assert found.uptime_seconds >= 0


def test_a_state_without_jobs_has_a_zero_in_the_totals() -> None:
    push()
    assert stats.totals().jobs == {state: int(state == "available") for state in State}


def test_rates_are_means_over_five_minutes() -> None:
    happened("one", completed=8, failed=1)
    happened("two", completed=1)
    found = stats.totals().rates
    assert (found.processed_per_minute, found.failed_per_minute) == (2.0, 0.2)


def test_what_is_longer_ago_does_not_count() -> None:
    happened("one", completed=8)
    Rollup.objects.update(minute=F("minute") - HOUR)
    assert stats.totals().rates.processed_per_minute == 0


def test_each_queue_has_its_own_rates_and_an_idle_one_has_zeros() -> None:
    happened("one", completed=10, waited=0.01)
    happened("two", failed=5)
    found = stats.rates(["one", "two", "idle"])
    assert [found[name].processed_per_minute for name in ("one", "two", "idle")] == [2.0, 1.0, 0.0]
    assert [found[name].failed_per_minute for name in ("one", "two", "idle")] == [0.0, 1.0, 0.0]
    assert 8 <= (found["one"].latency_ms["p50"] or 0) <= 16
    assert found["idle"].latency_ms == {"p50": None, "p95": None, "p99": None}


def test_percentiles_rise_with_their_share() -> None:
    histogram = [0] * rollups.BUCKETS
    histogram[4], histogram[10] = 90, 10
    found = stats.percentiles(histogram)
    assert 8 <= (found["p50"] or 0) <= 16
    assert 512 <= (found["p95"] or 0) < (found["p99"] or 0) <= 1024


def test_a_caller_limited_to_queues_gets_the_figures_of_these() -> None:
    push(queue="mine")
    push(queue="theirs")
    happened("theirs", completed=5)
    found = stats.totals(within=frozenset({"mine"}))
    assert (found.queues, found.jobs[State.AVAILABLE]) == (1, 1)
    assert found.rates.processed_per_minute == 0


def test_the_jobs_are_not_looked_at() -> None:
    push()
    with CaptureQueriesContext(connection) as queries:
        stats.totals()
        stats.rates(["default"])
    assert queries.captured_queries
    assert not any('"ojs_job"' in query["sql"] for query in queries)

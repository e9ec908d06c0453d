"""The figures of a queue: right, and had without counting jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs import hooks
from django_ojs.extensions.statistics import rollup_queries, rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.queue_statistics import statistics
from django_ojs.operations import ack, fail, queues
from django_ojs.spec.states import State
from django_ojs.storage.figures.oldest_available import oldest
from tests.factories import BOOM, active, age, in_state, push, read
from tests.model_factories import RollupFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def counted(django_capture_on_commit_callbacks: Any) -> Callable[[Callable[[], Any]], None]:
    """Do something, and write what it added to the figures."""

    def act(what: Callable[[], Any]) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            what()
        rollups.flush()

    rollups.flush()
    Rollup.objects.all().delete()
    return act


@pytest.mark.parametrize("zone", ["Etc/GMT-14", "UTC", "Etc/GMT+12"])
def test_the_sums_of_a_day_begin_at_midnight_utc_in_every_time_zone(zone: str) -> None:
    now = timezone.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    RollupFactory(queue="a", minute=midnight, completed=2, failed=1)
    RollupFactory(queue="a", minute=midnight - timedelta(minutes=1), completed=4, failed=4)
    with timezone.override(zone):
        assert rollup_queries.today("a") == (2, 1)


def test_an_idle_queue_has_figures_too() -> None:
    queues.create("a", {"max_size": 9})
    found = statistics("a")
    assert (found.completed_last_hour, found.failed_last_hour) == (0, 0)
    assert (found.avg_duration_ms, found.avg_wait_ms, found.throughput_per_second) == (
        None,
        None,
        0.0,
    )
    assert found.oldest_available_at is None
    assert found.status.config.backpressure.max_depth == 9


def test_what_happened_in_the_last_hour_is_added_up(
    counted: Callable[[Callable[[], Any]], None],
) -> None:
    held = [active(queue="a") for _ in range(3)]
    other = active(queue="b")
    age(held[0].id, timedelta(minutes=1))
    counted(lambda: ack.ack(held[0].id))
    counted(lambda: ack.ack(held[1].id))
    counted(lambda: fail.fail(held[2].id, BOOM))
    counted(lambda: ack.ack(other.id))
    found = statistics("a")
    assert (found.completed_last_hour, found.failed_last_hour) == (2, 1)
    shown = hooks.shown_of_queues(["a", "c"], to_operators=False)
    assert shown == {
        "a": {"completed_today": 2, "failed_today": 1},
        "c": {"completed_today": 0, "failed_today": 0},
    }
    assert found.throughput_per_second == pytest.approx(2 / 3600)
    assert found.avg_duration_ms is not None
    assert 15_000 < found.avg_duration_ms < 60_000  # one of two ran for a minute
    assert found.status.counts[State.COMPLETED] == 2
    assert statistics("b").completed_last_hour == 1


def test_what_is_longer_ago_than_an_hour_does_not_count(
    counted: Callable[[Callable[[], Any]], None],
) -> None:
    held = active(queue="a")
    counted(lambda: ack.ack(held.id))
    Rollup.objects.update(minute=F("minute") - timedelta(minutes=61))
    found = statistics("a")
    assert (found.completed_last_hour, found.avg_duration_ms) == (0, None)


def test_the_oldest_available_job_is_found_whatever_its_priority() -> None:
    young, old, _ = (push(queue="a", priority=priority).pk for priority in (10, -5, 0))
    age(old, 60)
    age(young, 30)
    assert oldest(["a"])["a"] == read(old).enqueued_at
    in_state("scheduled", queue="b")
    assert "b" not in oldest(["b"])


def test_a_mean_is_as_near_as_its_histogram() -> None:
    histogram = [0] * rollups.BUCKETS
    assert rollup_queries.mean(histogram) is None
    histogram[rollups.bucket(0.2)] = 3
    mean = rollup_queries.mean(histogram)
    assert mean is not None
    assert 128 <= mean <= 256


@pytest.mark.postgresql
def test_no_figure_of_a_queue_reads_the_table_of_jobs() -> None:
    for state in ("retryable", "completed", "discarded", "available", "scheduled"):
        in_state(state, queue="a", priority=3)
    push(queue="a")
    with CaptureQueriesContext(connection) as captured:
        statistics("a")
        queues.listing()
        queues.get("a")
    touching = [each["sql"] for each in captured if re.search(r"\bojs_job\b", each["sql"])]
    assert touching
    with connection.cursor() as cursor:
        # So few rows are read as a whole by choice: the plan is what there would be with many.
        cursor.execute("SET LOCAL enable_seqscan = off")
        for sql in touching:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "ojs_job_claim" in plan
            assert "Seq Scan on ojs_job" not in plan

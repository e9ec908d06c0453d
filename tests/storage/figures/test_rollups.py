"""Figures by the minute: added up in memory, written now and then, folded later."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import NormalDist

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client, override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.models import Job
from django_ojs.operations import ack, expiry, fail
from django_ojs.operations.workers import rescue
from tests.factories import BOOM, HOUR, active, hourly, push, push_many
from tests.figures import note

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    rollups.flush()
    Rollup.objects.all().delete()
    yield
    rollups.flush()
    Rollup.objects.all().delete()


def written(queue: str) -> dict[str, int]:
    rollups.flush()
    found: dict[str, int] = {}
    for row in Rollup.objects.filter(queue=queue):
        for name in rollups.COLUMNS:
            found[name] = found.get(name, 0) + getattr(row, name)
    return {name: number for name, number in found.items() if number}


def test_enqueued_jobs_are_noted_by_queue_and_type() -> None:
    (queue,) = {job.queue for job in push_many(3, type="a.b")}
    push(queue=queue, type="a.c")
    rollups.flush()
    assert sorted(Rollup.objects.filter(queue=queue).values_list("type", "enqueued")) == [
        ("a.b", 3),
        ("a.c", 1),
    ]


def test_what_rolls_back_is_not_noted() -> None:
    with transaction.atomic():
        queue = push().queue
        transaction.set_rollback(True)
    assert written(queue) == {}


def test_failures_and_discards_are_noted() -> None:
    claimed = active(retry=hourly(max_attempts=2))
    fail.fail(claimed.id, BOOM)
    assert written(claimed.queue) == {"enqueued": 1, "failed": 1}
    last = active(retry=hourly(max_attempts=1))
    fail.fail(last.id, BOOM)
    assert written(last.queue) == {"enqueued": 1, "failed": 1, "discarded": 1}


def test_lost_and_expired_jobs_are_noted() -> None:
    lost = active("dead-worker", retry=hourly(max_attempts=1))
    rescue.rescue(["dead-worker"])
    assert written(lost.queue) == {"enqueued": 1, "failed": 1, "discarded": 1, "lost": 1}
    late = push(expires_at=datetime.now(UTC) + HOUR)
    Job.objects.filter(pk=late.pk).update(expires_at=datetime.now(UTC) - HOUR)
    expiry.expire()
    assert written(late.queue) == {"enqueued": 1, "discarded": 1}


def test_a_flush_inside_a_callers_transaction_waits_for_its_end() -> None:
    note(rollups.COMPLETED, "q", "t", waited=0.5, ran=0.002)
    with override_settings(), transaction.atomic():
        rollups.accumulator.written_at = -1e9
        rollups.flush_if_due()
        assert not Rollup.objects.filter(queue="q").exists()
    rollups.flush_if_due()
    (row,) = Rollup.objects.filter(queue="q")
    assert row.completed == 1
    assert row.waited[rollups.bucket(0.5)] == 1
    assert row.ran[rollups.bucket(0.002)] == 1
    note(rollups.COMPLETED, "q", "t")
    rollups.flush_if_due()
    assert Rollup.objects.filter(queue="q").count() == 1, "it was written a moment ago"


def test_the_end_of_a_request_writes_figures_that_are_due(client: Client) -> None:
    """Rejections: the enqueue that counts them may be in a transaction."""
    note(rollups.REJECTED, "q", "t")
    client.get("/ojs/health")
    assert not Rollup.objects.exists(), "they are not due"
    rollups.accumulator.written_at = -1e9
    with transaction.atomic():
        client.get("/ojs/health")
    assert not Rollup.objects.exists(), "they wait for the end of the transaction"
    client.get("/ojs/health")
    assert Rollup.objects.get(queue="q").rejected == 1


def test_a_connection_that_the_request_has_closed_is_closed_again() -> None:
    note(rollups.REJECTED, "q", "t")
    rollups.accumulator.written_at = -1e9
    connection.close()
    rollups.flush_after_request()
    assert connection.connection is None
    assert Rollup.objects.get(queue="q").rejected == 1


def test_figures_that_cannot_be_written_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*args: object, **kwargs: object) -> None:
        raise DatabaseError("secret")

    note(rollups.ENQUEUED, "q", "t")
    monkeypatch.setattr("django.db.models.query.QuerySet.bulk_create", reject)
    assert rollups.flush() == 0


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0, 0), (0.0009, 0), (0.001, 1), (0.0019, 1), (0.002, 2), (1, 10), (1e9, 23)],
)
def test_a_bucket_holds_a_factor_of_two(seconds: float, bucket: int) -> None:
    assert rollups.bucket(seconds) == bucket


@given(st.lists(st.floats(0, 4000), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_percentile_is_within_its_bucket(durations: list[float], share: float) -> None:
    histogram = [0] * rollups.BUCKETS
    for seconds in durations:
        histogram[rollups.bucket(seconds)] += 1
    exact = sorted(durations)[max(0, -(-int(share * 1e9) * len(durations) // 10**9) - 1)]
    found = rollups.percentile(histogram, share)
    assert found is not None
    assert abs(rollups.bucket(found * 0.999999) - rollups.bucket(exact)) <= 1


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_percentile_of_a_smooth_distribution_is_closer_than_its_bucket(share: float) -> None:
    shape = NormalDist(0, 0.8)
    for median in (40, 60, 90, 700, 5000):  # Milliseconds, at different places in a bucket.
        histogram = [0] * rollups.BUCKETS
        for n in range(1, 1000):
            histogram[rollups.bucket(median * math.exp(shape.inv_cdf(n / 1000)) / 1000)] += 1
        exact = median * math.exp(shape.inv_cdf(share)) / 1000
        assert rollups.percentile(histogram, share) == pytest.approx(exact, rel=0.08)


def test_there_is_no_percentile_of_nothing() -> None:
    assert rollups.percentile([0] * rollups.BUCKETS, 0.5) is None


def test_an_acknowledged_job_is_noted_with_its_durations() -> None:
    claimed = active()
    ack.ack(claimed.id)
    assert written(claimed.queue) == {"enqueued": 1, "completed": 1}
    row = Rollup.objects.get(queue=claimed.queue, completed=1)
    assert sum(row.waited) == sum(row.ran) == 1

"""What happened over time, by period."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs.extensions.statistics import history as history_module
from django_ojs.extensions.statistics import rollup_compaction, rollups
from django_ojs.extensions.statistics.history import Point, history
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollups import BUCKETS, bucket
from django_ojs.extensions.statistics.stats import percentiles
from django_ojs.spec.errors import InvalidRequest
from tests.figures import note
from tests.model_factories import RollupFactory

pytestmark = [pytest.mark.django_db, pytest.mark.requirement("ADM-R002")]

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def nothing_noted(db: None) -> None:
    rollups.flush()
    Rollup.objects.all().delete()


def histogram(*seconds: float) -> list[int]:
    found = [0] * BUCKETS
    for value in seconds:
        found[bucket(value)] += 1
    return found


def happened(minute: datetime, queue: str = "default", type: str = "a.b", **values: Any) -> None:
    RollupFactory(minute=minute, queue=queue, type=type, **values)


def completed(points: list[Point]) -> list[int]:
    return [point.completed for point in points]


def test_the_rows_of_a_period_are_added_up_and_empty_periods_are_there() -> None:
    happened(NOON, completed=1, enqueued=4, failed=2, discarded=1)
    happened(NOON, type="c.d", completed=2)
    happened(NOON + 4 * MINUTE, completed=3)
    happened(NOON + 5 * MINUTE, completed=5)
    found = history("5m", since=NOON, until=NOON + 15 * MINUTE)
    assert [point.timestamp for point in found] == [NOON + n * 5 * MINUTE for n in range(3)]
    assert completed(found) == [6, 5, 0]
    first = found[0]
    assert (first.enqueued, first.failed, first.discarded, first.processed) == (4, 2, 1, 8)


@pytest.mark.parametrize(
    ("period", "width"),
    [("1m", MINUTE), ("5m", 5 * MINUTE), ("1h", HOUR), ("1d", 24 * HOUR)],
)
def test_each_period_has_its_width(period: Any, width: timedelta) -> None:
    start = NOON.replace(hour=0)
    for n in range(3):
        happened(start + n * width, completed=n + 1)
        happened(start + (n + 1) * width - MINUTE, completed=10, type="c.d")
    found = history(period, since=start, until=start + 3 * width)
    assert [point.timestamp for point in found] == [start + n * width for n in range(3)]
    assert completed(found) == [11, 12, 13]


def test_histograms_are_added_number_by_number() -> None:
    happened(NOON, waited=histogram(0.01, 0.01), ran=histogram(1.0))
    happened(NOON + MINUTE, waited=histogram(0.01, 3.0), ran=histogram(1.0))
    (found,) = history("5m", since=NOON, until=NOON + 5 * MINUTE)
    assert found.waited == histogram(0.01, 0.01, 0.01, 3.0)
    assert found.ran == histogram(1.0, 1.0)
    assert 8 <= (percentiles(found.waited)["p50"] or 0) <= 16


def test_the_first_period_is_whole_and_until_is_not_part_of_it() -> None:
    happened(NOON, completed=1)
    happened(NOON + 5 * MINUTE, completed=2)
    assert completed(history("5m", since=NOON + 3 * MINUTE, until=NOON + 5 * MINUTE)) == [1]
    assert completed(history("5m", since=NOON, until=NOON + 6 * MINUTE)) == [1, 2]


def test_other_offsets_name_the_same_moments() -> None:
    from datetime import timezone

    happened(NOON, completed=1)
    there = timezone(timedelta(hours=5, minutes=30))
    (found,) = history("1h", since=NOON.astimezone(there), until=(NOON + HOUR).astimezone(there))
    assert (found.timestamp, found.completed) == (NOON, 1)


def test_a_queue_and_the_queues_of_the_caller_select() -> None:
    happened(NOON, "one", completed=1)
    happened(NOON, "two", completed=2)
    span: dict[str, Any] = {"since": NOON, "until": NOON + MINUTE}
    assert completed(history("1m", queue="two", **span)) == [2]
    assert completed(history("1m", within=frozenset({"one"}), **span)) == [1]
    assert completed(history("1m", queue="two", within=frozenset({"one"}), **span)) == [0]


def test_without_times_it_is_the_last_hour() -> None:
    note(rollups.ENQUEUED, "default", "a.b", number=3)
    rollups.flush()
    found = history()
    assert len(found) in (12, 13)
    assert sum(point.enqueued for point in found) == 3


@pytest.mark.django_db(transaction=True)
def test_what_this_process_has_not_written_for_long_is_written_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollups, "DUE", 0.0)
    note(rollups.ENQUEUED, "default", "a.b", number=3)
    assert sum(point.enqueued for point in history()) == 3


@pytest.mark.parametrize("until", [NOON, NOON - MINUTE])
def test_an_empty_time_is_rejected(until: datetime) -> None:
    with pytest.raises(InvalidRequest, match="since"):
        history("1m", since=NOON, until=until)


def test_a_history_is_bounded() -> None:
    end = NOON + history_module.MAX_POINTS * MINUTE
    assert len(history("1m", since=NOON, until=end)) == history_module.MAX_POINTS
    with pytest.raises(InvalidRequest, match="3000 periods"):
        history("1m", since=NOON, until=end + MINUTE)


def test_an_hour_whose_minutes_are_gone_stands_in_its_first_period() -> None:
    hour = (timezone.now() - rollup_compaction.MINUTES - 3 * HOUR).replace(
        minute=0, second=0, microsecond=0
    )
    for minute in (3, 40):
        happened(hour + minute * MINUTE, completed=2)
    assert rollup_compaction.coarsen() == 1
    found = completed(history("5m", since=hour, until=hour + HOUR))
    assert found == [4, *[0] * 11]


def test_the_jobs_are_not_looked_at() -> None:
    with CaptureQueriesContext(connection) as queries:
        history()
    assert queries.captured_queries
    assert not any('"ojs_job"' in query["sql"] for query in queries)

"""Rollups as they age."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from django_ojs.extensions.statistics import extension as statistics
from django_ojs.extensions.statistics import rollup_compaction, rollups
from django_ojs.extensions.statistics.models import Rollup
from tests.figures import note
from tests.model_factories import RollupFactory, histogram
from tests.other_session import Other, open_transaction
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def old(by: timedelta) -> datetime:
    """Return the beginning of the hour that was so long ago."""
    return (datetime.now(UTC) - by).replace(minute=0, second=0, microsecond=0)


def put(moment: datetime, *, queue: str = "q", number: int = 1) -> None:
    took = histogram(0.005, number)
    RollupFactory(minute=moment, queue=queue, completed=number, waited=took, ran=took)


def test_rows_of_a_minute_that_is_over_are_folded_into_one() -> None:
    for number in (1, 2, 3):
        note(rollups.COMPLETED, "q", "t", number=number, ran=0.01 * number)
        rollups.flush()
    note(rollups.COMPLETED, "q", "other")
    rollups.flush()
    assert rollup_compaction.fold() == 0, "writers may still be late with this minute"
    Rollup.objects.update(minute=datetime.now(UTC) - HOUR)
    assert statistics.fold() == 2
    row = Rollup.objects.get(queue="q", type="t")
    assert row.completed == 6
    assert sum(row.ran) == 3
    assert rollup_compaction.fold() == 0


def test_old_rows_are_pruned() -> None:
    note(rollups.ENQUEUED, "q", "t")
    rollups.flush()
    assert rollup_compaction.prune(HOUR) == 0
    Rollup.objects.update(minute=datetime.now(UTC) - timedelta(hours=2))
    assert rollup_compaction.prune(HOUR) == 1


def test_a_row_that_came_much_too_late_is_left_until_its_minutes_become_an_hour() -> None:
    moment = old(10 * HOUR)
    put(moment)
    put(moment)
    assert rollup_compaction.fold() == 0


def test_minutes_of_days_ago_become_hours() -> None:
    hour = old(rollup_compaction.MINUTES + 2 * HOUR)
    for minute in (0, 7, 59):
        put(hour + minute * MINUTE, number=minute + 1)
    put(hour + 7 * MINUTE)
    put(hour + 20 * MINUTE, queue="other")
    put(hour + HOUR, number=5)
    assert rollup_compaction.coarsen() == 3
    rows = {(row.queue, row.minute): row for row in Rollup.objects.all()}
    assert {key: row.completed for key, row in rows.items()} == {
        ("q", hour): 1 + 8 + 60 + 1,
        ("other", hour): 1,
        ("q", hour + HOUR): 5,
    }
    assert rows["q", hour].waited[3] == rows["q", hour].ran[3] == 70
    assert rollup_compaction.coarsen() == 0


def test_a_few_queues_at_a_time_the_oldest_hour_first() -> None:
    earlier, later = (
        old(rollup_compaction.MINUTES + 5 * HOUR),
        old(rollup_compaction.MINUTES + 2 * HOUR),
    )
    for hour in (later, earlier):
        for queue in ("a", "b", "c"):
            put(hour + MINUTE, queue=queue)
            put(hour + 2 * MINUTE, queue=queue)
    rounds = 0
    while rollup_compaction.coarsen(limit=2):
        rounds += 1
    assert rounds == 4
    assert sorted(Rollup.objects.values_list("minute", "queue", "completed")) == [
        (hour, queue, 2) for hour in (earlier, later) for queue in ("a", "b", "c")
    ]


def test_minutes_that_a_chart_may_still_ask_for_stay() -> None:
    # The hour that is partly that old: its last minutes are not.
    hour = old(rollup_compaction.MINUTES)
    put(hour + MINUTE)
    put(hour + 2 * MINUTE)
    assert rollup_compaction.coarsen() == 0
    assert Rollup.objects.count() == 2


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_part_of_the_rows_at_a_time(limit: int) -> None:
    for queue in ("a", "b", "c"):
        for number in (1, 2, 3):
            put(datetime.now(UTC) - HOUR, queue=queue, number=number)
    Rollup.objects.update(minute=old(HOUR))
    rounds = 0
    while rollup_compaction.fold(limit=limit):
        rounds += 1
    assert rounds == -(-3 // limit)
    assert sorted(Rollup.objects.values_list("queue", "completed")) == [
        ("a", 6),
        ("b", 6),
        ("c", 6),
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("age", "step"),
    [
        (HOUR, rollup_compaction.fold),
        (rollup_compaction.MINUTES + 2 * HOUR, rollup_compaction.coarsen),
        (2 * HOUR, lambda: rollup_compaction.prune(HOUR)),
    ],
    ids=["fold", "coarsen", "prune"],
)
def test_a_worker_that_lost_the_lease_in_a_step_holds_up_no_other(
    age: timedelta, step: Callable[[], int]
) -> None:
    for number in (1, 2, 3):
        put(old(age) + MINUTE, number=number)
    with open_transaction(step) as commit:
        put(old(age) + MINUTE, number=4)
        with Other() as other:
            assert other.do(step).result(BOUND) in (0, 1), "only what is not locked"
        commit()
    step()
    assert sum(Rollup.objects.values_list("completed", flat=True)) == 10
    assert sum(sum(ran) for ran in Rollup.objects.values_list("ran", flat=True)) == 10

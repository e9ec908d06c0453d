"""What happened in the last minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_ojs.extensions.statistics import rollup_queries
from django_ojs.extensions.statistics.queue_flows import flows
from tests.model_factories import RollupFactory

pytestmark = pytest.mark.django_db


def happened(minutes_ago: int, queue: str = "alpha", type: str = "t", **counts: int) -> None:
    RollupFactory(ago=timedelta(minutes=minutes_ago), queue=queue, type=type, **counts)


def test_a_flow_has_a_place_for_every_minute_and_adds_up_types_and_processes() -> None:
    happened(0, enqueued=1)
    happened(3, enqueued=2, completed=4, discarded=1, rejected=7)
    happened(3, type="other", enqueued=3)
    happened(59, completed=6)
    happened(61, enqueued=100)
    flow = flows(["alpha"])["alpha"]
    assert len(flow.came) == 60
    assert (flow.came[-1], flow.came[-4], sum(flow.came)) == (1, 5, 6)
    assert (flow.went[-4], flow.went[0]) == (5, 6)
    assert sum(flow.rejected) == 7


def test_a_rate_leaves_out_the_minute_that_is_not_over() -> None:
    happened(0, enqueued=1000)
    happened(1, enqueued=10)
    happened(5, enqueued=15)
    happened(6, enqueued=1000)
    assert flows(["alpha"])["alpha"].came_per_minute == 5


def test_a_minute_of_a_clock_that_is_ahead_is_left_out() -> None:
    happened(-3, enqueued=5)
    assert sum(flows(["alpha"])["alpha"].came) == 0


def test_failing_types_have_the_share_of_their_runs_and_the_last_time() -> None:
    happened(2, type="bad", failed=3, completed=1)
    happened(9, type="bad", failed=3, completed=5)
    happened(1, type="worse", failed=7)
    happened(1, type="fine", completed=100)
    worst, next_one = rollup_queries.failing()
    assert (worst.type, worst.share) == ("worse", 1.0)
    assert (next_one.type, next_one.failed, next_one.share) == ("bad", 6, 0.5)
    assert timezone.now() - next_one.last < timedelta(minutes=4)

"""`/ojs/v1/admin/stats` and its history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.spec.states import State
from tests.factories import WorkerFactory, in_state
from tests.figures import note
from tests.http.api import Api

pytestmark = pytest.mark.django_db

api = Api()


@pytest.fixture(autouse=True)
def nothing_noted(db: None) -> None:
    rollups.flush()
    Rollup.objects.all().delete()


@pytest.mark.requirement("ADM-005")
def test_the_totals_hold_every_state() -> None:
    for state in State:
        in_state(state)
    WorkerFactory(id="w")
    note(rollups.COMPLETED, "default", "a.b", number=5, waited=0.01, ran=0.01)
    rollups.flush()
    body = api.get("admin/stats").ok()
    assert (body["queues"], body["workers"]) == (8, 1)
    assert body["jobs"] == {state.value: 1 for state in State}
    assert body["throughput"] == {"processed_per_minute": 1.0, "failed_per_minute": 0.0}
    assert body["latency_ms"].keys() == {"p50", "p95", "p99"}
    assert isinstance(body["uptime_seconds"], int)


@pytest.mark.both
@pytest.mark.requirement("ADM-R002")
def test_the_history_has_a_point_a_period_with_figures_and_percentiles() -> None:
    now = datetime.now(UTC)
    note(rollups.ENQUEUED, "email", "a.b", number=3)
    note(rollups.FAILED, "email", "a.b")
    note(rollups.COMPLETED, "email", "a.b", waited=0.1, ran=0.2)
    rollups.flush()
    body = api.get("admin/stats/history?period=1m&queue=email").ok()
    assert body["period"] == "1m"
    assert len(body["data"]) in (60, 61)
    (point,) = [point for point in body["data"] if point["enqueued"]]
    assert (point["enqueued"], point["processed"], point["failed"]) == (3, 2, 1)
    assert point["latency_p50_ms"] <= point["latency_p95_ms"] <= point["latency_p99_ms"] <= 128
    assert datetime.fromisoformat(point["timestamp"]) >= now - timedelta(minutes=2)
    empty = body["data"][0]
    assert (empty["processed"], "latency_p50_ms" in empty) == (0, False)
    other = api.get("admin/stats/history?queue=other").ok()
    assert (other["period"], sum(point["enqueued"] for point in other["data"])) == ("5m", 0)


def test_a_day_in_hours() -> None:
    query = "period=1h&since=2030-01-01T00:00:00Z&until=2030-01-02T00:00:00%2B00:00"
    data = api.get(f"admin/stats/history?{query}").ok()["data"]
    assert len(data) == 24
    assert data[0]["timestamp"] == "2030-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "query",
    [
        "period=2m",
        "since=yesterday",
        "until=2020-01-01T00:00:00",
        "since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z",
        "period=1m&since=2020-01-01T00:00:00Z",
        "since=0001-01-02T00:00:00Z",
        "queue=UPPER",
        "queue=nul%00",
    ],
)
def test_a_query_that_makes_no_sense_is_400(query: str) -> None:
    api.get(f"admin/stats/history?{query}").error(400, "invalid_request")


@pytest.mark.both
@pytest.mark.parametrize("until", ["0001-01-02T00:00:00Z", "9999-12-30T00:00:00Z"])
def test_the_ends_of_time_have_a_history_too(until: str) -> None:
    data = api.get(f"admin/stats/history?period=1h&until={until}").ok()["data"]
    assert len(data) == 1

"""Pools and the order of queues over HTTP (ojs-fair-scheduling §5.2, §6, §10)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils import timezone

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.models import Worker
from tests.cases import together
from tests.factories import push, push_many
from tests.figures import note
from tests.http.api import Api, make_key

pytestmark = pytest.mark.django_db

api = Api()

POOLS: dict[str, Any] = {
    "critical": {"queues": {"pay": 3, "mail": 1}, "exclusive": True},
    "rest": {
        "queues": ["default", "low"],
        "strategy": "strict",
        "starvation_prevention": {"rotation_interval": 60},
    },
}
with_pools = override_settings(OJS={**settings.OJS, "POOLS": POOLS})


def fetched(status: int = 200, **body: Any) -> Counter[str]:
    """FETCH, and return how many jobs of each queue there were."""
    found = api.post("workers/fetch", {"worker_id": "w", **body}).ok(status)
    return Counter(job["queue"] for job in found["jobs"])


@pytest.mark.requirement("FS-003")
def test_a_worker_says_how_its_queues_share_it() -> None:
    for name in ("a", "b"):
        push_many(100, queue=name)
    both = {"queues": ["a", "b"]}
    assert fetched(**both, count=10) == {"a": 10}
    assert fetched(**both, count=10, strategy="strict") == {"a": 10}
    assert fetched(**both, count=10, strategy="round-robin") == {"a": 5, "b": 5}
    assert fetched(**both, count=8, strategy="weighted", weights={"b": 3}) == {"a": 2, "b": 6}
    one_by_one: Counter[str] = Counter()
    for _ in range(16):
        # The turns go on from request to request, and weights are the strategy weighted.
        one_by_one += fetched(**both, weights={"a": 1, "b": 3})
    assert one_by_one == {"a": 4, "b": 12}


@pytest.mark.once
@together(
    ("body", "field"),
    [
        ({"strategy": "least-loaded"}, "strategy"),
        ({"strategy": "weighted"}, "strategy"),
        ({"strategy": "strict", "weights": {"a": 2}}, "strategy"),
        ({"weights": {"b": 2}}, "weights"),
        ({"weights": {"a": 0}}, "weights"),
        ({"weights": {"a": "2"}}, "weights"),
        ({"weights": ["a"]}, "weights"),
        ({"pool": "gpu"}, "pool"),
        ({"pool": 5}, "pool"),
        ({"pool": "critical"}, "queues"),
        ({"pool": "rest", "worker_id": None, "queues": ["low"]}, "worker_id"),
        ({"pool": "rest", "queues": ["low", "pay"]}, "queues"),
    ],
    undo=True,
)
@with_pools
def test_a_fetch_that_cannot_be_served_names_its_field(body: dict[str, Any], field: str) -> None:
    sent = {"queues": ["a"], "worker_id": "w", **body}
    api.post("workers/fetch", sent).error(400, "invalid_request", field=field)
    assert not Worker.objects.exclude(pool="").exists()


@pytest.mark.requirement("FS-R006")
@with_pools
def test_only_a_worker_that_names_its_pool_gets_the_jobs_of_exclusive_queues() -> None:
    push_many(20, queue="pay")
    push_many(20, queue="mail")
    push(queue="default")
    named = {"queues": ["pay", "mail", "default"]}
    assert fetched(**named, count=10) == {"default": 1}
    # By FETCH: without queues, those of the pool, in its order.
    assert fetched(pool="critical", worker_id="c", count=4) == {"pay": 3, "mail": 1}
    assert Worker.objects.get(pk="c").pool == "critical"
    # Its word stays, and the order of the server takes precedence over the worker's.
    found = fetched(queues=["mail", "pay"], worker_id="c", count=4, strategy="strict")
    assert found.total() == 4
    assert found["pay"] >= 2
    # By BEAT.
    api.post("workers/heartbeat", {"worker_id": "b", "pool": "critical"}).ok()
    api.post("workers/heartbeat", {"worker_id": "b", "pool": "gpu"}).error(
        400, "invalid_request", field="pool"
    )
    assert fetched(queues=["mail"], worker_id="b", count=2) == {"mail": 2}
    # A worker belongs to one pool, the one that it named last.
    assert fetched(queues=["default"], pool="rest", worker_id="c") == {}
    assert Worker.objects.get(pk="c").pool == "rest"


@override_settings(OJS={"POOLS": POOLS})
def test_a_key_gets_the_queues_of_a_pool_that_it_is_for() -> None:
    push_many(5, queue="pay")
    push_many(5, queue="mail")
    mine = Api(make_key("worker", "operator", queues=("mail",)))
    body = {"pool": "critical", "worker_id": "m", "count": 9}
    found = mine.post("workers/fetch", body).ok()["jobs"]
    assert {job["queue"] for job in found} == {"mail"}
    mine.post("workers/fetch", body | {"queues": ["pay"]}).error(403, "PERMISSION_DENIED")
    mine.post("workers/fetch", body | {"pool": "rest"}).error(403, "PERMISSION_DENIED")
    # Another key does not change the pool of this one's worker.
    other = Api(make_key("worker", queues=("low",)))
    moved = {"pool": "rest", "queues": ["low"], "worker_id": "m"}
    other.post("workers/fetch", moved).error(403, "PERMISSION_DENIED", field="worker_id")
    assert Worker.objects.get(pk="m").pool == "critical"
    (shares,) = mine.get("admin/scheduling/stats").ok()["pools"]
    assert [share["name"] for share in shares["queues"]] == ["mail"]


@override_settings(OJS={"POOLS": POOLS})
def test_a_key_for_other_queues_takes_nothing_from_a_pool() -> None:
    push_many(3, queue="a")
    other = Api(make_key("worker", queues=("a",)))
    of_a = {"queues": ["a"], "worker_id": "other"}
    assert len(other.post("workers/fetch", of_a | {"count": 3}).ok()["jobs"]) == 3
    named = of_a | {"pool": "critical"}
    other.post("workers/fetch", named).error(400, "invalid_request", field="queues")
    other.post("workers/heartbeat", named).error(403, "PERMISSION_DENIED", field="pool")
    assert Worker.objects.get().pool == ""


@with_pools
def test_a_worker_leaves_its_pool_with_an_empty_name() -> None:
    push_many(4, queue="a")
    for path in ("workers/fetch", "workers/heartbeat"):
        api.post("workers/fetch", {"pool": "rest", "worker_id": "w"}).ok()
        api.post("workers/fetch", {"queues": ["a"], "worker_id": "w"}).error(
            400, "invalid_request", field="queues"
        )
        api.post(path, {"queues": ["a"], "worker_id": "w", "pool": ""}).ok()
        assert Worker.objects.get().pool == ""
        assert fetched(queues=["a"]) == {"a": 1}


@with_pools
def test_the_workers_are_listed_with_their_pool() -> None:
    api.post("workers/heartbeat", {"worker_id": "a", "pool": "critical"}).ok()
    api.post("workers/heartbeat", {"worker_id": "b"}).ok()
    listed = {row["id"]: row.get("pool") for row in api.get("admin/workers").ok()["items"]}
    assert listed == {"a": "critical", "b": None}


def test_a_project_without_pools_has_no_figures_of_them() -> None:
    assert api.get("admin/scheduling/stats").ok() == {"queues": [], "pools": [], "window": "PT1M"}


@pytest.mark.both
@pytest.mark.requirement("FS-R004")
@with_pools
def test_the_statistics_show_the_runs_of_each_queue_beside_its_weight() -> None:
    rollups.flush()
    Rollup.objects.all().delete()
    for queue, number in (("pay", 750), ("mail", 150), ("low", 600)):
        for _ in range(number):
            note(rollups.COMPLETED, queue, "a.b", waited=0.01, ran=0.01)
    note(rollups.FAILED, "mail", "a.b", number=100)
    rollups.flush()
    # As if a whole minute had the same runs: a clock that passes the minute changes no proportion.
    last = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    for row in list(Rollup.objects.all()):
        row.pk, row.minute = None, last
        row.save()
    push_many(3, queue="low")
    fetched(queues=["low"], count=3)
    found = api.get("admin/scheduling/stats").ok()
    assert found["window"] == "PT1M"
    by_name = {row["name"]: row for row in found["queues"]}
    assert set(by_name) == {"pay", "mail", "low", "default"}
    # The last sixty seconds: what this minute has so far, and a part of the one before.
    assert 750 <= by_name["pay"]["dispatch_count_1m"] <= 1500
    ratios = {name: row["dispatch_ratio_1m"] for name, row in by_name.items()}
    assert ratios == pytest.approx(
        {"pay": 750 / 1600, "mail": 250 / 1600, "low": 600 / 1600, "default": 0}, abs=0.001
    )
    assert 5 < by_name["pay"]["avg_wait_ms"] < 20
    assert "avg_wait_ms" not in by_name["default"]
    assert (by_name["low"]["active_jobs"], by_name["pay"]["active_jobs"]) == (3, 0)
    critical, rest = found["pools"]
    assert critical == {
        "name": "critical",
        "queues": [
            {"name": "pay", "weight": 3, "planned_ratio": 0.75, "dispatch_ratio_1m": 0.75},
            {"name": "mail", "weight": 1, "planned_ratio": 0.25, "dispatch_ratio_1m": 0.25},
        ],
    }
    # Strict has no plan, and no weights.
    assert rest["queues"][1] == {"name": "low", "weight": 1, "dispatch_ratio_1m": 1.0}

"""Of Level 4, what works today: priority, uniqueness, batches, pause, figures (§2.5)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.extensions.statistics import rollups
from django_ojs.storage import queue_configs
from tests.http.api import Api, stored

pytestmark = pytest.mark.django_db

api = Api()
JOB = {"type": "a", "args": []}


@pytest.mark.requirement("L4-PRI-001", "L4-PRI-003")
def test_the_three_names_stand_for_numbers_in_their_order() -> None:
    assert (ojs.HIGH, ojs.NORMAL, ojs.LOW) == (10, 0, -10)
    for priority in (ojs.LOW, ojs.NORMAL, ojs.HIGH):
        ojs.enqueue("a", [], priority=priority)
    # One at a time: what a FETCH returns together is sorted once more.
    fetched = [job["priority"] for _ in range(3) for job in api.fetch()]
    assert fetched == [ojs.HIGH, ojs.NORMAL, ojs.LOW]


@pytest.mark.requirement("L4-PRI-001", "L4-PRI-002")
def test_a_higher_number_goes_first_and_equal_ones_in_the_order_they_came() -> None:
    keys = [(p, api.push(priority=p)["id"]) for p in (0, -100, 100, 7, 7, 0)]
    wanted = [key for _, key in sorted(keys, key=lambda pair: -pair[0])]
    assert [job["id"] for _ in keys for job in api.fetch()] == wanted


@pytest.mark.requirement("L4-UNIQ-001")
@pytest.mark.parametrize(
    ("policy", "again", "same"),
    [
        ({"keys": ["type"]}, {"args": [2], "queue": "b"}, True),
        ({"keys": ["type"]}, {"type": "b"}, False),
        ({"keys": ["type", "queue"]}, {"queue": "b"}, False),
        ({"keys": ["type", "queue"]}, {"args": [2]}, True),
        ({"keys": ["type", "args"]}, {"args": [{"user": 1, "n": 2}]}, False),
        ({"keys": ["type", "args"], "args_keys": ["user"]}, {"args": [{"user": 1, "n": 2}]}, True),
        ({"keys": ["type", "args"], "args_keys": ["user"]}, {"args": [{"user": 2, "n": 1}]}, False),
    ],
)
def test_what_makes_a_job_the_same_can_be_chosen(
    policy: dict[str, Any], again: dict[str, Any], same: bool
) -> None:
    first = {"type": "a", "args": [{"user": 1, "n": 1}], "unique": policy}
    api.post("jobs", first).ok(201)
    assert api.post("jobs", first | again).status == (409 if same else 201)


@pytest.mark.requirement("L4-UNIQ-002")
def test_a_duplicate_is_rejected_and_the_first_one_is_named() -> None:
    unique = {"type": "a", "args": [], "unique": {"keys": ["type"], "on_conflict": "reject"}}
    key = api.post("jobs", unique).ok(201)["job"]["id"]
    api.post("jobs", unique).error(409, "duplicate", existing_job_id=key)
    assert stored() == 1


@pytest.mark.requirement("L4-UNIQ-003")
def test_the_manifest_says_how_strong_uniqueness_is() -> None:
    assert api.get("/ojs/manifest").ok()["unique_job_strength"] == "strong"


@pytest.mark.requirement("L4-BULK-001", "L4-BULK-002")
def test_a_thousand_jobs_are_one_request_and_all_or_none() -> None:
    jobs = [JOB | {"args": [n]} for n in range(1_000)]
    assert api.post("jobs/batch", {"jobs": jobs}).ok(201)["count"] == 1_000
    jobs[999] = {"type": "a"}
    api.post("jobs/batch", {"jobs": jobs}).error(400, "invalid_request", index=999)
    assert stored() == 1_000


@pytest.mark.requirement("L4-PAUSE-001", "L4-PAUSE-002")
def test_a_paused_queue_takes_jobs_and_hands_out_none_until_it_is_resumed() -> None:
    api.post("queues/default/pause").ok()
    key = api.push()["id"]
    assert api.fetch() == []
    api.post("queues/default/resume").ok()
    assert [job["id"] for job in api.fetch()] == [key]


@pytest.mark.requirement("L4-STATS-001")
@pytest.mark.django_db(transaction=True)
def test_the_figures_of_a_queue_have_each_state_and_what_was_done() -> None:
    done = api.active()["id"]
    api.post("workers/ack", {"job_id": done}).ok()
    for values in ({}, {"scheduled_at": "+PT1H"}, {"pending": True}):
        api.push(**values)
    rollups.flush()
    response = api.get("queues/default/stats").ok()
    states = response["queue"]
    assert response["stats"]["completed_last_hour"] == states["completed"] == 1
    assert states.items() >= {"available": 1, "scheduled": 1, "active": 0, "retryable": 0}.items()
    assert states.keys() >= {"completed", "discarded", "cancelled", "pending"}
    assert response["stats"]["depth"] == 2
    assert response["stats"]["throughput_per_second"] > 0


@pytest.mark.requirement("L4-RATE-001")
def test_the_first_fetch_after_a_queue_got_its_first_limit_returns_what_may_start() -> None:
    before = queue_configs.latest()
    limited = {"rate_limit": {"key": "acme", "concurrency": 2}}
    keys = [api.push(**limited)["id"] for _ in range(3)]
    # As in another process, which has just read the rules of all queues.
    queue_configs._snapshots.kept = replace(before, good_until=time.monotonic() + 600)
    assert [job["id"] for job in api.fetch(count=3)] == keys[:2]

"""Unique jobs over HTTP: the scenarios of ojs-unique-jobs §14, and every dialect of a policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from tests.cases import together
from tests.factories import age_all
from tests.http.api import Api, make_key, state_of, stored

pytestmark = pytest.mark.django_db

api = Api()


def wanted(on_conflict: str = "reject", **values: Any) -> dict[str, Any]:
    policy = {"keys": ["type", "args"], "on_conflict": on_conflict} | values.pop("policy", {})
    return {
        "type": "email.send",
        "args": [{"user_id": 42, "locale": "en"}],
        "unique": policy,
    } | values


@pytest.mark.requirement("CORE-7.1-6")
def test_a_rejected_duplicate_is_a_conflict_that_names_the_job_that_is_there() -> None:
    job = api.push(**wanted())
    error = api.post("jobs", wanted()).error(409, "duplicate")
    assert error["details"]["existing_job_id"] == job["id"]
    assert error["details"]["existing_job_state"] == "available"
    assert len(error["details"]["unique_key"]) == 64
    assert error["retryable"] is False
    assert "42" not in error["message"]


@pytest.mark.both
@pytest.mark.parametrize("word", ["ignore", "use_existing"])
def test_an_ignored_duplicate_is_a_success_with_the_job_that_is_there(word: str) -> None:
    job = api.push(**wanted(word))
    response = api.post("jobs", wanted(word, priority=5))
    assert response.ok(200) == {"job": job, "deduplicated": True}
    assert "Location" not in response.headers
    assert job["unique"]["on_conflict"] == "ignore"
    assert stored() == 1


def test_a_replaced_job_is_cancelled_and_the_new_one_created() -> None:
    old = api.push(**wanted())
    new = api.push(**wanted("replace", meta={"n": 2}))
    assert new["id"] != old["id"]
    assert (state_of(old["id"]), state_of(new["id"])) == ("cancelled", "available")
    assert api.info(old["id"])["cancelled_at"]


def test_replace_except_schedule_returns_the_time_as_it_was_first_sent() -> None:
    first = "2199-02-12T17:00:00+01:00"
    api.push(**wanted(scheduled_at=first))
    new = api.push(**wanted("replace_except_schedule", scheduled_at="2199-02-12T18:00:00Z"))
    assert (new["state"], new["scheduled_at"]) == ("scheduled", first)
    assert api.info(new["id"])["scheduled_at"] == first


def test_a_period_ends() -> None:
    short = {"policy": {"period": "PT1S"}}
    api.push(**wanted(**short))
    api.post("jobs", wanted(**short)).error(409, "duplicate")
    age_all(timedelta(seconds=2))
    api.push(**wanted(**short))


def test_a_completed_job_is_in_the_way_only_if_asked_for() -> None:
    job = api.active(**wanted())
    api.post("workers/ack", {"job_id": job["id"]}).ok()
    states = {"policy": {"states": ["available", "active", "completed"]}}
    api.post("jobs", wanted(**states)).error(409, "duplicate", existing_job_state="completed")
    api.push(**wanted())


def test_a_failed_job_that_will_run_again_is_in_the_way() -> None:
    job = api.active(**wanted())
    api.post("workers/nack", {"job_id": job["id"], "error": {"type": "E", "message": "m"}}).ok()
    api.post("jobs", wanted()).error(409, "duplicate", existing_job_state="retryable")


@together(
    ("policy", "field"),
    [
        ({"keys": ["meta"]}, "unique.meta_keys"),
        ({"keys": ["argz"]}, "unique.keys"),
        ({"args_keys": ["nobody"]}, "unique.args_keys"),
        ({"states": ["done"]}, "unique.states"),
        ({"on_conflict": "explode"}, "unique.on_conflict"),
        ({"period": "an hour"}, "unique.period"),
        ({"arg_keys": ["user_id"]}, "unique"),
    ],
    undo=True,
)
def test_an_invalid_policy_is_a_bad_request(policy: dict[str, Any], field: str) -> None:
    error = api.post("jobs", wanted(policy=policy)).error(400, "invalid_request")
    assert error["message"].startswith(f"{field} ")
    assert stored() == 0


def test_the_policies_of_the_other_documents_work() -> None:
    # conformance L4-002
    slow = {
        "type": "test.slow",
        "args": [5],
        "unique": {
            "key": [],
            "period": "PT1M",
            "on_conflict": "reject",
            "states": ["available", "active"],
        },
    }
    api.push(**slow)
    api.post("jobs", slow).error(409, "duplicate")
    api.push(**slow | {"args": [6]})
    # core §13.2, whose key names nothing in its args
    report = {
        "type": "report.generate",
        "args": [42, "quarterly", {"include_charts": True}],
        "unique": {"key": ["report_id"], "period": "3600s", "on_conflict": "reject"},
    }
    assert api.push(**report)["unique"]["key"] == ["report_id"]
    api.post("jobs", report).error(409, "duplicate")
    api.push(**report | {"args": [43, "quarterly", {"include_charts": True}]})


def test_a_batch_is_rejected_as_a_whole_with_the_place_of_the_duplicate() -> None:
    batch = {"jobs": [{"type": "a", "args": []}, wanted(), wanted()]}
    api.post("jobs/batch", batch).error(409, "duplicate", index=2)
    assert stored() == 0
    batch["jobs"][1:] = [wanted("ignore"), wanted("ignore")]
    response = api.post("jobs/batch", batch).ok(201)
    assert response["jobs"][1]["id"] == response["jobs"][2]["id"]
    assert stored() == 2


@override_settings(OJS={})
@pytest.mark.parametrize("on_conflict", ["ignore", "replace"])
def test_a_key_for_one_queue_reaches_no_job_of_another(on_conflict: str) -> None:
    theirs = Api(make_key("producer")).push(**wanted(queue="theirs"))
    kept = Api(make_key("producer", queues=("mine",)))
    reaching = wanted(on_conflict, queue="mine")
    for response in (kept.post("jobs", reaching), kept.post("jobs/batch", {"jobs": [reaching]})):
        error = response.error(403, "PERMISSION_DENIED", field="unique.keys")
        assert "unique.keys must have queue" in error["message"]
    assert state_of(theirs["id"]) == "available"
    kept.push(**wanted(on_conflict, queue="mine", policy={"keys": ["queue", "args"]}))

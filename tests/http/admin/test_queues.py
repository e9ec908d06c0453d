"""`/ojs/v1/admin/queues`: list, look, pause, resume, configure, purge."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from django_ojs.spec import times
from django_ojs.spec.states import State
from tests.cases import together
from tests.factories import HOUR, age, in_state, push
from tests.http.api import Api, stored

pytestmark = pytest.mark.django_db

api = Api()


def one_of_each(queue: str) -> None:
    # The available one last: it would be claimed for those that have to run first.
    for state in sorted(State, key=lambda state: state is State.AVAILABLE):
        in_state(state, queue=queue)


@pytest.mark.both
@pytest.mark.requirement("ADM-001")
def test_queues_are_listed_with_their_counts_by_state() -> None:
    one_of_each("email")
    push(queue="another")
    body = api.get("admin/queues").ok()
    assert body["pagination"] == {"total": 2, "page": 1, "per_page": 20}
    another, email = body["items"]
    assert another["name"] == "another"
    assert another["counts"] == {state.value: int(state == "available") for state in State}
    assert (email["name"], email["state"], email["paused"]) == ("email", "active", False)
    assert email["counts"] == {state.value: 1 for state in State}
    assert email["throughput"].keys() == {"processed_per_minute", "failed_per_minute"}
    assert email["latency_ms"].keys() <= {"p50", "p95", "p99"}


def test_neither_maintenance_nor_the_default_policy_is_a_queue() -> None:
    push(queue="real")
    api.post("admin/system/maintenance", {"enabled": True}).ok()
    assert [item["name"] for item in api.get("admin/queues").ok()["items"]] == ["real"]
    api.get("admin/queues/*").error(400, "invalid_request")
    api.get("admin/queues/_default").error(400, "invalid_request")


def test_a_queue_shows_its_configuration_and_how_long_its_oldest_job_waits() -> None:
    job = push(queue="email")
    age(job.pk, HOUR)
    push(queue="email", priority=5)
    body = api.get("admin/queues/email").ok()
    assert body["configuration"] == {}
    assert body["oldest_available_at"] < times.format_timestamp(timezone.now() - HOUR / 2)
    assert (body["name"], body["depth"]) == ("email", 2)


def test_a_queue_that_is_not_known_is_404_and_a_name_that_cannot_be_is_400() -> None:
    api.get("admin/queues/nothing").error(404, "not_found")
    api.get("admin/queues/UPPER").error(400, "invalid_request")
    api.get("admin/queues/" + "x" * 300).error(400, "QUEUE_NAME_TOO_LONG")
    api.get("admin/queues/nul%00").error(400, "invalid_request")


@pytest.mark.requirement("ADM-002")
@pytest.mark.parametrize("used", [True, False])
def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(used: bool) -> None:
    if used:
        api.push(options={"queue": "email"})
    paused = api.post("admin/queues/email/pause").ok()
    assert (paused["name"], paused["paused"], paused["state"]) == ("email", True, "paused")
    assert api.post("admin/queues/email/pause").ok()["paused_at"] == paused["paused_at"]
    api.push(options={"queue": "email"})
    assert api.fetch("email") == []
    assert api.get("admin/queues/email").ok()["state"] == "paused"
    resumed = api.post("admin/queues/email/resume").ok()
    assert (resumed["paused"], resumed["state"]) == (False, "active")
    assert resumed["resumed_at"].endswith("Z")
    assert len(api.fetch("email")) == 1


@pytest.mark.requirement("ADM-R006")
def test_a_configuration_is_merged_by_top_level_key_and_makes_the_queue() -> None:
    body = api.put("admin/queues/new/config", {"max_envelope_bytes": 30}).ok()
    assert (body["name"], body["configuration"]["max_envelope_bytes"]) == ("new", 30)
    api.put("admin/queues/new/config", {"retention": {"completed": "P14D"}}).ok()
    shown = api.get("admin/queues/new").ok()["configuration"]
    assert shown == {"max_envelope_bytes": 30, "retention": {"completed": "P14D"}}


@pytest.mark.parametrize("body", [{"concurrency": -1}, {"backpressure": []}, {"concurrency": True}])
def test_a_bad_configuration_is_400(body: dict[str, Any]) -> None:
    api.put("admin/queues/email/config", body).error(400, "invalid_request")


@pytest.mark.requirement("ADM-R001")
class TestPurge:
    def test_it_deletes_what_it_names_and_says_how_many(self) -> None:
        one_of_each("email")
        in_state("completed", queue="other")
        body = api.delete(
            "admin/queues/email/jobs", {"states": ["completed", "discarded"], "confirm": True}
        ).ok()
        assert body == {
            "purged_count": 2,
            "states": ["completed", "discarded"],
            "has_more": False,
        }
        assert stored() == 7

    @pytest.mark.both
    def test_an_age_spares_what_is_younger(self) -> None:
        in_state("completed", queue="email")
        body = {"states": ["completed"], "older_than": "2020-01-01T00:00:00Z", "confirm": True}
        assert api.delete("admin/queues/email/jobs", body).ok()["purged_count"] == 0
        body["older_than"] = "2100-01-01T00:00:00+02:00"
        assert api.delete("admin/queues/email/jobs", body).ok()["purged_count"] == 1

    @pytest.mark.parametrize("confirm", [{}, *({"confirm": v} for v in (False, "true", 1, None))])
    def test_without_the_literal_confirmation_nothing_happens(
        self, confirm: dict[str, Any]
    ) -> None:
        in_state("completed", queue="email")
        response = api.delete("admin/queues/email/jobs", {"states": ["completed"]} | confirm)
        response.error(400, "invalid_request", field="confirm")
        assert stored() == 1

    @together(
        ("body", "field"),
        [
            ({}, "states"),
            ({"states": []}, "states"),
            ({"states": "completed"}, "states"),
            ({"states": ["done"]}, "states"),
            ({"states": ["active"]}, "states"),
            ({"states": ["completed"], "older_than": "2020-01-01T00:00:00"}, None),
            ({"states": ["completed"], "older_than": 5}, "older_than"),
            ({"states": ["available"], "older_than": "2020-01-01T00:00:00Z"}, "older_than"),
        ],
        undo=True,
    )
    def test_what_is_ill_formed_is_400(self, body: dict[str, Any], field: str | None) -> None:
        one_of_each("email")
        response = api.delete("admin/queues/email/jobs", body | {"confirm": True})
        response.error(400, "invalid_request", **({"field": field} if field else {}))
        assert stored() == 8

    def test_a_body_is_needed_and_so_is_the_queue(self) -> None:
        api.delete("admin/queues/email/jobs").error(400, "invalid_payload")
        body = {"states": ["completed"], "confirm": True}
        api.delete("admin/queues/unknown/jobs", body).error(404, "not_found")

"""Queues over HTTP: listed, created, configured, paused, measured and deleted."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.test import override_settings

from django_ojs.operations import queues
from django_ojs.operations.maintenance import mode
from django_ojs.storage.figures import counts
from tests.cases import together
from tests.factories import active, in_state, push
from tests.http.api import Api, make_key

pytestmark = pytest.mark.django_db

api = Api()


def listed(**query: Any) -> tuple[list[str], Any]:
    parameters = "&".join(f"{name}={value}" for name, value in query.items())
    body = api.get(f"queues?{parameters}").ok()
    return [queue["name"] for queue in body["queues"]], body["pagination"]


class TestList:
    def test_no_queue_is_known_at_first(self) -> None:
        assert api.get("queues").ok() == {
            "queues": [],
            "pagination": {"total": 0, "limit": 50, "offset": 0, "has_more": False},
        }

    @pytest.mark.requirement("QC-01")
    def test_a_queue_is_known_by_its_first_job(self) -> None:
        api.push(queue="email")
        api.post("queues/reports/pause").ok()
        email, reports = api.get("queues").ok()["queues"]
        assert (email["name"], email["status"], email["paused"]) == ("email", "active", False)
        assert (email["state"], email["depth"]) == ("active", 1)
        assert (reports["name"], reports["status"]) == ("reports", "paused")
        assert reports["paused_at"]
        assert api.get("queues").ok()["queues"][0]["created_at"] == email["created_at"]

    def test_what_is_no_queue_is_not_listed(self) -> None:
        api.put("queues/_default/config", {"max_envelope_bytes": 1}).ok()
        mode.enable()
        assert listed()[0] == []


class TestCreate:
    @pytest.mark.requirement("QC-S01")
    def test_a_queue_is_created_with_its_configuration(self) -> None:
        config = {"max_size": 5, "retention": {"completed": "P3D"}, "colour": "blue"}
        response = api.post("queues", {"name": "payments", "config": config})
        body = response.ok(201)
        assert (body["name"], body["state"]) == ("payments", "active")
        assert body["config"] == {**config, "backpressure": {"max_depth": 5}}
        assert body["created_at"]
        assert api.get(response.headers["Location"]).ok()["config"] == body["config"]

    def test_a_queue_that_exists_is_a_conflict(self) -> None:
        push(queue="a")
        api.post("queues", {"name": "a"}).error(409, "conflict", queue="a")

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "name"),
            ({"name": "a", "config": []}, "config"),
            ({"name": "a", "config": {"concurrency": "x"}}, "config.concurrency"),
            ({"name": "a", "config": {"max_size": -1}}, "config.max_size"),
        ],
    )
    def test_what_makes_no_queue_is_rejected_by_name(self, body: Any, field: str) -> None:
        api.post("queues", body).error(400, "invalid_request", field=field)

    @together("name", ["_default", "*", "No", "", 5, ["a"]], undo=True)
    def test_only_a_name_that_jobs_can_have_makes_a_queue(self, name: Any) -> None:
        api.post("queues", {"name": name}).error(400, "invalid_request")

    def test_a_name_that_is_too_long_is_reported_as_such(self) -> None:
        api.post("queues", {"name": "q" * 256}).error(400, "QUEUE_NAME_TOO_LONG")


class TestDetail:
    @pytest.mark.both
    def test_a_queue_shows_its_configuration_and_figures(self) -> None:
        in_state("scheduled", queue="a")
        api.put("queues/a/config", {"max_envelope_bytes": 4}).ok()
        body = api.get("queues/a").ok()
        assert (body["name"], body["state"], body["config"]) == (
            "a",
            "active",
            {"max_envelope_bytes": 4},
        )
        assert body["stats"].items() >= {"depth": 1, "scheduled": 1, "completed": 0}.items()
        assert (body["stats"]["completed_today"], body["stats"]["failed_today"]) == (0, 0)

    @pytest.mark.parametrize("path", ["queues/unknown", "queues/unknown/stats"])
    def test_an_unknown_queue_is_not_found(self, path: str) -> None:
        api.get(path).error(404, "not_found", resource_type="queue", resource_id="unknown")

    @pytest.mark.parametrize("name", ["_default", "*", "No", quote("a b"), "%00"])
    def test_a_name_that_no_queue_can_have_is_rejected(self, name: str) -> None:
        api.get(f"queues/{name}").error(400, "invalid_request")
        api.post(f"queues/{name}/pause").error(400, "invalid_request")


class TestConfig:
    @pytest.mark.requirement("QC-02")
    def test_changes_go_by_top_level_key_and_come_back_whole(self) -> None:
        first = {"backpressure": {"max_depth": 5, "strategy": "block"}, "max_envelope_bytes": 3}
        body = api.put("queues/a/config", first).ok()
        assert body["config"] == {**first, "max_size": 5, "overflow_policy": "block"}
        api.put("queues/a/config", {"backpressure": {"max_depth": 6}, "more": [1]}).ok()
        body = api.get("queues/a/config").ok()
        assert body["config"] == {
            "backpressure": {"max_depth": 6},
            "max_size": 6,
            "max_envelope_bytes": 3,
            "more": [1],
        }
        assert (body["name"], body["max_envelope_bytes"]) == ("a", 3)

    def test_the_default_policy_is_a_configuration_like_any(self) -> None:
        assert api.get("queues/_default/config").ok() == {"name": "_default", "config": {}}
        api.put("queues/_default/config", {"max_envelope_bytes": 2000}).ok()
        assert api.get("queues/_default/config")["config"] == {"max_envelope_bytes": 2000}
        push(queue="a")
        assert api.get("queues/a/config")["max_envelope_bytes"] == 2000
        api.put("queues/_default/config", {"overflow_policy": "drop_oldest"}).error(
            400, "invalid_request", field="backpressure.strategy"
        )

    @together(
        "path", ["queues/a/config", "queues/_default/config", "admin/queues/a/config"], undo=True
    )
    @together(
        "limit",
        [
            {"rate_limit": {"on_limit": "drop"}},
            {"dead_letter_max_size": 5},
        ],
        undo=True,
    )
    def test_a_limit_that_is_not_enforced_is_rejected(
        self, path: str, limit: dict[str, Any]
    ) -> None:
        body = api.put(path, {"max_envelope_bytes": 5, **limit})
        body.error(422, "unsupported")
        api.post("queues", {"name": "b", "config": limit}).error(422, "unsupported")
        assert listed()[0] == []

    def test_a_configuration_needs_a_body(self) -> None:
        api.put("queues/a/config").error(400, "invalid_payload")
        api.put("queues/a/config", {"default_retry": {"max_attempts": -1}}).error(
            422, "invalid_request", field="default_retry"
        )
        api.get("queues/a/config").error(404, "not_found")


class TestPauseAndResume:
    def test_they_need_no_body_no_content_type_and_no_known_queue(self) -> None:
        paused = api.post("queues/new/pause").ok()
        assert (paused["queue"], paused["status"]) == ({"name": "new", "paused": True}, "paused")
        assert api.push(queue="new")["state"] == "available"
        assert api.fetch("new") == []
        resumed = api.post("queues/new/resume").ok()
        assert (resumed["queue"], resumed["status"]) == (
            {"name": "new", "paused": False},
            "active",
        )
        assert resumed["resumed_at"] >= paused["paused_at"]
        assert len(api.fetch("new")) == 1

    def test_pausing_again_keeps_the_time(self) -> None:
        first = api.post("queues/a/pause")["paused_at"]
        assert api.post("queues/a/pause", {})["paused_at"] == first

    def test_whatever_stands_in_the_body_is_not_looked_at(self) -> None:
        api.post("queues/a/pause", b"<xml/>", content_type="text/xml").ok()


class TestStats:
    @pytest.mark.both
    def test_they_say_how_many_jobs_there_are_and_what_happened(self) -> None:
        for state in ("completed", "available", "scheduled"):
            in_state(state, queue="a")
        queues.configure("a", {"backpressure": {"max_depth": 9}})
        body = api.get("queues/a/stats").ok()
        assert body["queue"].items() >= {"name": "a", "paused": False, "available": 1}.items()
        assert body["stats"].items() >= {"queue": "a", "depth": 2, "max_depth": 9}.items()
        for name in ("available", "active", "scheduled", "retryable", "pending", "discarded"):
            assert body["stats"][name] == body["queue"][name]
        assert body["stats"]["completed"] == 1
        for name in ("completed_last_hour", "failed_last_hour", "avg_duration_ms", "avg_wait_ms"):
            assert isinstance(body["stats"][name], int)
        assert isinstance(body["stats"]["throughput_per_second"], float)
        assert body["status"] == "active"
        assert body["stats"]["oldest_available_at"] <= body["computed_at"]

    def test_an_unbounded_queue_has_no_bound(self) -> None:
        push(queue="a")
        assert api.get("queues/a/stats")["stats"]["max_depth"] is None


class TestDelete:
    def test_a_queue_with_jobs_that_wait_is_a_conflict(self) -> None:
        push(queue="a")
        api.delete("queues/a").error(409, "conflict", queue="a", jobs=1)
        api.delete("queues/a", {"strategy": "reject"}).error(409, "conflict")

    @pytest.mark.both
    def test_its_jobs_move_or_are_discarded(self) -> None:
        push(queue="a")
        body = api.delete("queues/a", {"strategy": "move", "target_queue": "b"}).ok(202)
        assert body == {
            "queue": "a",
            "strategy": "move",
            "target_queue": "b",
            "jobs_affected": 1,
            "jobs_waiting": 0,
            "state": "deleted",
        }
        active(queue="c")
        push(queue="b")
        assert api.delete("queues/b?strategy=discard").ok(202)["jobs_affected"] == 2
        assert api.delete("queues/c", {"strategy": "discard"}).ok(202)["state"] == "draining"
        assert listed()[0] == ["c"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"strategy": "purge"}, "strategy"),
            ({"strategy": 5}, "strategy"),
            ({"strategy": "move", "target_queue": 5}, "target_queue"),
            ({"strategy": "move", "target_queue": "a"}, "target_queue"),
        ],
    )
    def test_a_request_that_makes_no_sense_is_rejected(self, body: Any, field: str) -> None:
        push(queue="a")
        api.delete("queues/a", body).error(400, "invalid_request", field=field)
        assert counts.depth("a") == 1

    def test_moving_needs_a_place_to_move_to(self) -> None:
        push(queue="a")
        message = api.delete("queues/a", {"strategy": "move"}).error(400, "invalid_request")
        assert message["message"].startswith("target_queue ")


class TestAccess:
    @override_settings(OJS={})
    def test_credentials_for_some_queues_see_and_change_only_those(self) -> None:
        for name in ("mine", "other"):
            push(queue=name)
        kept = Api(make_key("admin", queues=("mine",)))
        assert [queue["name"] for queue in kept.get("queues").ok()["queues"]] == ["mine"]
        assert kept.get("queues")["pagination"]["total"] == 1
        for method, path, body in (
            ("GET", "queues/other", None),
            ("GET", "queues/other/config", None),
            ("GET", "queues/other/stats", None),
            ("PUT", "queues/other/config", {}),
            ("PUT", "queues/_default/config", {}),
            ("POST", "queues/other/pause", None),
            ("POST", "queues/other/resume", None),
            ("POST", "queues", {"name": "new"}),
            ("DELETE", "queues/other", None),
            ("DELETE", "queues/mine", {"strategy": "move", "target_queue": "other"}),
        ):
            kept.ask(method, path, body).error(403, "PERMISSION_DENIED")
        kept.post("queues/mine/pause").ok()

    @pytest.mark.parametrize(
        ("scope", "allowed"),
        [
            ("producer", []),
            ("worker", []),
            ("read", ["GET queues"]),
            ("operator", ["GET queues", "POST queues/a/pause"]),
            (
                "admin",
                ["GET queues", "POST queues/a/pause", "PUT queues/a/config", "DELETE queues/a"],
            ),
        ],
    )
    @override_settings(OJS={})
    def test_each_scope_may_do_what_it_is_for(self, scope: str, allowed: list[str]) -> None:
        caller = Api(make_key(scope))
        may = []
        for what, body in (
            ("GET queues", None),
            ("POST queues/a/pause", None),
            ("PUT queues/a/config", {}),
            ("DELETE queues/a", None),
        ):
            method, path = what.split()
            response = caller.ask(method, path, body)
            if response.status == 403:
                response.error(403, "PERMISSION_DENIED")
            else:
                may.append(what)
        assert may == allowed

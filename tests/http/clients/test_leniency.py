"""What no document demands, and a client that is in use sends or reads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.http.clients.wire import Wire

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

ARGS = [{"user": 1, "text": "a"}]


@pytest.fixture
def wire(live_server: LiveServer) -> Wire:
    return Wire(live_server.url)


def job_of(wire: Wire, **options: Any) -> Any:
    body = {"type": "email.send", "args": ARGS, "options": options}
    return wire.send("POST", "/v1/jobs", body, 201)["job"]


class TestProgressOfWorkers:
    def test_the_body_may_name_the_job(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id="w")
        body = {"job_id": key, "worker_id": "w", "progress": 0.5, "message": "half"}
        answer = wire.send("POST", "/v1/workers/progress", body)
        assert (answer["job_id"], answer["progress"]) == (key, 0.5)
        assert wire.send("GET", f"/v1/jobs/{key}/progress")["data"] == {"message": "half"}

    def test_it_is_rejected_as_under_the_other_path(self, wire: Wire) -> None:
        key = wire.push()
        wire.fetch(worker_id="w")
        other = {"job_id": key, "worker_id": "other", "progress": 0.5}
        wire.send("POST", "/v1/workers/progress", other, 409)
        wire.send("POST", "/v1/workers/progress", {"job_id": key}, 400)
        wire.send("POST", "/v1/workers/progress", {"progress": 0.5}, 400)


def test_maintenance_is_shown_under_the_names_that_clients_read(wire: Wire) -> None:
    path = "/v1/admin/system/maintenance"
    assert wire.send("GET", path)["enabled"] is False
    shown = wire.send("POST", path, {"enabled": True, "estimated_duration": "PT1H"})
    assert shown["enabled"] is True
    assert (shown["started_at"], shown["ends_at"]) == (shown["enabled_at"], shown["estimated_end"])


def test_batch_size_is_another_name_for_count(wire: Wire) -> None:
    for _ in range(5):
        wire.push()
    body = {"queues": ["default"], "batch_size": 2}
    assert len(wire.send("POST", "/v1/workers/fetch", body)["jobs"]) == 2
    both = {**body, "count": 3}
    assert len(wire.send("POST", "/v1/workers/fetch", both)["jobs"]) == 3
    for bad in (0, "2", 1_001):
        wire.send("POST", "/v1/workers/fetch", {**both, "batch_size": bad}, 400)


class TestUniqueKey:
    @pytest.mark.parametrize(
        ("names", "same"),
        [(["type"], True), (["type", "queue"], True), (["type", "args"], False)],
    )
    def test_names_of_dimensions_alone_are_dimensions(
        self, wire: Wire, names: list[str], same: bool
    ) -> None:
        unique = {"key": names, "on_conflict": "reject"}
        job_of(wire, unique=unique)
        other = {"type": "email.send", "args": [{"user": 2}], "options": {"unique": unique}}
        wire.send("POST", "/v1/jobs", other, 409 if same else 201)

    def test_a_member_of_args_with_such_a_name_is_what_core_means(self, wire: Wire) -> None:
        def push(kind: str, status: int) -> None:
            job = {
                "type": "a.b",
                "args": [{"type": kind}],
                "options": {"unique": {"key": ["type"]}},
            }
            wire.send("POST", "/v1/jobs", job, status)

        push("x", 201)
        push("y", 201)
        push("x", 409)

    def test_other_names_that_args_lack_still_mean_all_of_args(self, wire: Wire) -> None:
        unique = {"key": ["type", "nothing"]}
        job_of(wire, unique=unique)
        other = {"type": "email.send", "args": [{"user": 2}], "options": {"unique": unique}}
        wire.send("POST", "/v1/jobs", other, 201)


class TestMaxAttempts:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"max_attempts": 7}, 7),
            ({"max_attempts": 7, "retry": {"initial_interval": "PT2S"}}, 7),
            ({"max_attempts": 7, "retry": {"max_attempts": 2}}, 2),
            ({"max_attempts": 7, "retry": 4}, 4),
            ({"max_attempts": None}, 3),
        ],
    )
    def test_it_counts_without_a_policy_that_has_it(
        self, wire: Wire, options: dict[str, Any], expected: int
    ) -> None:
        job = job_of(wire, **options)
        assert job["max_attempts"] == expected
        assert "options" not in job

    def test_the_rest_of_the_policy_stays(self, wire: Wire) -> None:
        job = job_of(wire, max_attempts=7, retry={"initial_interval": "PT2S"})
        assert job["retry"]["initial_interval"] == "PT2S"

    @pytest.mark.parametrize("bad", [-1, "7", 1.5, True, []])
    def test_a_wrong_value_is_rejected(self, wire: Wire, bad: Any) -> None:
        for retry in (None, {"max_attempts": 2}):
            options = {"max_attempts": bad, "retry": retry}
            wire.send("POST", "/v1/jobs", {"type": "a.b", "args": [], "options": options}, 422)

    def test_at_the_top_level_it_is_the_servers(self, wire: Wire) -> None:
        body = {"type": "a.b", "args": [], "max_attempts": 7}
        assert wire.send("POST", "/v1/jobs", body, 201)["job"]["max_attempts"] == 3


def test_a_failure_without_a_message_has_its_type_for_one(wire: Wire) -> None:
    key = wire.push()
    wire.fetch()
    wire.send("POST", "/v1/workers/nack", {"job_id": key, "error": {"message": "m"}}, 400)
    wire.send("POST", "/v1/workers/nack", {"job_id": key, "error": {"code": "Boom"}})
    error = wire.send("GET", f"/v1/jobs/{key}")["job"]["error"]
    assert (error["type"], error["message"]) == ("Boom", "Boom")


def test_delay_until_may_be_a_duration(wire: Wire) -> None:
    job = job_of(wire, delay_until="PT60S")
    assert job["state"] == "scheduled"
    due = datetime.fromisoformat(job["scheduled_at"]) - datetime.fromisoformat(job["created_at"])
    assert abs(due - timedelta(seconds=60)) < timedelta(seconds=30)
    for bad in ({"scheduled_at": "PT60S"}, {"delay_until": "PT"}, {"delay_until": "60"}):
        wire.send("POST", "/v1/jobs", {"type": "a.b", "args": [], "options": bad}, 400)

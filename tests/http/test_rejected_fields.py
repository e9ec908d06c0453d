"""A rejection says in `details` which field it is about, wherever the field was read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import together
from tests.http.api import NOBODY, Api

pytestmark = [pytest.mark.django_db, pytest.mark.once]

JOB = {"type": "a", "args": [{}]}
api = Api()
FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("jobs", {"args": []}, "type"),
    ("jobs", {"type": "a"}, "args"),
    ("jobs", JOB | {"args": {}}, "args"),
    ("jobs", JOB | {"type": "A"}, "type"),
    ("jobs", JOB | {"type": "a" * 256}, "type"),
    ("jobs", JOB | {"queue": "Q"}, "queue"),
    ("jobs", JOB | {"queue": "q" * 256}, "queue"),
    ("jobs", JOB | {"id": "x"}, "id"),
    ("jobs", JOB | {"specversion": "9"}, "specversion"),
    ("jobs", JOB | {"priority": 101}, "priority"),
    ("jobs", JOB | {"meta": []}, "meta"),
    ("jobs", JOB | {"tags": "x"}, "tags"),
    ("jobs", JOB | {"options": {"timeout_ms": -1}}, "timeout_ms"),
    ("jobs", JOB | {"scheduled_at": "2030-01-01T00:00:00"}, "scheduled_at"),
    ("jobs", JOB | {"expires_at": 5}, "expires_at"),
    ("jobs", JOB | {"retry": {"max_attempts": -1}}, "retry.max_attempts"),
    ("jobs", JOB | {"retry": {"initial_interval": "soon"}}, "retry.initial_interval"),
    ("jobs", JOB | {"retry": {"max_interval": "1ms"}}, "retry.max_interval"),
    ("jobs", JOB | {"unique": {"keys": ["x"]}}, "unique.keys"),
    ("jobs", JOB | {"unique": {"period": "soon"}}, "unique.period"),
    ("workers/fetch", {"queues": ["Q"]}, "queues"),
    ("workers/ack", {"job_id": "x"}, "job_id"),
    ("workers/nack", {"job_id": "x"}, "job_id"),
    ("workers/nack", {"job_id": NOBODY, "error": {"message": "m"}}, "error.type"),
    ("workers/heartbeat", {"worker_id": "w", "active_jobs": ["x"]}, "active_jobs"),
    ("queues", {"name": "Q"}, "name"),
]


class TestTheField:
    @together(("path", "body", "field"), FIELDS, ids=lambda part: str(part)[:60], undo=True)
    def test_a_rejection_names_it_for_programs(
        self, path: str, body: dict[str, Any], field: str
    ) -> None:
        error = api.post(path, body).body["error"]
        assert error["details"] == {"field": field}
        assert error["message"].startswith(f"{field} ")

    def test_beside_the_index_of_a_batch(self) -> None:
        response = api.post("jobs/batch", {"jobs": [JOB, JOB | {"priority": True}]})
        response.error(400, "invalid_request", index=1, field="priority")

    def test_in_a_query(self) -> None:
        api.get("dead-letter?since=x").error(400, "invalid_request", field="since")

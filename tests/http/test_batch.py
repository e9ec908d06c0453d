"""PUSH of many jobs at once: all or none."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.http.manifest import MAX_BATCH
from django_ojs.operations import queues
from django_ojs.spec import ids
from tests.cases import together
from tests.http.api import Api, stored

pytestmark = pytest.mark.django_db

api = Api()
JOB = {"type": "a", "args": []}


def test_jobs_come_back_in_the_order_of_the_request() -> None:
    jobs = [{"type": "a", "args": [n], "options": {"priority": -n}} for n in range(20)]
    response = api.post("jobs/batch", {"jobs": jobs}).ok(201)
    assert response["count"] == 20
    assert [job["args"] for job in response["jobs"]] == [[n] for n in range(20)]
    assert [job["id"] for job in api.fetch(count=50)] == [job["id"] for job in response["jobs"]]


@pytest.mark.both
def test_a_thousand_jobs_and_more_are_one_request() -> None:
    response = api.post("jobs/batch", {"jobs": [JOB | {"args": [n]} for n in range(1_200)]}).ok(201)
    assert response["count"] == len(response["jobs"]) == stored() == 1_200
    assert response["jobs"][777]["args"] == [777]


def test_more_than_the_manifest_says_are_rejected_and_how_to_send_them() -> None:
    response = api.post("jobs/batch", {"jobs": [JOB] * (MAX_BATCH + 1)})
    error = response.error(413, "PAYLOAD_TOO_LARGE", field="jobs", max_batch_size=MAX_BATCH)
    assert "in several requests" in error["hint"]
    limits = api.get("/ojs/manifest").ok(200)["limits"]
    assert (limits["max_batch_size"], stored()) == (MAX_BATCH, 0)


@pytest.mark.once
@together("index", [0, 1, 4], undo=True)
@together(
    ("bad", "status", "code"),
    [
        ({"type": "a"}, 400, "invalid_request"),
        ({"args": []}, 400, "invalid_request"),
        ({"type": "A", "args": []}, 400, "invalid_request"),
        (JOB | {"priority": 1_000}, 400, "invalid_request"),
        (JOB | {"retry": {"max_attempts": "x"}}, 422, "invalid_request"),
        (JOB | {"queue": "q" * 256}, 400, "QUEUE_NAME_TOO_LONG"),
        (JOB | {"meta": {"x": "x" * 70_000}}, 413, "METADATA_TOO_LARGE"),
        (JOB | {"specversion": "9"}, 422, "unsupported"),
        (JOB | {"scheduled_at": "soon"}, 400, "invalid_request"),
        ("text", 400, "invalid_request"),
        (None, 400, "invalid_request"),
        ([], 400, "invalid_request"),
    ],
    undo=True,
)
def test_one_bad_job_rejects_all_and_is_named(bad: Any, status: int, code: str, index: int) -> None:
    jobs: list[Any] = [JOB] * 5
    jobs[index] = bad
    api.post("jobs/batch", {"jobs": jobs}).error(status, code, index=index)
    assert stored() == 0


@pytest.mark.requirement("CORE-7.1-9")
def test_an_id_that_is_taken_rejects_all() -> None:
    own = api.push()["id"]
    response = api.post("jobs/batch", {"jobs": [JOB, JOB, JOB | {"id": own}]})
    response.error(409, "duplicate", index=2, existing_job_id=own)
    assert stored() == 1


def test_an_id_that_comes_twice_rejects_all() -> None:
    twice = JOB | {"id": str(ids.uuid7())}
    response = api.post("jobs/batch", {"jobs": [twice, JOB, twice]})
    response.error(409, "duplicate", index=2, existing_job_id=twice["id"])
    assert stored() == 0


@together("bad", [None, [], {}, "x", 1, True], undo=True)
def test_what_is_no_array_of_jobs_is_rejected(bad: Any) -> None:
    response = api.post("jobs/batch", {"jobs": bad})
    response.error(400, "invalid_request", field="jobs")
    api.post("jobs/batch", {}).error(400, "invalid_request", field="jobs")


def test_each_job_has_its_own_envelope_limit() -> None:
    # Ten jobs of a mebibyte are no envelope of ten.
    big = JOB | {"args": ["x" * 2**20]}
    assert api.post("jobs/batch", {"jobs": [big] * 10}).ok(201)["count"] == 10


def test_each_of_alike_jobs_is_measured_as_it_was_sent() -> None:
    queues.configure("small", {"max_envelope_bytes": 100})
    jobs = [JOB | {"queue": "small", "args": ["x" * length]} for length in (1, 2, 200)]
    api.post("jobs/batch", {"jobs": jobs}).error(413, "PAYLOAD_TOO_LARGE", index=2)
    assert stored() == 0

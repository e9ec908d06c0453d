"""Progress over HTTP: reported by a worker, asked for by anybody."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from tests.cases import together
from tests.factories import in_state
from tests.http.api import NOBODY, Api, make_key

pytestmark = pytest.mark.django_db

api = Api()


def report(job: Any, **body: Any) -> Any:
    return api.put(f"jobs/{job['id']}/progress", body)


@pytest.mark.both
@pytest.mark.requirement("PRG-001", "PRG-004", "PRG-R001")
def test_what_a_worker_reports_is_returned_and_read_again() -> None:
    job = api.active()
    response = report(job, progress=0.47, data={"rows": 14000})
    body = response.ok()
    assert (
        body.items()
        >= {
            "job_id": job["id"],
            "state": "active",
            "progress": 0.47,
            "data": {"rows": 14000},
        }.items()
    )
    assert body["updated_at"].endswith("Z")
    assert response.headers["X-OJS-Progress"] == "0.47"
    assert response.headers["Cache-Control"] == "no-cache, private"
    assert response.headers["Last-Modified"].endswith("GMT")
    assert api.get(f"jobs/{job['id']}/progress").ok() == body
    assert api.info(job["id"])["progress"] == 0.47


@pytest.mark.requirement("PRG-004")
def test_nothing_was_reported_is_null_and_not_404() -> None:
    job = api.push()
    response = api.get(f"jobs/{job['id']}/progress")
    assert response.ok() == {
        "job_id": job["id"],
        "state": "available",
        "progress": None,
        "data": None,
        "updated_at": None,
    }
    assert "X-OJS-Progress" not in response.headers
    assert "Last-Modified" not in response.headers


@pytest.mark.both
@pytest.mark.requirement("PRG-002", "PRG-003")
def test_a_share_is_clamped_and_never_goes_back() -> None:
    job = api.active()
    assert report(job, progress=0.5).ok()["progress"] == 0.5
    assert report(job, progress=0.25).ok()["progress"] == 0.5
    assert report(job, progress=1.3).ok()["progress"] == 1.0
    assert report(api.active(), progress=-1).ok()["progress"] == 0.0


@pytest.mark.requirement("PRG-009")
@together(
    ("body", "field"),
    [
        ({}, "progress"),
        ({"checkpoint": {}}, "progress"),
        ({"progress": "half"}, "progress"),
        ({"progress": True}, "progress"),
        ({"data": 5}, "data"),
        ({"progress": 0.5, "checkpoint": []}, "checkpoint"),
        ({"percentage": "25"}, "percentage"),
        ({"progress": 0.5, "message": 5}, "message"),
        ({"progress": 0.5, "worker_id": 5}, "worker_id"),
        ({"progress": 0.5, "attempt": "1"}, "attempt"),
    ],
    undo=True,
)
def test_what_is_no_report_is_rejected(body: Any, field: str) -> None:
    report(api.active(), **body).error(400, "invalid_request", field=field)


@pytest.mark.parametrize("path", ["jobs/{}/progress", "workers/progress"])
@together(
    ("body", "progress", "data"),
    [
        ({"percentage": 25, "message": "a quarter"}, 0.25, {"message": "a quarter"}),
        ({"percent": 12.5}, 0.125, None),
        ({"percentage": 250}, 1.0, None),
        ({"progress": 0.5, "percentage": 25}, 0.5, None),
        ({"message": "began"}, None, {"message": "began"}),
        ({"message": "half", "data": {"rows": 5}}, None, {"message": "half", "rows": 5}),
        ({"message": "half", "data": {"message": "own"}}, None, {"message": "own"}),
    ],
)
def test_a_report_in_the_words_of_an_sdk_is_kept(
    path: str, body: Any, progress: Any, data: Any
) -> None:
    job = api.active()
    report = {"job_id": job["id"], **body}
    method = "POST" if path.startswith("workers") else "PUT"
    api.ask(method, path.format(job["id"]), report).ok()
    found = api.get(f"jobs/{job['id']}/progress").ok()
    assert (found["progress"], found["data"]) == (progress, data)
    assert found.get("message") == (data or {}).get("message")


def test_a_report_that_is_too_large_is_rejected() -> None:
    job = api.active()
    report(job, data={"a": "x" * 70_000}).error(413, "PAYLOAD_TOO_LARGE", field="data")
    api.put(f"jobs/{job['id']}/progress").error(400, "invalid_payload")


@pytest.mark.requirement("PRG-007")
@pytest.mark.parametrize("state", ["available", "completed", "cancelled", "discarded"])
def test_a_report_of_a_job_that_does_not_run_is_ignored(state: str) -> None:
    job = {"id": str(in_state(state).pk)}
    body = report(job, progress=0.5).ok()
    assert (body["state"], body["progress"]) == (state, None)


def test_a_report_under_a_lost_claim_is_a_conflict() -> None:
    job = api.active(worker_id="one")
    report(job, progress=0.5, worker_id="two").error(409, "conflict", job_id=job["id"])
    report(job, progress=0.5, worker_id="one", attempt=2).error(409, "conflict")
    assert report(job, progress=0.5, worker_id="one", attempt=1).ok()["progress"] == 0.5


@pytest.mark.parametrize("key", ["x", "0", NOBODY])
def test_there_is_no_progress_of_what_is_no_job(key: str) -> None:
    api.get(f"jobs/{key}/progress").error(404, "not_found")
    report({"id": key}, progress=0.5).error(404, "not_found")


@pytest.mark.requirement("PRG-005", "PRG-R002")
def test_a_completed_job_is_done_and_the_next_attempt_begins_with_the_checkpoint() -> None:
    done = api.active()
    report(done, progress=0.87).ok()
    api.post("workers/ack", {"job_id": done["id"]}).ok()
    assert api.get(f"jobs/{done['id']}/progress").ok()["progress"] == 1.0
    job = api.active(queue="again")
    report(job, progress=0.73, checkpoint={"last": 72}).ok()
    back = {"job_id": job["id"], "requeue": True}
    api.post("workers/nack", back).ok()
    assert api.get(f"jobs/{job['id']}/progress").ok()["progress"] == 0.73
    (again,) = api.fetch("again")
    assert again["last_checkpoint"] == {"last": 72}
    assert "progress" not in again
    assert api.get(f"jobs/{job['id']}/progress").ok()["progress"] is None


@override_settings(OJS={})
def test_workers_report_and_readers_read_within_their_queues() -> None:
    admin = Api(make_key("admin"))
    job = admin.active(queue="mine")
    path = f"jobs/{job['id']}/progress"
    Api(make_key("worker", queues=("mine",))).put(path, {"progress": 0.5}).ok()
    Api(make_key("worker", queues=("other",))).put(path, {"progress": 0.6}).error(
        403, "PERMISSION_DENIED"
    )
    Api(make_key("read")).put(path, {"progress": 0.6}).error(403, "PERMISSION_DENIED")
    Api(make_key("worker")).get(path).error(403, "PERMISSION_DENIED")
    Api(make_key("read", queues=("other",))).get(path).error(403, "PERMISSION_DENIED")
    assert Api(make_key("read")).get(path).ok()["progress"] == 0.5

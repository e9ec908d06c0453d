"""Checkpoints over HTTP: saved by a worker, given to the next one."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_ojs.extensions.checkpoints.spec import MAX_BYTES
from tests.factories import in_state
from tests.http.api import NOBODY, Api, make_key

pytestmark = pytest.mark.django_db

api = Api()
STATE = {"processed_count": 5000, "last_cursor": "cursor_abc123"}


def save(job: Any, state: Any = STATE, **claim: Any) -> Any:
    return api.post(f"jobs/{job['id']}/checkpoint", {"state": state, **claim})


def read(job: Any) -> Any:
    return api.get(f"jobs/{job['id']}/checkpoint")


@pytest.mark.requirement("DUR-001", "DUR-002")
def test_what_a_worker_saves_is_read_again() -> None:
    job = api.active()
    body = save(job).ok()["checkpoint"]
    assert body.keys() == {"job_id", "sequence", "created_at"}
    assert (body["job_id"], body["sequence"]) == (job["id"], 1)
    assert read(job).ok() == {"checkpoint": {**body, "state": STATE}}
    assert save(job, None).ok()["checkpoint"]["sequence"] == 2
    assert read(job).ok()["checkpoint"]["state"] is None


def test_a_client_may_put_the_checkpoint() -> None:
    job = api.active()
    saved = api.put(f"jobs/{job['id']}/checkpoint", {"state": STATE}).ok()["checkpoint"]
    assert saved["sequence"] == 1
    assert read(job).ok()["checkpoint"]["state"] == STATE


@pytest.mark.both
@pytest.mark.requirement("DUR-004")
def test_the_worker_that_fetches_the_job_again_gets_the_checkpoint() -> None:
    job = api.active()
    assert "checkpoint" not in job
    save(job).ok()
    api.post("workers/nack", {"job_id": job["id"], "requeue": True}).ok()
    (again,) = api.fetch(job["queue"])
    assert again["checkpoint"] == {"state": STATE, "sequence": 1}
    assert again["last_checkpoint"] == STATE
    assert api.info(job["id"])["checkpoint"] == again["checkpoint"]
    done = api.post("workers/ack", {"job_id": job["id"]}).ok()["job"]
    assert not done.keys() & {"checkpoint", "last_checkpoint"}


@pytest.mark.requirement("DUR-003")
def test_an_operator_deletes_a_checkpoint() -> None:
    job = api.active()
    save(job).ok()
    path = f"jobs/{job['id']}/checkpoint"
    assert api.delete(path).ok() == {"deleted": True, "job_id": job["id"]}
    api.delete(path).error(404, "not_found", resource_type="checkpoint")
    read(job).error(404, "not_found", resource_type="checkpoint", resource_id=job["id"])


@pytest.mark.requirement("DUR-006")
def test_a_state_over_the_limit_is_413_and_nothing_is_stored() -> None:
    job = api.active()
    save(job, "x" * (MAX_BYTES - 2)).ok()
    save(job, "y" * (MAX_BYTES - 1)).error(
        413, "PAYLOAD_TOO_LARGE", field="state", max_bytes=MAX_BYTES
    )
    assert read(job).ok()["checkpoint"]["state"].startswith("x")


@pytest.mark.requirement("DUR-007")
@pytest.mark.parametrize("state", ["available", "completed", "cancelled", "discarded"])
def test_a_job_that_is_not_active_is_a_conflict(state: str) -> None:
    job = {"id": str(in_state(state).pk)}
    save(job).error(409, "conflict", current_state=state)
    read(job).error(404, "not_found")


def test_a_checkpoint_under_a_lost_claim_is_a_conflict_and_nothing_is_stored() -> None:
    job = api.active(worker_id="one")
    save(job, worker_id="two").error(409, "conflict", job_id=job["id"])
    save(job, worker_id="one", attempt=2).error(409, "conflict")
    read(job).error(404, "not_found")
    save(job, worker_id="one", attempt=1).ok()


@pytest.mark.parametrize("key", ["x", "0", NOBODY])
def test_there_is_no_checkpoint_of_what_is_no_job(key: str) -> None:
    save({"id": key}).error(404, "not_found")
    read({"id": key}).error(404, "not_found")
    api.delete(f"jobs/{key}/checkpoint").error(404, "not_found")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "state"),
        ({"state": 1, "worker_id": 5}, "worker_id"),
        ({"state": 1, "attempt": "1"}, "attempt"),
    ],
)
def test_what_is_no_checkpoint_is_rejected(body: Any, field: str) -> None:
    job = api.active()
    path = f"jobs/{job['id']}/checkpoint"
    api.post(path, body).error(400, "invalid_request", field=field)


@override_settings(OJS={})
def test_workers_save_and_readers_read_within_their_queues() -> None:
    job = Api(make_key("admin")).active(queue="mine")
    path = f"jobs/{job['id']}/checkpoint"
    Api(make_key("worker", queues=("mine",))).post(path, {"state": 1}).ok()
    other = Api(make_key("worker", queues=("other",)))
    other.post(path, {"state": 2}).error(403, "PERMISSION_DENIED")
    Api(make_key("read")).post(path, {"state": 2}).error(403, "PERMISSION_DENIED")
    Api(make_key("worker")).get(path).error(403, "PERMISSION_DENIED")
    Api(make_key("worker")).delete(path).error(403, "PERMISSION_DENIED")
    Api(make_key("read", queues=("other",))).get(path).error(403, "PERMISSION_DENIED")
    assert Api(make_key("read")).get(path).ok()["checkpoint"]["state"] == 1

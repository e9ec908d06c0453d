"""`/ojs/v1/admin/workers`: list, look, direct, deregister."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from django_ojs.models import Worker
from tests.factories import WorkerFactory, active, silence
from tests.http.api import Api, state_of

pytestmark = pytest.mark.django_db

api = Api()


def registered(name: str, *queues: str) -> None:
    WorkerFactory(id=name, queues=queues, hostname="pod-1", concurrency=10)


@pytest.mark.requirement("ADM-006")
def test_workers_are_listed_with_a_summary() -> None:
    for name in ("a", "b", "c"):
        registered(name, "default", "email")
    silence("c")
    api.post("admin/workers/b/quiet").ok()
    body = api.get("admin/workers").ok()
    assert body["summary"] == {"total": 3, "running": 1, "quiet": 1, "stale": 1}
    assert body["pagination"] == {"total": 3, "page": 1, "per_page": 20}
    assert [(item["id"], item["state"]) for item in body["items"]] == [
        ("a", "running"),
        ("b", "quiet"),
        ("c", "stale"),
    ]
    first = body["items"][0]
    assert (first["hostname"], first["queues"]) == ("pod-1", ["default", "email"])
    assert (first["concurrency"], first["active_jobs"], first["metadata"]) == (10, 0, {})
    assert first["last_heartbeat_at"].endswith("Z")


def test_a_worker_shows_the_jobs_in_its_hands() -> None:
    registered("w")
    job = active("w", queue="email", args=["secret"])
    body = api.get("admin/workers/w").ok()
    assert body["id"] == "w"
    (shown,) = body["jobs"]
    assert (shown["id"], shown["state"], shown["worker_id"]) == (str(job.id), "active", "w")
    assert "args" not in shown


@pytest.mark.requirement("ADM-R003")
def test_quiet_comes_with_the_next_beat_and_resume_takes_it_back() -> None:
    registered("w")
    body = api.post("admin/workers/w/quiet").ok()
    assert (body["id"], body["state"], body["directive"]) == ("w", "quiet", "quiet")
    beaten = api.post("workers/heartbeat", {"worker_id": "w", "active_jobs": []}).ok()
    assert beaten["state"] == "quiet"
    assert api.post("admin/workers/w/resume").ok()["state"] == "running"


def test_nothing_leads_back_from_terminate() -> None:
    registered("w")
    assert api.post("admin/workers/w/terminate").ok()["state"] == "terminate"
    api.post("admin/workers/w/resume").error(409, "conflict", current_state="terminate")


@pytest.mark.both
def test_only_a_stale_worker_is_deregistered_and_its_jobs_go_back() -> None:
    registered("w")
    job = active("w")
    api.delete("admin/workers/w").error(409, "conflict", expected_state="stale")
    assert state_of(str(job.id)) == "active"
    silence("w")
    body = api.delete("admin/workers/w").ok()
    assert body == {"id": "w", "deregistered": True, "jobs_rescheduled": 1}
    assert state_of(str(job.id)) == "available"
    assert not Worker.objects.exists()


@pytest.mark.parametrize("name", ["nobody", "nul%00", "x" * 300])
def test_a_worker_that_is_not_known_is_404(name: str) -> None:
    api.get(f"admin/workers/{name}").error(404, "not_found")
    api.delete(f"admin/workers/{name}").error(404, "not_found")
    for action in ("quiet", "resume", "terminate"):
        api.post(f"admin/workers/{name}/{action}").error(404, "not_found")


@pytest.mark.parametrize("name", ["web-7f9c/4711", "a/b/c", "/run/worker"])
def test_a_worker_whose_id_has_a_slash_is_directed_and_deregistered(name: str) -> None:
    registered(name, "default")
    path = f"admin/workers/{quote(name, safe='')}"
    assert api.get(path).ok()["id"] == name
    assert api.post(f"{path}/quiet").ok()["directive"] == "quiet"
    assert api.post(f"{path}/resume").ok()["directive"] == "running"
    assert api.post(f"{path}/terminate").ok()["directive"] == "terminate"
    assert Worker.primary.get().directive == "terminate"
    silence(name)
    assert api.delete(path).ok()["id"] == name
    api.get(path).error(404, "not_found")

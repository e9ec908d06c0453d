"""How many statements a request of a worker takes: each is a round trip to the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_ojs import hooks
from django_ojs.models import Worker
from django_ojs.spec import envelope
from django_ojs.storage import database
from tests.factories import push_many, read
from tests.http.api import Api, make_key

pytestmark = pytest.mark.django_db

MILLISECOND = timedelta(milliseconds=1)
FETCH = {"queues": ["default"], "worker_id": "w"}


@pytest.fixture
def api(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A worker, with a key, that has fetched before and sends no BEAT."""
    # Cron jobs and workflows are asked for once in a while, whoever fetches.
    monkeypatch.setattr(hooks.registry, "before_fetch", ())
    settings.OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}
    push_many(9, queue="default")
    api = Api(make_key("worker"))
    for _ in range(2):
        api.post("workers/fetch", FETCH).ok()
    return api


@pytest.mark.both
@pytest.mark.statements
def test_a_fetch_takes_one_for_the_key_one_for_the_worker_and_the_claim(api: Api) -> None:
    before = Worker.primary.values().get()
    with CaptureQueriesContext(database.connection()) as queries:
        (job,) = api.post("workers/fetch", FETCH).ok()["jobs"]
    assert len(queries) == 3, [query["sql"] for query in queries]
    assert job["state"] == "active"
    assert Worker.primary.values().get() == before


@pytest.mark.both
def test_an_ack_takes_one_for_the_key_and_one_for_the_job(api: Api) -> None:
    (job,) = api.post("workers/fetch", FETCH).ok()["jobs"]
    body = {"job_id": job["id"], "worker_id": "w", "run": job["run"], "result": {"a": [1, None]}}
    returns = database.dialect().has_update_returning
    with CaptureQueriesContext(database.connection()) as queries:
        done = api.post("workers/ack", body).ok()
    assert len(queries) == 2 + (not returns), [query["sql"] for query in queries]
    assert done["state"] == done["job"]["state"] == "completed"
    assert done["job"] == envelope.outline(read(UUID(job["id"])).envelope())
    api.post("workers/ack", body).error(409, "conflict")


def test_what_is_written_of_the_worker_covers_each_lease_until_it_is_written_again(
    api: Api,
) -> None:
    for seconds in (0, 11, 2, 200):
        Worker.primary.update(seen_at=F("seen_at") - timedelta(seconds=seconds))
        (key,) = [job["id"] for job in api.post("workers/fetch", FETCH).ok()["jobs"]]
        worker, job = Worker.primary.get(), read(UUID(key))
        assert job.lease_until is not None
        assert worker.seen_at + worker.dead_after_ms * MILLISECOND >= job.lease_until
    api.post("workers/fetch", {**FETCH, "visibility_timeout_ms": 600_000}).ok()
    assert Worker.primary.get().dead_after_ms == 660_000
    api.post("workers/fetch", FETCH).ok()
    assert Worker.primary.get().dead_after_ms == 660_000

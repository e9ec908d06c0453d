"""A PUSH over HTTP goes where an enqueue in Python goes: OUTBOX, and a type's `on_full`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs import handlers
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.operations.fetch import fetch
from django_ojs.spec import ids, json
from tests.factories import own_connections
from tests.http.api import Api, ApiResponse, stored
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

NAME = "bounded"
GENEROUS = 20
HEADER = "OJS-Block-Timeout"
ANYBODY = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"]}
REMOTE = {"remote": {"url": "http://127.0.0.1:9", "queues": ["remote-*"], "types": ["far.*"]}}
api = Api()


@pytest.fixture
def routed() -> Iterator[None]:
    with override_settings(OJS={**ANYBODY, "OUTBOX": REMOTE}):
        yield


@pytest.fixture
def full() -> None:
    queues.configure(NAME, {"backpressure": {"max_depth": 1}})
    ojs.enqueue("test.first", queue=NAME)


@pytest.fixture
def declared() -> Iterator[None]:
    """Have a type for each `on_full`."""
    ojs.job("test.kept", on_full="outbox")(kept)
    ojs.job("test.waits", on_full="block", block_timeout=GENEROUS)(waits)
    ojs.job("test.hasty", on_full="block", block_timeout=0.2)(hasty)
    yield
    for type_ in ("test.kept", "test.waits", "test.hasty"):
        handlers.registry.remove(type_)


def kept() -> None: ...


def waits() -> None: ...


def hasty() -> None: ...


def push(type_: str, **headers: str) -> ApiResponse:
    return api.post("jobs", {"type": type_, "args": [], "queue": NAME}, headers=headers)


def push_batch(*types: str, **headers: str) -> ApiResponse:
    jobs = [{"type": type_, "args": [], "queue": NAME} for type_ in types]
    return api.post("jobs/batch", {"jobs": jobs}, headers=headers)


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("body", [{"queue": "remote-a"}, {"type": "far.away"}])
def test_a_job_for_elsewhere_goes_into_the_outbox(body: dict[str, Any]) -> None:
    key = str(ids.uuid7())
    wanted = {"type": "test.job", "args": [{"a": "é"}], "id": key, "vendor": 1} | body
    response = api.post("jobs", {**wanted, "delay_until": "+PT1H"})
    job = response.ok(201)["job"]
    assert (job["id"], job["state"], job["args"], job["vendor"]) == (
        key,
        "pending",
        [{"a": "é"}],
        1,
    )
    assert job["created_at"] < job["scheduled_at"]
    assert "Location" not in response.headers
    (entry,) = OutboxEntry.objects.all()
    assert (str(entry.job_id), entry.destination, entry.state) == (key, "remote", "pending")
    document: Any = json.loads(entry.envelope)
    assert document["options"]["scheduled_at"] == job["scheduled_at"]
    assert stored() == 0
    api.get(f"jobs/{key}").error(404, "not_found")
    api.post("jobs", wanted).error(409, "duplicate", existing_job_id=key)
    assert OutboxEntry.objects.count() == 1


@pytest.mark.usefixtures("routed")
def test_a_batch_is_stored_where_each_job_belongs() -> None:
    types = ["far.job", "near.job", "far.job"]
    jobs = [{"type": type_, "args": [n]} for n, type_ in enumerate(types)]
    body = api.post("jobs/batch", {"jobs": jobs}).ok(201)
    assert [job["args"] for job in body["jobs"]] == [[0], [1], [2]]
    assert [job["state"] for job in body["jobs"]] == ["pending", "available", "pending"]
    assert body["count"] == 3
    assert (OutboxEntry.objects.count(), stored()) == (2, 1)
    bad = [*jobs, {"type": "far.job", "args": [], "priority": 1000}]
    api.post("jobs/batch", {"jobs": bad}).error(400, "invalid_request", index=3)
    assert (OutboxEntry.objects.count(), stored()) == (2, 1)


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("queue", [7, "", "remote-a b"])
def test_a_bad_queue_is_rejected_though_jobs_are_routed(queue: Any) -> None:
    body = {"type": "test.job", "args": [], "queue": queue}
    assert api.post("jobs", body).status == 400
    assert not OutboxEntry.objects.exists()


@pytest.mark.usefixtures("full", "declared")
def test_a_type_that_is_kept_in_the_outbox_comes_back_when_there_is_room() -> None:
    response = push("test.kept")
    job = response.ok(201)["job"]
    assert (job["state"], response.headers["X-OJS-Queue-Depth"]) == ("pending", "1")
    assert "Location" not in response.headers
    assert OutboxEntry.objects.get().destination == "local"
    assert fetch([NAME])
    assert local.deliver_all() == 1
    assert api.info(job["id"])["state"] == "available"
    # With room, it is stored as any other job.
    assert fetch([NAME])
    assert push("test.kept").ok(201)["job"]["state"] == "available"


@pytest.mark.usefixtures("full", "declared")
@pytest.mark.parametrize("type_", ["test.kept", "test.waits"])
def test_a_header_goes_before_what_the_type_declares(type_: str) -> None:
    began = time.monotonic()
    push(type_, **{HEADER: "0"}).error(429, "QUEUE_FULL")
    # It waits by the header only where the strategy of the queue is `block`.
    push(type_, **{HEADER: "50"}).error(429, "QUEUE_FULL")
    assert time.monotonic() - began < GENEROUS
    assert not OutboxEntry.objects.exists()


@pytest.mark.usefixtures("full", "declared")
def test_a_type_that_waits_is_stored_when_there_is_room() -> None:
    push("test.hasty").error(429, "QUEUE_FULL")
    responses: list[ApiResponse] = []

    def wait() -> None:
        with own_connections():
            responses.append(push("test.waits"))

    thread = threading.Thread(target=wait)
    thread.start()
    assert fetch([NAME])
    thread.join(BOUND)
    assert [response.status for response in responses] == [201]
    assert Job.objects.filter(type="test.waits", state="available").count() == 1


@pytest.mark.usefixtures("full", "declared")
def test_a_batch_follows_its_types_where_they_agree() -> None:
    body = push_batch("test.kept", "test.kept").ok(201)
    assert [job["state"] for job in body["jobs"]] == ["pending", "pending"]
    assert OutboxEntry.objects.count() == 2
    push_batch("test.kept", "test.other").error(429, "QUEUE_FULL")
    push_batch("test.kept", "test.kept", **{HEADER: "0"}).error(429, "QUEUE_FULL")
    assert OutboxEntry.objects.count() == 2

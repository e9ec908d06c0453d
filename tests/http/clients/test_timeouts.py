"""A job over its timeout in a worker over HTTP fails in time, though no client asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from pytest_django.live_server_helper import LiveServer

from django_ojs.models import Attempt, Job
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.maintenance import MaintenanceThread
from tests.factories import steady
from tests.http.clients.wire import Wire
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

TIMEOUT = timedelta(seconds=1)
#: What a busy machine may add: its lease, after which it would be taken back, is 30 minutes.
BOUND = timedelta(minutes=4)


@pytest.fixture
def maintenance() -> Iterator[None]:
    """The maintenance of another process, which has no other part in the job."""
    with steady():
        running = MaintenanceThread("elsewhere", JobLog())
        yield
        running.close()


@pytest.mark.parametrize("beats", [True, False])
def test_it_fails_at_its_deadline(live_server: LiveServer, maintenance: None, beats: bool) -> None:
    wire = Wire(live_server.url)
    key = wire.push(options={"timeout_ms": 1_000, "retry": {"max_attempts": 1}})
    wire.fetch(worker_id="w")
    if beats:
        wire.beat(worker_id="w", active_jobs=[key])
    # In the database: a request could be what finds it.
    eventually(lambda: Job.objects.filter(state="discarded").exists(), "it has failed")
    attempt = Attempt.objects.get()
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error["type"]) == ("timeout", "timeout")
    assert attempt.started_at is not None
    assert TIMEOUT <= attempt.finished_at - attempt.started_at < TIMEOUT + BOUND
    wire.send("POST", "/v1/workers/ack", {"job_id": key, "worker_id": "w"}, 409)

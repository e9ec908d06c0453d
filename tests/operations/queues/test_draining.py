"""A draining queue accepts no jobs, and workers finish those that are in it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

import django_ojs as ojs
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.events.models import Event
from django_ojs.models import Queue
from django_ojs.operations import ack, activate, fail, fetch, queues, retry
from django_ojs.operations.jobs import bulk
from django_ojs.spec.errors import QueuePaused
from django_ojs.storage import in_memory_state, queue_configs
from tests.admin.test_pages import BASE
from tests.admin.users import at, root
from tests.command_line.run import ojs as command
from tests.factories import BOOM, HOUR, age, hourly, in_state, push, read
from tests.http.api import Api
from tests.threads import elsewhere

pytestmark = pytest.mark.django_db

api = Api()
JOB = {"type": "t", "args": [], "options": {"queue": "old"}}


@pytest.mark.requirement("QC-S04")
def test_a_draining_queue_accepts_no_job_and_its_jobs_run_to_their_end() -> None:
    dead = in_state("discarded", queue="old")
    job, pending = push(queue="old", retry=hourly(2)), push(queue="old", pending=True)
    shown = api.post("queues/old/drain").ok()
    assert (shown["queue"], shown["status"]) == ({"name": "old", "paused": False}, "draining")
    body = api.post("jobs", JOB).error(422, "queue_paused")
    assert body["retryable"] is True
    assert body["details"]["queue"] == "old"
    assert "index" not in body["details"]
    batch = {"jobs": [{"type": "t", "args": []}, JOB]}
    assert api.post("jobs/batch", batch).error(422, "queue_paused")["details"]["index"] == 1
    with pytest.raises(QueuePaused, match="queue old is draining"):
        ojs.enqueue("t", queue="old")
    with pytest.raises(QueuePaused):
        retry.retry(dead.pk)
    assert bulk.retry_all([dead.pk]).failed == 1
    for others in ([], ["other"]):
        items = [ojs.request("t", [number], queue="old") for number in range(3)]
        with pytest.raises(QueuePaused):
            ojs.enqueue_batch([*(ojs.request("t", queue=name) for name in others), *items])
    for options in ({"scheduled_at": "+PT1H"}, {"pending": True}, {"unique": {"keys": ["args"]}}):
        api.post("jobs", {**JOB, "options": {"queue": "old", **options}}).error(422, "queue_paused")
    api.post("workflows", {"type": "group", "jobs": [JOB]}).error(422, "queue_paused")
    push(queue="source")
    with pytest.raises(QueuePaused):
        queues.delete("source", strategy="move", target="old")
    assert push(queue="other").state == "available"
    # What is in it goes on: further attempts, and pending jobs.
    (claimed,) = fetch.fetch(["old"])
    fail.fail(claimed.id, BOOM)
    age(job.pk, 2 * HOUR)
    (again,) = fetch.fetch(["old"])
    ack.ack(again.id)
    assert read(job.pk).state == "completed"
    assert activate.activate(pending.pk).state == "available"
    api.post("queues/old/resume").ok()
    api.post("jobs", JOB).ok(201)


@pytest.mark.requirement("QC-S04")
def test_each_process_learns_of_it_and_only_the_first_time_is_recorded() -> None:
    for _ in range(2):
        api.post("admin/queues/old/drain").ok()
    in_memory_state.reset()
    with pytest.raises(QueuePaused):
        push(queue="old")
    for _ in range(2):
        api.post("admin/queues/old/resume").ok()
    in_memory_state.reset()
    push(queue="old")
    entries = AuditEntry.primary.filter(object_id="old").order_by("pk")
    assert [entry.action for entry in entries] == ["queue.drained", "queue.resumed"]
    # It was not paused.
    assert not Event.primary.filter(type="queue.resumed").exists()


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_or_not_committed_is_not_known_to_others() -> None:
    for is_committed in (False, True):
        with transaction.atomic():
            queues.drain("old")
            for _ in range(2):
                with pytest.raises(QueuePaused):
                    ojs.enqueue("t", queue="old")
            assert "old" not in elsewhere(queue_configs.latest).draining
            with pytest.raises(QueuePaused):
                ojs.enqueue("t", queue="old")
            transaction.set_rollback(not is_committed)
        assert ("old" in queue_configs.latest().draining) is is_committed
    with transaction.atomic(), pytest.raises(QueuePaused):
        ojs.enqueue("t", queue="old")


@pytest.mark.django_db(transaction=True)
def test_what_a_test_has_changed_is_not_known_to_the_next_one() -> None:
    for _ in range(2):
        test: Any = transaction.atomic()
        test._from_testcase = True
        with test:
            assert ojs.enqueue("t", queue="old").state == "available"
            queues.drain("old")
            with pytest.raises(QueuePaused):
                ojs.enqueue("t", queue="old")
            transaction.set_rollback(True)
    assert ojs.enqueue("t", queue="old").state == "available"


def test_a_queue_may_be_paused_and_draining_and_a_resume_ends_both() -> None:
    queues.drain("old")
    assert api.post("queues/old/pause").ok()["status"] == "paused"
    shown = api.get("queues/old").ok()
    assert (shown["state"], shown["paused"]) == ("paused", True)
    assert shown["draining_at"]
    with pytest.raises(QueuePaused):
        push(queue="old")
    assert queues.drain("old").paused
    queues.resume("old")
    assert queues.get("old").state == "active"
    push(queue="old")


def test_a_queue_that_was_deleted_while_draining_is_a_new_one_with_its_next_job() -> None:
    push(queue="old")
    fetch.fetch(["old"])
    queues.drain("old")
    assert queues.delete("old", strategy="discard").state == "draining"
    push(queue="old")
    found = queues.get("old")
    assert (found.state, found.draining_at) == ("active", None)


def test_the_admin_asks_before_it_drains_and_shows_it_everywhere() -> None:
    push(queue="old")
    client = root()
    page = client.post(f"{BASE}queue/action/drain/", {"key": "old"}).content.decode()
    assert "Each enqueue to the queue fails" in page
    assert not Queue.primary.filter(pk="old").exists()
    client.post(f"{BASE}queue/action/drain/", {"key": "old", "confirmed": "1"})
    assert Queue.primary.get(pk="old").draining_at is not None
    for path in ("", "queue/", "queue/old/change/"):
        assert "draining" in client.get(at(path)).content.decode(), path
    page = client.get(f"{BASE}queue/old/change/").content.decode()
    assert "action/resume/" in page
    assert "action/drain/" not in page
    client.post(f"{BASE}queue/action/resume/", {"key": "old"})
    assert Queue.primary.get(pk="old").draining_at is None


def test_an_operator_drains_and_resumes_from_a_shell() -> None:
    push(queue="old")
    run = command("drain", "old")
    assert (run.code, "accepts no jobs" in run.out) == (0, True)
    assert queues.get("old").state == "draining"
    assert "draining" in command("stats").out
    assert command("resume", "old").code == 0
    assert queues.get("old").state == "active"

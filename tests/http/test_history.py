"""The histories of jobs, across their attempts, and of workflows."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.models import WorkflowStep
from django_ojs.operations import ack, cancel, fail, fetch, keyset, retry
from django_ojs.spec.failure import Failure
from tests.cases import together
from tests.factories import BOOM, HOUR, active, age, hourly, in_state, push, read
from tests.http.api import NOBODY, Api, make_key

pytestmark = pytest.mark.django_db

api = Api()


def history(key: Any, **query: Any) -> Any:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return api.get(f"jobs/{key}/history?{text}")


def types(key: Any) -> list[str]:
    return [event["event_type"] for event in history(key).ok()["events"]]


@pytest.mark.requirement("EH-01", "EH-03", "EH-04", "EH-05", "EH-08")
def test_a_job_that_failed_and_then_succeeded_has_all_its_attempts() -> None:
    job = active(args=["é"], retry=hourly(3), worker_id="w-1")
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    fetch.fetch([job.queue], worker_id="w-2")
    ack.ack(job.id)
    body = history(job.id).ok()
    assert body["total"] == len(body["events"]) == 5
    assert body["next_cursor"] is None
    created, started, failed, again, completed = body["events"]
    assert created["event_type"] == "job.created"
    assert created["data"] == {"queue": job.queue, "type": job.type, "args_size_bytes": 6}
    assert started["data"] == {"worker_id": "w-1", "attempt": 1}
    assert started["actor"] == {"type": "worker", "id": "w-1"}
    assert failed["event_type"] == "job.attempt_failed"
    assert (
        failed["data"].items()
        >= {
            "attempt": 1,
            "outcome": "failed",
            "error": "it broke",
            "error_type": "Boom",
            "will_retry": True,
            "retry_delay_ms": 3_600_000,
        }.items()
    )
    assert again["data"] == {"worker_id": "w-2", "attempt": 2}
    assert completed["event_type"] == "job.attempt_completed"
    assert completed["data"].keys() == {"attempt", "duration_ms"}
    assert len({event["id"] for event in body["events"]}) == 5
    assert {event["job_id"] for event in body["events"]} == {str(job.id)}


@pytest.mark.both
@pytest.mark.requirement("EH-12")
def test_pages_continue_where_the_one_before_ended_also_when_events_were_added() -> None:
    job = active(retry=hourly(3))
    fail.fail(job.id, BOOM)
    first = history(job.id, limit=2).ok()
    assert first["total"] == 3
    age(job.id, 2 * HOUR)
    fetch.fetch([job.queue])
    second = history(job.id, limit=2, cursor=first["next_cursor"]).ok()
    names = [event["event_type"] for event in first["events"] + second["events"]]
    assert names == [
        "job.created",
        "job.attempt_started",
        "job.attempt_failed",
        "job.attempt_started",
    ]
    assert second["next_cursor"] is None
    assert history(job.id, offset=3).ok()["events"] == second["events"][1:]
    assert history(job.id, offset=4).ok()["events"] == []
    history(job.id, cursor="x").error(400, "invalid_request", field="cursor")


@pytest.mark.requirement("EH-06")
@together(
    ("state", "last"),
    [
        ("available", "job.created"),
        ("active", "job.attempt_started"),
        ("retryable", "job.attempt_failed"),
        ("completed", "job.attempt_completed"),
        ("cancelled", "job.cancelled"),
        ("discarded", "job.discarded"),
    ],
    undo=True,
)
def test_the_last_event_says_how_the_job_is_now(state: str, last: str) -> None:
    assert types(in_state(state).pk)[-1] == last


@pytest.mark.requirement("EH-05", "EH-07")
def test_the_attempts_before_a_retry_by_hand_stay() -> None:
    job = active(retry=hourly(1))
    fail.fail(job.id, BOOM)
    events = history(job.id).ok()["events"]
    assert events[-2]["data"]["will_retry"] is False
    assert events[-1]["data"]["last_error"] == "it broke"
    retry.retry(job.id)
    fetch.fetch([job.queue])
    assert types(job.id) == [
        "job.created",
        "job.attempt_started",
        "job.attempt_failed",
        "job.attempt_started",
    ]


@pytest.mark.requirement("EH-02")
def test_a_run_that_was_returned_is_no_failure() -> None:
    job = active()
    fail.requeue(job.id, BOOM)
    (*_, returned) = history(job.id).ok()["events"]
    assert returned["event_type"] == "job.state_changed"
    assert (returned["data"]["from"], returned["data"]["to"]) == ("active", "available")


@pytest.mark.requirement("EH-06")
def test_an_active_job_that_is_cancelled_has_no_failure() -> None:
    job = active()
    cancel.cancel(job.id)
    assert types(job.id) == ["job.created", "job.attempt_started", "job.cancelled"]


def test_arguments_and_backtraces_are_not_in_it() -> None:
    job = active(args=["a-secret"], retry=hourly(3))
    fail.fail(job.id, BOOM)
    assert "a-secret" not in str(history(job.id).ok())
    assert "backtrace" not in str(history(job.id).ok())


@pytest.mark.parametrize("key", ["x", NOBODY])
def test_there_is_no_history_of_what_is_no_job(key: str) -> None:
    history(key).error(404, "not_found")


@pytest.mark.requirement("EH-13")
def test_a_deleted_history_is_gone_and_the_job_goes_on_with_a_new_one() -> None:
    job = active(args=["kept"], retry=hourly(3))
    fail.fail(job.id, BOOM)
    other = active()
    assert api.delete(f"jobs/{job.id}/history").ok() == {"deleted": True, "events_deleted": 3}
    assert history(job.id).ok() == {"events": [], "next_cursor": None, "total": 0}
    assert api.delete(f"jobs/{job.id}/history").ok()["events_deleted"] == 0
    kept = api.get(f"jobs/{job.id}").ok()["job"]
    assert (kept["args"], kept["state"], kept["error"]["message"]) == (
        ["kept"],
        "retryable",
        "it broke",
    )
    assert "errors" not in kept
    age(job.id, 2 * HOUR)
    fetch.fetch([job.queue])
    assert types(job.id) == ["job.attempt_started"]
    assert types(other.id) == ["job.created", "job.attempt_started"]
    entry = AuditEntry.primary.filter(action="job.history_deleted").earliest("pk")
    assert (entry.object_id, entry.detail["events"]) == (str(job.id), 3)
    api.delete(f"jobs/{NOBODY}/history").error(404, "not_found")


def workflow_history(key: Any, **query: Any) -> Any:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return api.get(f"workflows/{key}/history?{text}")


def end_next(queue: str, *, fails: bool = False) -> str:
    (job,) = fetch.fetch([queue])
    fail.fail(job.id, Failure(type="Boom", message="x", retryable=False)) if fails else ack.ack(
        job.id
    )
    workflows.advance_due()
    return str(job.id)


@pytest.mark.requirement("EH-09")
def test_the_history_of_a_workflow_has_its_creation_its_steps_and_its_end() -> None:
    steps = [{"type": each, "args": [], "queue": "w"} for each in ("a", "b")]
    created = api.post("workflows", {"type": "chain", "steps": steps}).ok(201)["workflow"]
    key = created["id"]
    (start,) = workflow_history(key).ok()["events"]
    assert start["event_type"] == "workflow.created"
    assert start["data"] == {"workflow_type": "chain", "total_jobs": 2}
    first = end_next("w")
    page = workflow_history(key, limit=1).ok()
    assert (page["total"], page["events"]) == (2, [start])
    second = end_next("w")
    rest = workflow_history(key, cursor=page["next_cursor"]).ok()
    assert (rest["total"], rest["next_cursor"]) == (4, None)
    *completed, end = rest["events"]
    assert [event["event_type"] for event in completed] == ["workflow.step_completed"] * 2
    assert [event["data"] for event in completed] == [
        {"step_index": 0, "job_id": first},
        {"step_index": 1, "job_id": second},
    ]
    assert end["event_type"] == "workflow.completed"
    assert end["data"].keys() == {"duration_ms", "status"}
    assert (end["data"]["status"], end["job_id"]) == ("completed", second)
    assert end["data"]["duration_ms"] >= 0
    assert {event["workflow_id"] for event in rest["events"]} == {key}
    workflow_history(key, cursor="x").error(400, "invalid_request", field="cursor")
    workflow_history(key, cursor=keyset.write(("x", 1))).error(400, "invalid_request")
    workflow_history(NOBODY).error(404, "not_found")


def test_the_history_of_a_batch_names_its_callbacks_and_no_step_that_failed() -> None:
    job = {"type": "a", "args": [], "queue": "w"}
    callbacks = {"on_complete": {**job, "type": "done"}}
    wanted = {"type": "batch", "jobs": [job, job], "callbacks": callbacks}
    key = api.post("workflows", wanted).ok(201)["workflow"]["id"]
    end_next("w", fails=True)
    end_next("w")
    last = end_next("w")
    *_, step, callback, end = workflow_history(key).ok()["events"]
    assert step["data"].keys() == {"step_index", "job_id"}
    assert callback["data"] == {"callback": "on_complete", "job_id": last}
    assert workflow_history(key).ok()["total"] == 4
    assert end["data"]["status"] in ("completed", "failed")
    WorkflowStep.primary.filter(workflow_id=key).delete()
    assert workflow_history(key).ok()["events"] == []


@override_settings(OJS={})
def test_readers_read_within_their_queues() -> None:
    job = push(queue="mine")
    path = f"jobs/{job.pk}/history"
    Api(make_key("read", queues=("mine",))).get(path).ok()
    Api(make_key("read", queues=("other",))).get(path).error(403, "PERMISSION_DENIED")
    Api(make_key("worker")).get(path).error(403, "PERMISSION_DENIED")
    assert read(job.pk).state == "available"

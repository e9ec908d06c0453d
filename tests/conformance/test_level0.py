"""Level 0, core: envelope, operations, states, events, middleware (ojs-conformance §2.1)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

import django_ojs as ojs
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidArgs
from django_ojs.spec.states import State
from django_ojs.worker.process import WorkerProcess
from tests.conformance.signals import received
from tests.factories import hourly, in_state, snapshot
from tests.http.api import Api, stored
from tests.middleware.samples import First, Inner, Note, Outer, Second
from tests.testapp import worker_jobs
from tests.worker.acceptance.ledger import ALIASES, becomes, marks
from tests.worker.acceptance.ledger import stored as job_of
from tests.worker.test_process import configured

pytestmark = pytest.mark.django_db

JOB: dict[str, Any] = {"type": "email.send", "args": ["a"]}
ERROR = {"type": "Boom", "message": "it broke", "backtrace": ["a.py:1", "b.py:2"]}
SAMPLES = "tests.middleware.samples"
api = Api()


@pytest.mark.requirement("L0-ENV-001")
def test_the_five_attributes_are_always_there() -> None:
    whole = JOB | {"specversion": "1.0", "id": str(ids.uuid7()), "queue": "email"}
    assert api.push(**whole).items() >= whole.items()
    assert api.push(**JOB).keys() >= {"specversion", "id", "type", "queue", "args"}
    for name in ("type", "args"):
        api.post("jobs", {**JOB, name: None}).error(400, "invalid_request")


@pytest.mark.requirement("L0-ENV-002")
def test_an_id_that_is_left_out_is_a_new_uuid7() -> None:
    made = [api.push()["id"] for _ in range(5)]
    assert all(ids.is_uuid7(UUID(key)) for key in made)
    assert made == sorted(set(made))


@pytest.mark.requirement("L0-ENV-003")
@pytest.mark.parametrize("type_", ["a", "a.b", "billing.invoice_v2.generate", "send-email.v2"])
def test_a_type_of_dotted_words_is_accepted(type_: str) -> None:
    assert api.push(type=type_)["type"] == type_


@pytest.mark.requirement("L0-ENV-003")
@pytest.mark.parametrize(
    "type_", ["", ".", "a.", ".a", "a..b", "1a", "a b", "a/b", "ä", "A.b", None, 1]
)
def test_any_other_type_is_rejected(type_: Any) -> None:
    api.post("jobs", JOB | {"type": type_}).error(400, "invalid_request")
    with pytest.raises(ojs.OJSError):
        ojs.enqueue(type_, [])
    assert stored() == 0


@pytest.mark.requirement("L0-ENV-004")
def test_the_name_of_a_queue_has_its_pattern() -> None:
    for good in ("a", "0", "email-high.eu"):
        assert api.push(queue=good)["queue"] == good
    for bad in ("", "A", "-a", ".a", "a_b", "a b", "a/b"):
        api.post("jobs", JOB | {"queue": bad}).error(400, "invalid_request")


@pytest.mark.requirement("L0-ENV-005", "CORE-5.1-10", "CORE-5.1-11")
@pytest.mark.django_db(transaction=True)
def test_args_are_an_array_of_what_json_has() -> None:
    args = ["s", 1, 1.5, True, None, [1], {"a": {"b": []}}]
    assert api.push(args=args)["args"] == args
    for bad in ({}, "x", 1, True):
        api.post("jobs", JOB | {"args": bad}).error(400, "invalid_request")
    for foreign in ({1, 2}, object(), b"x", float("nan"), {1: "a"}):
        with pytest.raises(InvalidArgs):
            ojs.enqueue("a", [foreign])


@pytest.mark.requirement("L0-ENV-006")
def test_unknown_fields_are_kept_all_the_way() -> None:
    extra = {"x-future": {"a": [1]}, "trace": "t"}
    key = api.push(**extra)["id"]
    assert api.info(key).items() >= extra.items()
    assert api.fetch()[0].items() >= extra.items()
    assert api.post("workers/ack", {"job_id": key}).ok()["job"].items() >= extra.items()


@pytest.mark.requirement("L0-OPS-001")
def test_push_stores_a_job() -> None:
    key = api.post("jobs", JOB).ok(201)["job"]["id"]
    assert api.info(key)["state"] == "available"
    assert ojs.get_job(job_of(ojs.enqueue("email.send", ["a"])).pk) is not None


@pytest.mark.requirement("L0-OPS-002")
def test_fetch_hands_a_job_to_one_worker() -> None:
    key = api.push()["id"]
    (job,) = api.fetch(worker_id="a")
    assert (job["id"], job["state"], job["attempt"]) == (key, "active", 1)
    assert api.fetch(worker_id="b") == []


@pytest.mark.requirement("L0-OPS-003")
def test_ack_completes_a_job() -> None:
    key = api.active()["id"]
    api.post("workers/ack", {"job_id": key, "result": 7}).ok()
    assert api.info(key).items() >= {"state": "completed", "result": 7}.items()


@pytest.mark.requirement("L0-OPS-004", "CORE-8.3-1")
def test_fail_keeps_what_went_wrong() -> None:
    key = api.active()["id"]
    api.post("workers/nack", {"job_id": key, "error": ERROR}).ok()
    error = api.info(key)["error"]
    assert (error["type"], error["message"]) == ("Boom", "it broke")
    assert error["backtrace"]


@pytest.mark.requirement("L0-LC-001", "CORE-5.3-2", "CORE-6.1-1")
@pytest.mark.parametrize("state", State)
def test_a_job_can_be_in_each_of_the_eight_states(state: State) -> None:
    assert len(State) == 8
    assert api.info(str(in_state(state).pk))["state"] == state


#: What each operation over HTTP may be done to, and what it leads to.
MOVES: dict[str, tuple[set[str], set[str]]] = {
    "ack": ({"active"}, {"completed"}),
    "nack": ({"active"}, {"retryable", "discarded"}),
    "cancel": ({"scheduled", "available", "pending", "active", "retryable"}, {"cancelled"}),
    "activate": ({"pending"}, {"available"}),
}


@pytest.mark.requirement("L0-LC-002", "L0-LC-003", "CORE-6-1", "CORE-6-2", "CORE-6.3-1")
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", MOVES)
def test_only_the_moves_of_the_table_are_made_and_any_other_is_explained(
    move: str, state: State
) -> None:
    job = in_state(state)
    before = snapshot(job.pk)
    response = api.post(f"jobs/{job.pk}/{move}", {"error": ERROR})
    sources, targets = MOVES[move]
    if state in sources:
        response.ok()
        assert api.info(str(job.pk))["state"] in targets
    else:
        error = response.error(409, "conflict", job_id=str(job.pk), current_state=state)
        expected = error["details"]["expected_state"]
        assert set([expected] if isinstance(expected, str) else expected) == sources
        assert snapshot(job.pk) == before


@pytest.mark.requirement("L0-LC-002", "CORE-6.4-1")
@pytest.mark.parametrize("state", sorted(set(State) - {State.AVAILABLE}))
def test_only_what_is_available_can_be_fetched(state: State) -> None:
    job = in_state(state)
    assert api.fetch(job.queue) == []
    assert api.info(str(job.pk))["state"] == state


@pytest.mark.requirement("L0-EVT-001", "L0-EVT-002")
@pytest.mark.django_db(transaction=True)
def test_each_step_of_a_job_is_an_event_that_names_it(settings: Any) -> None:
    settings.OJS = settings.OJS | {"KEEP_EVENTS": ["*"]}
    key = api.active(type="a.b", queue="q", retry={"max_attempts": 1})["id"]
    api.post("workers/nack", {"job_id": key, "error": ERROR}).ok()
    other = api.active(queue="other")["id"]
    api.post("workers/ack", {"job_id": other}).ok()
    reported = api.get("events?queues=q").ok()["events"]
    expected = {
        "job.enqueued": "available",
        "job.started": "active",
        "job.failed": "discarded",
    }
    for type_, state in expected.items():
        (event,) = [event for event in reported if event["type"] == type_]
        assert event["subject"] == event["data"]["job_id"] == key
        assert event["data"].items() >= {"job_type": "a.b", "queue": "q", "state": state}.items()
        assert event["time"].endswith("Z")
    (event,) = api.get("events?types=job.completed").ok()["events"]
    assert event["data"].items() >= {"job_id": other, "state": "completed"}.items()


@pytest.mark.requirement("L0-EVT-001", "L0-EVT-002")
@pytest.mark.django_db(transaction=True)
def test_each_step_of_a_job_is_a_signal_by_default() -> None:
    with received() as steps:
        key = api.active(type="a.b", queue="q", retry={"max_attempts": 1})["id"]
        api.post("workers/nack", {"job_id": key, "error": ERROR}).ok()
        other = api.active(type="a.b", queue="q")["id"]
        api.post("workers/ack", {"job_id": other}).ok()
    assert api.get("events?types=job.*").ok()["events"][0]["type"] == "job.discarded"
    assert [(name, job.id, job.type, job.queue, job.state) for name, job in steps] == [
        ("job_enqueued", UUID(key), "a.b", "q", "available"),
        ("job_started", UUID(key), "a.b", "q", "active"),
        ("job_failed", UUID(key), "a.b", "q", "discarded"),
        ("job_discarded", UUID(key), "a.b", "q", "discarded"),
        ("job_enqueued", UUID(other), "a.b", "q", "available"),
        ("job_started", UUID(other), "a.b", "q", "active"),
        ("job_completed", UUID(other), "a.b", "q", "completed"),
    ]


@pytest.mark.requirement("L0-Q-001", "CORE-5.1-8", "CORE-5.1-9")
def test_a_job_without_a_queue_is_in_the_default_one() -> None:
    assert api.push()["queue"] == "default"
    assert len(api.fetch("default")) == 1


@pytest.mark.requirement("L0-WF-001")
def test_a_job_is_json_in_utf_8_under_the_media_type() -> None:
    body = '{"type":"a","args":["Grüße","\\ud83d\\ude00"],"meta":{"ü":1.5e3}}'.encode()
    response = api.post("jobs", body)
    job = response.ok(201)["job"]
    assert (job["args"], job["meta"]) == (["Grüße", "😀"], {"ü": 1500.0})
    assert json.loads(response.raw.content.decode("utf-8")) == response.body
    assert response.headers["Content-Type"] == "application/openjobspec+json"


@pytest.mark.requirement("L0-MW-001", "CORE-7.1-7")
def test_enqueue_middleware_runs_in_order_before_a_job_is_stored(settings: Any) -> None:
    settings.OJS = settings.OJS | {
        "ENQUEUE_MIDDLEWARE": [f"{SAMPLES}.{cls.__name__}" for cls in (First, Second)]
    }
    Note.back.clear()
    assert api.info(api.push()["id"])["meta"] == {"seen": ["first", "second"]}
    assert Note.back == ["second", "first"]


@pytest.mark.requirement("L0-MW-002")
@pytest.mark.django_db(transaction=True, databases=ALIASES)
def test_execution_middleware_wraps_the_run_of_a_handler(settings: Any) -> None:
    settings.OJS = settings.OJS | {
        "EXECUTION_MIDDLEWARE": [f"{SAMPLES}.{cls.__name__}" for cls in (Outer, Inner)]
    }
    Outer.calls.clear()
    job = job_of(worker_jobs.note.enqueue())
    WorkerProcess(configured(once=True)).run()
    becomes(job, "completed")
    assert marks(job) == ["ran"]
    assert Outer.calls == ["outer before", "inner before", "inner after", "outer after"]


@pytest.mark.requirement("L0-OPS-002", "L0-OPS-003")
@pytest.mark.django_db(transaction=True, databases=ALIASES)
def test_a_worker_runs_the_handler_of_a_job_that_came_over_http() -> None:
    key = api.push(type="worker.note", args=["over http"])["id"]
    WorkerProcess(configured(once=True)).run()
    job = api.info(key)
    assert (job["state"], job["result"], job["attempt"]) == ("completed", "over http", 1)


@pytest.mark.requirement("L0-OPS-004")
def test_the_last_failure_ends_a_job() -> None:
    job = in_state("discarded", retry=hourly(1))
    assert api.info(str(job.pk)).items() >= {"state": "discarded", "attempt": 1}.items()

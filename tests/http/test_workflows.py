"""Workflows over HTTP: both forms, what responses have, worked by a worker over HTTP, cancelled."""

from __future__ import annotations

import importlib
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.models import Workflow
from django_ojs.extensions.workflows.operations import StepDetail
from tests.factories import jobs
from tests.http.api import Api, make_key
from tests.operations.workflows.scenes import batch, chain, group, job, step

pytestmark = pytest.mark.django_db

ORDER = chain(job("order.validate", 1), job("payment.charge"), name="order")
GRAPH: dict[str, Any] = {
    "name": "onboarding",
    "steps": [
        {"id": "welcome", "type": "email.send", "args": ["a"], "depends_on": []},
        {"id": "profile", "type": "user.create", "args": ["b"], "depends_on": []},
        {
            "id": "confirm",
            "type": "email.send",
            "args": ["c"],
            "depends_on": ["welcome", "profile"],
        },
    ],
    "options": {"queue": "email"},
}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def closed(settings: Any) -> None:
    settings.OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}


def run(api: Api, result: Any = None, *, queue: str = "default", fails: bool = False) -> Any:
    """Work the next job as a worker over HTTP does; return it as it was fetched."""
    (found,) = api.post("workers/fetch", {"queues": [queue]}).ok()["jobs"]
    if fails:
        error = {"type": "Boom", "message": "it broke", "retryable": False}
        api.post("workers/nack", {"job_id": found["id"], "error": error}).ok()
    else:
        end(api, found, result)
    workflows.advance_due()
    return found


def end(api: Api, found: dict[str, Any], result: Any = None) -> None:
    api.post("workers/ack", {"job_id": found["id"], "result": result}).ok()
    # The view does this after the commit, which the transaction of a test does not do.
    workflows.advance_due()


@pytest.mark.requirement(
    "L3-CHAIN-001", "L3-CHAIN-002", "L3-DATA-001", "WF-01", "WF-09", "WF-S04", "EH-10"
)
def test_a_chain_is_created_and_worked_over_http(api: Api) -> None:
    response = api.post("workflows", ORDER)

    shown = response.ok(201)["workflow"]
    key = shown["id"]
    assert UUID(key).version == 7
    assert response.raw["Location"] == f"/ojs/v1/workflows/{key}"
    assert (shown["type"], shown["name"], shown["state"]) == ("chain", "order", "running")
    assert (shown["steps_total"], shown["steps_completed"]) == (2, 0)
    assert response.body["state"] == "running"
    counters = {"job_count": 2, "completed_count": 0, "failed_count": 0}
    assert shown["metadata"] == {"created_at": shown["created_at"], **counters}
    first, second = shown["steps"]
    assert (first["index"], first["type"], first["state"]) == (0, "order.validate", "pending")
    assert (second["state"], second["job_id"]) == ("waiting", None)

    fetched = run(api, {"total": 9})
    assert (fetched["id"], fetched["workflow_id"]) == (first["job_id"], key)
    assert fetched["parent_results"] == []
    (fetched,) = api.post("workers/fetch", {"queues": ["default"]}).ok()["jobs"]
    assert fetched["parent_results"] == [{"total": 9}]
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert [each["state"] for each in shown["steps"]] == ["completed", "active"]
    assert shown["steps"][0]["result"] == {"total": 9}
    end(api, fetched)
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert (shown["state"], shown["steps_completed"]) == ("completed", 2)
    assert shown["metadata"]["completed_at"] == shown["completed_at"]


@pytest.mark.requirement("WF-04")
def test_times_and_counters_of_a_client_are_ignored(api: Api) -> None:
    set_by_client = {
        "state": "completed",
        "metadata": {"job_count": 9, "completed_count": 9, "created_at": "2020-01-01T00:00:00Z"},
    }
    shown = api.post("workflows", {**ORDER, **set_by_client}).ok(201)["workflow"]
    assert (UUID(shown["id"]).version, shown["state"]) == (7, "running")
    counters = {"job_count": 2, "completed_count": 0, "failed_count": 0}
    assert shown["metadata"] == {"created_at": shown["created_at"], **counters}
    assert not shown["created_at"].startswith("2020")


@pytest.mark.requirement("L3-CHAIN-003", "WF-28", "WF-29", "WF-30")
def test_a_chain_that_fails_says_which_step_did(api: Api) -> None:
    key = api.post("workflows", ORDER).ok(201)["id"]
    failed = run(api, fails=True)
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert shown["state"] == "failed"
    assert [each["state"] for each in shown["steps"]] == ["failed", "cancelled"]
    assert shown["error"]["failed_step_index"] == 0
    assert shown["error"]["failed_job_ids"] == [failed["id"]]
    (error,) = shown["error"]["errors"]
    assert (error["job_id"], error["message"], error["attempt"]) == (failed["id"], "it broke", 1)
    assert api.post("workers/fetch", {"queues": ["default"]}).ok()["jobs"] == []


@pytest.mark.both
def test_the_graph_of_five_clients_is_worked_in_its_order(api: Api) -> None:
    response = api.post("workflows", GRAPH).ok(201)
    shown = response["workflow"]
    assert (shown["type"], shown["name"], shown["steps_total"]) == ("graph", "onboarding", 3)
    assert [each["id"] for each in shown["steps"]] == ["welcome", "profile", "confirm"]
    assert shown["steps"][2]["depends_on"] == ["welcome", "profile"]
    assert run(api, "w", queue="email")["args"] == ["a"]
    assert run(api, queue="email")["args"] == ["b"]
    last = run(api, queue="email")
    assert (last["args"], last["parent_results"]) == (["c"], ["w", None])
    assert api.get(f"workflows/{response['id']}").ok()["state"] == "completed"


@pytest.mark.requirement("L3-GROUP-001", "L3-GROUP-002")
def test_a_group_hands_out_all_its_jobs_and_reports_the_last(api: Api) -> None:
    response = api.post("workflows", group(job("a"), job("b"), job("c"))).ok(201)
    key = response["id"]
    assert response["jobs_total"] == 3
    found = api.post("workers/fetch", {"queues": ["default"], "count": 9}).ok()["jobs"]
    assert [each["type"] for each in found] == ["a", "b", "c"]
    for each in found[:2]:
        end(api, each)
    assert api.get(f"workflows/{key}").ok()["state"] == "running"
    end(api, found[2])
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert (shown["state"], shown["jobs_completed"]) == ("completed", 3)


@pytest.mark.requirement("L3-BATCH-001", "L3-BATCH-002")
@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_fires_the_callbacks_that_its_outcome_asks_for(api: Api, fails: bool) -> None:
    callbacks = {name: job(f"report.{name}", 1) for name in ("on_complete", "on_success")}
    callbacks["on_failure"] = job("report.on_failure", 1)
    response = api.post("workflows", batch(job("a"), job("b"), **callbacks)).ok(201)
    shown = response["workflow"]
    assert [each["type"] for each in shown["jobs"]] == ["a", "b"]
    assert shown["callbacks"]["on_success"]["args"] == [1]
    run(api, "x")
    run(api, "y", fails=fails)
    wanted = ["report.on_complete", "report.on_failure" if fails else "report.on_success"]
    fired = [run(api), run(api)]
    assert [each["type"] for each in fired] == wanted
    assert fired[0]["parent_results"] == ["x", None if fails else "y"]
    shown = api.get(f"workflows/{response['id']}").ok()["workflow"]
    assert shown["state"] == "completed"
    other = shown["callbacks"]["on_success" if fails else "on_failure"]
    assert (other["state"], other["reason"], other["job_id"]) == (
        "cancelled",
        "condition_not_met",
        None,
    )


def test_callbacks_of_nested_batches_are_neither_steps_nor_those_of_the_workflow(api: Api) -> None:
    first = batch(job("a"), on_complete=job("x1"))
    second = batch(job("b"), on_complete=job("x2"))
    key = api.post("workflows", chain(first, second, job("c"))).ok(201)["id"]
    run(api, fails=True)
    run(api)
    run(api)
    run(api)
    run(api, fails=True)
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert [each["type"] for each in shown["steps"]] == ["batch", "batch", "c"]
    # The callback of the first batch handled the failure of its member.
    assert [each["state"] for each in shown["steps"]] == ["completed", "completed", "failed"]
    assert shown["steps"][0]["jobs"][0]["state"] == "failed"
    assert shown["steps"][1]["callbacks"]["on_complete"]["state"] == "completed"
    assert shown["steps_total"] == 3
    assert "callbacks" not in shown
    assert shown["error"]["failed_step_index"] == 2
    assert [each["attempt"] for each in shown["error"]["errors"]] == [1, 1]


@pytest.mark.requirement("WF-32")
def test_a_nested_workflow_has_a_state_of_its_own(api: Api) -> None:
    inner = group(chain(job("b"), job("c")), job("d"), id="transform")
    key = api.post("workflows", chain(job("a"), inner, job("e"))).ok(201)["id"]

    def steps() -> list[Any]:
        found: list[Any] = api.get(f"workflows/{key}").ok()["workflow"]["steps"]
        assert [each["index"] for each in found] == [0, 1, 2]
        assert [each["type"] for each in found] == ["a", "group", "e"]
        return found

    found = steps()[1]
    assert (found["id"], found["state"], found["job_id"]) == ("transform", "waiting", None)
    assert [each["type"] for each in found["jobs"]] == ["chain", "d"]
    run(api)
    assert [each["state"] for each in steps()] == ["completed", "running", "waiting"]
    assert [each["state"] for each in steps()[1]["jobs"]] == ["running", "pending"]
    run(api, fails=True)  # b
    (nested, other) = steps()[1]["jobs"]
    assert [each["state"] for each in nested["steps"]] == ["failed", "cancelled"]
    assert (nested["state"], other["state"], steps()[1]["state"]) == (
        "failed",
        "pending",
        "running",
    )
    run(api)
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert [each["state"] for each in shown["steps"]] == ["completed", "failed", "cancelled"]
    # Of what the client sent, and not of all jobs one after the other.
    assert shown["error"]["failed_step_index"] == 1


def test_a_nested_workflow_is_cancelled_with_the_whole(api: Api) -> None:
    key = api.post("workflows", chain(group(job("a"), job("b")), job("c"))).ok(201)["id"]
    api.delete(f"workflows/{key}").ok()
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert [each["state"] for each in shown["steps"]] == ["cancelled", "cancelled"]
    assert shown["steps_cancelled"] == 3


def test_steps_have_the_index_of_the_client_whatever_their_order(api: Api) -> None:
    steps = [
        {"id": "last", "depends_on": ["first", "other"], **job("c")},
        {"id": "first", **job("a")},
        {"id": "other", **job("b")},
    ]
    key = api.post("workflows", {"steps": steps}).ok(201)["id"]
    run(api)
    run(api, fails=True)
    shown = api.get(f"workflows/{key}").ok()["workflow"]
    assert [each["id"] for each in shown["steps"]] == ["last", "first", "other"]
    assert shown["error"]["failed_step_index"] == 2


UUID7 = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"


@pytest.mark.parametrize(
    ("given", "shown"), [(UUID7, UUID7), (f"wf_{UUID7}", UUID7), ("wf_order-42", None)]
)
def test_the_id_of_a_client_makes_one_workflow_however_often_it_is_sent(
    api: Api, given: str, shown: str | None
) -> None:
    created = api.post("workflows", {**ORDER, "id": given}).ok(201)["workflow"]
    assert created["id"] == shown or created["client_id"] == given
    again = api.post("workflows", {**ORDER, "id": given})
    again.error(409, "duplicate", field="id", existing_workflow_id=shown or given)
    assert Workflow.primary.count() == 1
    assert jobs().count() == 1
    assert api.get(f"workflows/{given}").ok()["workflow"] == created
    assert api.delete(f"workflows/{given}").ok()["workflow"]["id"] == created["id"]


@pytest.mark.parametrize("given", [5, "", "a/b", "a b", "x" * 256])
def test_an_id_that_cannot_be_kept_is_rejected(api: Api, given: Any) -> None:
    api.post("workflows", {**ORDER, "id": given}).error(400, "invalid_request", field="id")


@pytest.mark.parametrize("sent", [group(job("a"), job("b")), {"steps": GRAPH["steps"][:2]}])
def test_the_steps_are_shown_whatever_the_type_and_at_the_top(api: Api, sent: Any) -> None:
    created = api.post("workflows", sent).ok(201)
    for body in (created, api.get(f"workflows/{created['id']}").ok()):
        assert body["workflow"]["steps"] == body["workflow"]["jobs"] == body["steps"]
        assert len(body["steps"]) == 2
        assert body["metadata"] == body["workflow"]["metadata"]


def test_callback_that_is_a_step_of_a_graph_is_listed_as_both(api: Api) -> None:
    steps = [{"id": "a", **job("a")}, {"id": "on_failure", "depends_on": ["a"], **job("b")}]
    shown = api.post("workflows", {"steps": steps}).ok(201)["workflow"]
    assert [each["type"] for each in shown["jobs"]] == ["a", "b"]
    assert list(shown["callbacks"]) == ["on_failure"]


@pytest.mark.requirement("WF-20")
def test_a_failed_callback_that_is_not_listed_has_no_index(api: Api) -> None:
    key = api.post("workflows", batch(job("a"), on_complete=job("x"))).ok(201)["id"]
    run(api)
    failed = run(api, fails=True)
    error = api.get(f"workflows/{key}").ok()["workflow"]["error"]
    assert "failed_step_index" not in error
    assert error["failed_job_ids"] == [failed["id"]]
    assert error["errors"][0]["callback"] == "on_complete"


def test_many_failed_members_are_not_compared_with_each_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time of the response grew with the square of their number.
    compared: list[object] = []
    monkeypatch.setattr(StepDetail, "__eq__", lambda *both: compared.append(both))
    key = api.post("workflows", group(job("a"), job("b"), job("c"))).ok(201)["id"]
    run(api)
    failed = [run(api, fails=True)["id"], run(api, fails=True)["id"]]
    error = api.get(f"workflows/{key}").ok()["workflow"]["error"]
    assert (error["failed_step_index"], error["failed_job_ids"]) == (1, failed)
    assert not compared


def test_results_that_are_too_large_together_are_references(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = api.post("workflows", group(job("a"), job("b"), job("c"))).ok(201)["id"]
    fetched = [run(api, "x" * 8), run(api, "y" * 8), run(api, "z" * 3)]
    monkeypatch.setattr("django_ojs.extensions.workflows.operations.queries.MAX_RESULTS", 15)
    shown = api.get(f"workflows/{key}").ok()["workflow"]["jobs"]
    assert [shown[0]["result"], shown[2]["result"]] == ["x" * 8, "z" * 3]
    assert shown[1]["result"] == {
        "result_ref": f"/ojs/v1/jobs/{fetched[1]['id']}",
        "result_size_bytes": 10,
        "result_content_type": "application/json",
    }
    monkeypatch.undo()
    shown = api.get(f"workflows/{key}").ok()["workflow"]["jobs"]
    assert [each["result"] for each in shown] == ["x" * 8, "y" * 8, "z" * 3]


@pytest.mark.statements
def test_the_jobs_of_steps_are_not_read(api: Api) -> None:
    key = api.post("workflows", ORDER).ok(201)["id"]
    with CaptureQueriesContext(connection) as queries:
        api.get(f"workflows/{key}").ok()
    steps = [each["sql"] for each in queries if '"ojs_workflow_step"."key"' in each["sql"]]
    assert steps
    assert not any('"ojs_workflow_step"."job"' in sql for sql in steps)


@pytest.mark.requirement("WF-35", "WF-36")
def test_a_workflow_is_cancelled_with_its_jobs_and_only_once(api: Api) -> None:
    key = api.post("workflows", ORDER).ok(201)["id"]
    run(api)
    (active,) = api.post("workers/fetch", {"queues": ["default"]}).ok()["jobs"]
    shown = api.delete(f"workflows/{key}").ok()["workflow"]
    assert (shown["state"], shown["steps_cancelled"]) == ("cancelled", 1)
    assert shown["steps_already_completed"] == 1
    assert shown["metadata"]["cancelled_at"] == shown["cancelled_at"]
    assert api.info(active["id"])["state"] == "cancelled"
    error = api.delete(f"workflows/{key}").error(409, "conflict")
    assert error["details"]["current_state"] == "cancelled"


@pytest.mark.both
def test_workflows_are_listed_the_latest_first_and_by_state(api: Api) -> None:
    keys = [api.post("workflows", ORDER).ok(201)["id"] for _ in range(3)]
    api.delete(f"workflows/{keys[1]}").ok()
    page = api.get("workflows?limit=2").ok()
    assert [each["id"] for each in page["workflows"]] == [keys[2], keys[1]]
    assert page["pagination"]["total"] == 3
    more = api.get(f"workflows?limit=2&cursor={page['pagination']['next_cursor']}").ok()
    assert [each["id"] for each in more["workflows"]] == [keys[0]]
    found = api.get("workflows?state=cancelled").ok()["workflows"]
    assert [each["id"] for each in found] == [keys[1]]


@pytest.mark.once
@pytest.mark.requirement("WF-02", "WF-03", "WF-13", "WF-33", "WF-37")
@pytest.mark.parametrize(
    ("definition", "path"),
    [
        ({"type": "chain", "steps": []}, "$.steps"),
        ({"type": "group"}, "$.jobs"),
        ({"type": "batch", "jobs": [job("a")]}, "$.callbacks"),
        ({"type": "saga", "steps": [job("a")]}, "$.type"),
        ({"type": [], "steps": [job("a")]}, "$.type"),
        ({"type": "chain", "steps": [{"type": {}, "args": []}]}, "$.steps[0].type"),
        ({"type": "chain", "steps": [{"type": {}}]}, "$.steps[0].args"),
        ({"steps": [{"id": "a", "type": [], "args": []}]}, "$.steps[0].type"),
        (batch(job("a"), on_complete={"type": [], "args": []}), "$.callbacks.on_complete.type"),
        (batch(job("a"), on_complete={"type": []}), "$.callbacks.on_complete.args"),
        (chain(job("a"), {"type": "B", "args": []}), "$.steps[1].type"),
        ({"steps": [{"id": "a", "type": "a", "args": [], "depends_on": ["b"]}]}, None),
        (
            {
                "steps": [
                    {"id": "a", "type": "a", "args": [], "depends_on": ["b"]},
                    {"id": "b", "type": "b", "args": [], "depends_on": ["a"]},
                ]
            },
            "$.steps[0].depends_on[0]",
        ),
        (
            {"steps": [step("a"), step("b", "a", "c"), step("c", "b")]},
            "$.steps[1].depends_on[1]",
        ),
    ],
)
def test_what_cannot_be_is_400_with_its_path_and_stores_nothing(
    api: Api, definition: dict[str, Any], path: str | None
) -> None:
    response = api.post("workflows", definition)
    assert response.status == 400
    (found,) = response.body["error"]["details"]["validation_errors"]
    if path is not None:
        assert found["path"] == path
    assert not Workflow.primary.exists()
    assert not jobs().exists()


def test_a_workflow_over_the_limit_of_jobs_is_rejected(api: Api, settings: Any) -> None:
    settings.OJS = {**settings.OJS, "MAX_WORKFLOW_JOBS": 2}
    api.post("workflows", group(job("a"), job("b"))).ok(201)
    api.post("workflows", group(job("a"), job("b"), job("c"))).error(400, "invalid_request")


@pytest.mark.requirement("WF-34")
@pytest.mark.parametrize("key", ["unknown", "019414d4-dddd-7000-8000-000000000001"])
def test_an_unknown_workflow_is_404(api: Api, key: str) -> None:
    error = api.get(f"workflows/{key}").error(404, "not_found")
    assert error["details"]["resource_type"] == "workflow"
    api.delete(f"workflows/{key}").error(404, "not_found")


@pytest.mark.usefixtures("closed")
def test_a_key_for_some_queues_creates_and_sees_no_workflow_with_a_job_in_another() -> None:
    limited, full = Api(make_key("admin", queues=("mine",))), Api(make_key("admin"))
    mine = group(job("a", queue="mine"), job("b", queue="mine"))
    mixed = group(job("a", queue="mine"), job("b", queue="other"))
    limited.post("workflows", mixed).error(403, "PERMISSION_DENIED")
    key = full.post("workflows", mixed).ok(201)["id"]
    own = limited.post("workflows", mine).ok(201)["id"]
    limited.get(f"workflows/{key}").error(403, "PERMISSION_DENIED")
    limited.delete(f"workflows/{key}").error(403, "PERMISSION_DENIED")
    page = limited.get("workflows").ok()
    assert [each["id"] for each in page["workflows"]] == [own]
    assert page["pagination"]["total"] == 1


@pytest.mark.django_db(transaction=True)
def test_the_next_step_is_available_with_the_response_to_an_ack_and_to_a_nack(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package has a function of the name of this module.
    advancing = importlib.import_module("django_ojs.extensions.workflows.operations.advance")
    monkeypatch.setattr(advancing, "INTERVAL", 3600.0)  # No FETCH does it instead.
    callbacks = {"on_failure": job("badly")}
    api.post("workflows", batch(chain(job("a"), job("b")), **callbacks)).ok(201)
    (found,) = api.post("workers/fetch", {"queues": ["default"]}).ok()["jobs"]
    api.post("workers/ack", {"job_id": found["id"]}).ok()
    (found,) = api.post("workers/fetch", {"queues": ["default"]}).ok()["jobs"]
    assert found["type"] == "b"
    error = {"type": "Boom", "message": "it broke", "retryable": False}
    api.post("workers/nack", {"job_id": found["id"], "error": error}).ok()
    (found,) = api.post("workers/fetch", {"queues": ["default"]}).ok()["jobs"]
    assert found["type"] == "badly"


@pytest.mark.django_db(transaction=True)
def test_a_full_queue_rejects_the_workflow_as_it_rejects_a_job(api: Api) -> None:
    api.put("queues/default/config", {"backpressure": {"max_depth": 1}}).ok()
    api.post("workflows", group(job("a"), job("b"))).error(429, "QUEUE_FULL")
    assert not Workflow.primary.exists()


@pytest.mark.parametrize("of", ["", "/history", "/progress"])
def test_an_id_that_no_database_can_store_is_not_found(api: Api, of: str) -> None:
    api.get(f"workflows/%00{of}").error(404, "not_found")

"""`/ojs/v1/admin/jobs/bulk/…`: nothing without confirmation, and exact counts."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.operations.jobs import bulk
from tests.cases import together
from tests.factories import in_state, push, push_many, read
from tests.http.api import Api, state_of, stored

pytestmark = pytest.mark.django_db

api = Api()
ACTIONS = ("retry", "cancel", "delete")


@pytest.mark.both
@pytest.mark.requirement("ADM-007")
def test_discarded_jobs_of_a_filter_are_retried() -> None:
    mine = in_state("discarded", queue="email", type="email.send").pk
    other = in_state("discarded", queue="billing").pk
    body = api.post(
        "admin/jobs/bulk/retry",
        {
            "filter": {
                "queue": "email",
                "state": "discarded",
                "type": "email.*",
                "since": "2020-01-01T00:00:00Z",
            },
            "confirm": True,
        },
    ).ok()
    assert body == {
        "action": "retry",
        "matched": 1,
        "succeeded": 1,
        "failed": 0,
        "retried": 1,
        "errors": [],
        "has_more": False,
    }
    assert (read(mine).state, read(other).state) == ("available", "discarded")


@pytest.mark.requirement("ADM-R005")
def test_jobs_are_cancelled_and_deleted() -> None:
    push_many(3, queue="email")
    flat = {"queue": "email", "confirm": True}
    assert api.post("admin/jobs/bulk/cancel", flat).ok()["cancelled"] == 3
    filtered = {"filter": {"state": ["cancelled"]}, "confirm": True}
    assert api.post("admin/jobs/bulk/delete", filtered).ok()["deleted"] == 3
    assert stored() == 0


def test_ids_select_as_well_and_the_reasons_name_them() -> None:
    dead, waiting = str(in_state("discarded").pk), str(push().pk)
    body = api.post("admin/jobs/bulk/retry", {"job_ids": [dead, waiting], "confirm": True}).ok()
    assert (body["matched"], body["succeeded"], body["failed"]) == (2, 1, 1)
    assert body["errors"] == [
        {"job_id": waiting, "error": "The job is available; retry needs it discarded."}
    ]
    assert state_of(dead) == "available"


@pytest.mark.once
@together("action", ACTIONS, undo=True)
@pytest.mark.requirement("ADM-007")
@together("confirm", [{}, *({"confirm": v} for v in (False, "true", 1, None, {}))], undo=True)
def test_without_the_literal_confirmation_nothing_happens(
    action: str, confirm: dict[str, Any]
) -> None:
    keys = [in_state(state, queue="q").pk for state in ("discarded", "scheduled", "completed")]
    before = [read(key).state for key in keys]
    response = api.post(f"admin/jobs/bulk/{action}", {"filter": {"queue": "q"}} | confirm)
    response.error(400, "invalid_request", field="confirm")
    assert [read(key).state for key in keys] == before


@pytest.mark.once
@together("action", ACTIONS, undo=True)
@together(
    ("body", "named"),
    [
        ({}, "filter"),
        ({"filter": {}}, "filter"),
        ({"filter": []}, "filter"),
        ({"filter": "all"}, "filter"),
        ({"filter": {"queues": ["q"]}}, "filter.queues"),
        ({"qeue": "q"}, "filter.qeue"),
        ({"filter": {"queue": 5}}, "queue"),
        ({"filter": {"queue": "nul\0"}}, ""),
        ({"filter": {"state": "done"}}, "filter.state"),
        ({"filter": {"state": [1]}}, "state"),
        ({"filter": {"queue": "q", "state": []}}, "filter.state"),
        ({"filter": {"type": "Not.a.type"}}, "type"),
        ({"filter": {"since": "today"}}, "since"),
        ({"filter": {"since": 5}}, "since"),
        ({"filter": {"priority": True}}, "priority"),
        ({"filter": {"priority": 1000}}, "priority"),
        ({"filter": {"error_type": ""}}, "error_type"),
        ({"job_ids": "x"}, "job_ids"),
        ({"job_ids": ["x"]}, "job_ids[0]"),
        ({"job_ids": [], "filter": {"queue": "q"}}, "filter"),
    ],
    undo=True,
)
def test_what_is_ill_formed_is_400_and_changes_nothing(
    action: str, body: dict[str, Any], named: str
) -> None:
    push(queue="q")
    in_state("discarded", queue="q2")
    response = api.post(f"admin/jobs/bulk/{action}", body | {"confirm": True})
    assert response.status == 400
    assert named in response["error"]["message"]
    assert stored() == 2


def test_no_ids_are_no_jobs() -> None:
    body = api.post("admin/jobs/bulk/cancel", {"job_ids": [], "confirm": True}).ok()
    assert (body["matched"], body["errors"]) == (0, [])


def test_more_ids_than_the_limit_are_413_and_one_of_them_many_times_is_one() -> None:
    key = str(push().pk)
    many = [f"{key[:-4]}{n:04x}" for n in range(bulk.LIMIT + 1)]
    response = api.post("admin/jobs/bulk/cancel", {"job_ids": many, "confirm": True})
    response.error(413, "PAYLOAD_TOO_LARGE", max_batch_size=bulk.LIMIT)
    same = {"job_ids": [key] * (bulk.LIMIT + 1), "confirm": True}
    assert api.post("admin/jobs/bulk/cancel", same).ok()["matched"] == 1


def test_the_limit_of_one_call_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    push_many(3, queue="q")
    monkeypatch.setattr(
        "django_ojs.http.views.admin.bulk.BulkCancel.action",
        lambda which, within: bulk.cancel_all(which, within=within, limit=2),
    )
    body = api.post("admin/jobs/bulk/cancel", {"filter": {"queue": "q"}, "confirm": True}).ok()
    assert (body["succeeded"], body["has_more"]) == (2, True)


def test_a_body_is_needed() -> None:
    api.post("admin/jobs/bulk/retry").error(400, "invalid_payload")

"""`/ojs/v1/admin/jobs`: lists, details, cancel and retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_ojs.spec.states import TERMINAL, State
from tests.cases import together
from tests.factories import HOUR, age, in_state, push, push_many, read
from tests.http.api import Api

pytestmark = pytest.mark.django_db

api = Api()
UNKNOWN = "019503e1-7b2a-7000-8000-000000000099"


def listed(query: str) -> list[str]:
    return [item["id"] for item in api.get(f"admin/jobs?{query}").ok()["items"]]


@pytest.mark.both
@pytest.mark.requirement("ADM-003")
def test_jobs_are_listed_in_pages_newest_first() -> None:
    jobs = [push() for _ in range(3)]
    for n, job in enumerate(jobs):
        age(job.pk, (3 - n) * HOUR)
    body = api.get("admin/jobs?per_page=2").ok()
    assert [item["id"] for item in body["items"]] == [str(jobs[2].pk), str(jobs[1].pk)]
    assert body["pagination"] == {"total": 3, "page": 1, "per_page": 2}
    assert listed("per_page=2&page=2") == [str(jobs[0].pk)]
    assert listed("order=asc")[0] == str(jobs[0].pk)


@pytest.mark.requirement("ADM-003")
def test_a_state_filters_the_list() -> None:
    jobs = {state: in_state(state) for state in State}
    for state, job in jobs.items():
        (item,) = api.get(f"admin/jobs?state={state}").ok()["items"]
        assert (item["id"], item["state"]) == (str(job.pk), state)
    assert len(listed("state=completed,discarded")) == 2
    assert len(listed("state=completed&state=discarded")) == 2


@pytest.mark.both
def test_queue_type_and_time_filter_the_list() -> None:
    job = push(queue="email", type="email.send")
    push(queue="other", type="other.thing")
    mine = [str(job.pk)]
    assert listed("queue=email") == mine
    assert listed("type=email.send") == mine
    assert listed("type=email.*") == mine
    age(job.pk, HOUR)
    # A plus that came unescaped is a blank to the server.
    at = read(job.pk).created_at.isoformat()
    assert listed(f"until={at}") == []
    assert str(job.pk) in listed(f"since={at}")
    assert listed(f"since={at}&until={at.replace('+00:00', 'Z')}") == []


def test_an_item_has_no_arguments_and_says_when_it_ended() -> None:
    for state in TERMINAL:
        job = in_state(state, queue=state.value)
        (item,) = api.get(f"admin/jobs?queue={state}").ok()["items"]
        assert item.keys().isdisjoint({"args", "meta", "result"})
        assert f"{state}_at" in item
        assert item["attempt"] == job.attempt


@pytest.mark.both
def test_a_total_that_is_not_exact_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_ojs.operations.jobs import numbered_pages

    monkeypatch.setattr(numbered_pages, "WINDOW", 2)
    push_many(3, queue="email", type="email.send")
    assert api.get("admin/jobs?type=email.send").ok()["pagination"] == {
        "total": 2,
        "page": 1,
        "per_page": 20,
        "total_capped": True,
    }
    assert api.get("admin/jobs?queue=email").ok()["pagination"]["total"] == 3


def test_more_than_a_hundred_a_page_is_a_hundred() -> None:
    push_many(101)
    body = api.get("admin/jobs?per_page=1000").ok()
    assert (len(body["items"]), body["pagination"]["per_page"]) == (100, 100)


@pytest.mark.once
@together(
    "query",
    [
        "page=0",
        "page=-1",
        "page=x",
        "page=99999999999999999999",
        "per_page=0",
        "sort=id",
        "order=up",
        "state=done",
        "queue=UPPER",
        "queue=nul%00",
        "type=Upper",
        "type=%25*",
        "type=nul%00*",
        "since=yesterday",
        "until=2020-01-01T00:00:00",
        "priority=101",
        "priority=1.5",
        "priority=%D9%A3",
        "error_type=%00",
    ],
    undo=True,
)
def test_a_query_that_makes_no_sense_is_400(query: str) -> None:
    error = api.get(f"admin/jobs?{query}").error(400, "invalid_request")
    assert query.partition("=")[0] in error["message"]


@pytest.mark.requirement("ADM-004")
def test_a_detail_is_the_whole_envelope_with_its_history() -> None:
    job = in_state("retryable", args=[{"to": "a@b.c"}], meta={"tenant": "acme"})
    body = api.get(f"admin/jobs/{job.pk}").ok()
    assert (body["id"], body["state"]) == (str(job.pk), "retryable")
    assert (body["args"], body["meta"]) == ([{"to": "a@b.c"}], {"tenant": "acme"})
    (error,) = body["errors"]
    assert (error["type"], error["message"], error["attempt"]) == ("Boom", "it broke", 1)
    assert error["occurred_at"] == error["timestamp"]
    assert body["metadata"]["created_at"] == body["created_at"]
    assert body["metadata"].keys() >= {"created_at", "enqueued_at", "started_at"}


def test_a_detail_carries_the_retry_policy_under_both_names() -> None:
    job = api.push(retry={"max_attempts": 7})
    body = api.get(f"admin/jobs/{job['id']}").ok()
    assert body["retry_policy"]["max_attempts"] == 7
    assert body["retry_policy"] == body["retry"]


def test_a_running_job_says_who_has_it() -> None:
    job = in_state("active")
    body = api.get(f"admin/jobs/{job.pk}").ok()
    assert body["worker_id"] == "worker-a"
    assert body["lease_until"] > body["started_at"]


@pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
def test_a_job_that_has_not_ended_can_be_cancelled(state: State) -> None:
    job = in_state(state)
    body = api.post(f"admin/jobs/{job.pk}/cancel").ok()
    assert (body["id"], body["state"]) == (str(job.pk), "cancelled")
    assert body["previous_state"] == state


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_job_that_has_ended_cannot_be_cancelled(state: State) -> None:
    job = in_state(state)
    api.post(f"admin/jobs/{job.pk}/cancel").error(409, "conflict", current_state=state.value)


def test_a_discarded_job_can_be_retried() -> None:
    job = in_state("discarded")
    body = api.post(f"admin/jobs/{job.pk}/retry").ok()
    assert (body["state"], body["attempt"], body["previous_state"]) == ("available", 0, "discarded")
    assert len(body["errors"]) == 1
    assert "error" not in body


@together("state", [state for state in State if state != "discarded"], undo=True)
def test_no_other_job_can_be_retried_a_cancelled_one_neither(state: State) -> None:
    job = in_state(state)
    api.post(f"admin/jobs/{job.pk}/retry").error(409, "conflict", current_state=state.value)
    assert read(job.pk).state == state


@together("key", [UNKNOWN, "nonsense", str(UUID(int=1)), UNKNOWN.upper(), "nul%00"], undo=True)
@together(("method", "suffix"), [("GET", ""), ("POST", "/cancel"), ("POST", "/retry")], undo=True)
def test_a_job_that_is_not_there_is_404(method: str, suffix: str, key: str) -> None:
    api.ask(method, f"admin/jobs/{key}{suffix}").error(404, "not_found")


def test_a_method_that_is_not_known_is_405_with_allow() -> None:
    response: Any = api.put("admin/jobs", {})
    assert response.status == 405
    assert "GET" in response.headers["Allow"]

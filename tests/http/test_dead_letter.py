"""Dead letters over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings

from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.spec import ids
from tests.cases import together
from tests.factories import HOUR, in_state, push
from tests.http.api import Api, make_key, state_of, stored
from tests.operations.jobs.test_dead_letters import dead, discarded

pytestmark = pytest.mark.django_db

api = Api()


def listed(query: str = "") -> list[str]:
    return [job["id"] for job in api.get(f"dead-letter?{query}").ok()["jobs"]]


class TestList:
    def test_there_are_none_at_first(self) -> None:
        assert api.get("dead-letter").ok() == {
            "jobs": [],
            "pagination": {"total": 0, "limit": 50, "offset": 0, "has_more": False},
        }

    def test_a_job_whose_attempts_are_spent_is_listed(self) -> None:
        job = api.active(queue="email", args=["a"], retry={"max_attempts": 1})
        error = {"code": "handler_error", "message": "it broke"}
        api.post("workers/nack", {"job_id": job["id"], "error": error}).ok()
        discarded()
        (found,) = api.get("dead-letter").ok()["jobs"]
        assert (
            found.items()
            >= {
                "id": job["id"],
                "state": "discarded",
                "args": ["a"],
                "queue": "email",
                "attempt": 1,
                "max_attempts": 1,
            }.items()
        )
        assert found["error"]["message"] == "it broke"
        assert found["discarded_at"]

    @pytest.mark.both
    def test_they_are_found_by_type_error_and_time(self) -> None:
        one = dead("Timeout", type="email.send")
        two = dead("Rejected", type="email.drop")
        Job.objects.filter(pk=one).update(finished_at=F("finished_at") - 2 * HOUR)
        since = api.get(f"dead-letter/{two}").ok()["job"]["discarded_at"]
        assert listed("type=email.send") == [str(one)]
        assert listed("type=email.*&error_type=Rejected") == [str(two)]
        assert listed(f"since={since}") == [str(two)]
        assert listed(f"until={since}") == [str(one)]

    @pytest.mark.once
    @together(
        "query",
        [
            "queue=No",
            "type=No",
            "error_type=%00",
            "since=yesterday",
            "until=2026-01-01",
        ],
        undo=True,
    )
    def test_what_cannot_be_looked_for_is_rejected(self, query: str) -> None:
        dead()
        api.get(f"dead-letter?{query}").error(400, "invalid_request")

    def test_a_total_that_is_not_counted_to_its_end_says_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keyset, "COUNT_LIMIT", 1)
        for _ in range(2):
            dead()
        assert api.get("dead-letter").ok()["pagination"]["total"] == 2
        page = api.get("dead-letter?since=2020-01-01T00:00:00Z").ok()["pagination"]
        assert (page["total"], page["total_capped"]) == (1, True)
        figures = api.get("dead-letter/stats").ok()
        assert (figures["total"], sum(figures["by_queue"].values())) == (2, 1)


def test_one_dead_letter_has_the_history_of_its_errors() -> None:
    job = api.get(f"dead-letter/{dead()}").ok()["job"]
    assert (job["state"], len(job["errors"])) == ("discarded", 1)


@pytest.mark.both
def test_the_figures_are_by_queue_and_error() -> None:
    assert api.get("dead-letter/stats").ok() == {
        "total": 0,
        "by_queue": {},
        "by_error_type": {},
        "retention": {"max_age": "P180D"},
    }
    dead("Timeout", queue="a")
    dead("Rejected", queue="a")
    body = api.get("dead-letter/stats").ok()
    assert (body["total"], body["by_queue"]) == (2, {"a": 2})
    assert body["by_error_type"] == {"Timeout": 1, "Rejected": 1}
    assert body["oldest_at"] <= body["newest_at"]


class TestRetry:
    def test_it_needs_no_body_and_gives_all_attempts_anew(self) -> None:
        key = dead(queue="a")
        job = api.post(f"dead-letter/{key}/retry").ok()["job"]
        assert (job["state"], job["attempt"], job["id"]) == ("available", 0, str(key))
        assert job["re_enqueued_at"] == job["enqueued_at"]
        assert "error" not in job
        assert len(job["errors"]) == 1
        assert listed() == []
        assert len(api.fetch("a")) == 1

    def test_it_may_change_the_job(self) -> None:
        key = dead()
        changes = {"queue": "mended", "meta": {"by": "hand"}, "retry": {"max_attempts": 1}}
        job = api.post(f"dead-letter/{key}/retry", {"override": changes}).ok()["job"]
        assert (job["queue"], job["meta"], job["max_attempts"]) == ("mended", {"by": "hand"}, 1)

    @together(
        "override",
        [[], "x", {"queue": "No"}, {"queue": 5}, {"state": "active"}, {"args": {}}],
        undo=True,
    )
    def test_a_change_that_no_job_may_have_is_rejected(self, override: Any) -> None:
        key = dead()
        body = {"override": override}
        api.post(f"dead-letter/{key}/retry", body).error(400, "invalid_request")
        assert state_of(str(key)) == "discarded"

    def test_twice_is_once(self) -> None:
        key = dead()
        api.post(f"dead-letter/{key}/retry").ok()
        api.post(f"dead-letter/{key}/retry").error(404, "not_found")


def test_a_deleted_dead_letter_is_gone() -> None:
    key = dead()
    assert api.delete(f"dead-letter/{key}").ok() == {"deleted": True, "job_id": str(key)}
    assert stored() == 0
    api.delete(f"dead-letter/{key}").error(404, "not_found", resource_type="dead_letter_job")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "{}"), ("DELETE", "{}"), ("POST", "{}/retry")]
)
def test_what_is_no_dead_letter_is_not_found(method: str, path: str) -> None:
    others = [push().pk, in_state("completed").pk, discarded(), ids.uuid7(), "x", "stats%00"]
    for other in others:
        api.ask(method, f"dead-letter/{path.format(other)}").error(404, "not_found")
    assert stored() == 3


@override_settings(OJS={})
def test_credentials_for_some_queues_are_kept_to_them() -> None:
    mine, other = dead(queue="mine"), dead(queue="other")
    kept = Api(make_key("admin", queues=("mine",)))
    assert [job["id"] for job in kept.get("dead-letter").ok()["jobs"]] == [str(mine)]
    assert kept.get("dead-letter/stats").ok()["by_queue"] == {"mine": 1}
    kept.get("dead-letter?queue=other").error(403, "PERMISSION_DENIED")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/retry")):
        kept.ask(method, f"dead-letter/{other}{path}").error(403, "PERMISSION_DENIED")
    away = {"override": {"queue": "other"}}
    kept.post(f"dead-letter/{mine}/retry", away).error(403, "PERMISSION_DENIED")
    kept.post(f"dead-letter/{mine}/retry").ok()


@override_settings(OJS={})
def test_each_scope_may_do_what_it_is_for() -> None:
    key = dead()
    for scope in ("producer", "worker"):
        Api(make_key(scope)).get("dead-letter").error(403, "PERMISSION_DENIED")
    reader, operator = Api(make_key("read")), Api(make_key("operator"))
    reader.get(f"dead-letter/{key}").ok()
    reader.post(f"dead-letter/{key}/retry").error(403, "PERMISSION_DENIED")
    operator.delete(f"dead-letter/{key}").error(403, "PERMISSION_DENIED")
    operator.post(f"dead-letter/{key}/retry").ok()

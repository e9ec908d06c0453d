"""`/ojs/v1/admin/dead-letter`: list, look, retry, delete, purge."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.models import Job
from django_ojs.spec.states import State
from tests.cases import together
from tests.factories import HOUR, age, hourly, in_state, push, read
from tests.http.api import Api, state_of, stored

pytestmark = pytest.mark.django_db

api = Api()


def dead(**values: Any) -> Job:
    job = in_state("discarded", **values)
    assert job.dead_letter
    return job


def only_discarded() -> Job:
    job = in_state("discarded", retry=hourly(1, on_exhaustion="discard"))
    assert not job.dead_letter
    return job


def listed(query: str = "") -> list[str]:
    return [item["id"] for item in api.get(f"admin/dead-letter?{query}").ok()["items"]]


def test_only_dead_letters_are_listed_the_latest_to_die_first() -> None:
    old, new = dead(), dead()
    age(old.pk, HOUR)
    only_discarded()
    in_state("completed")
    body = api.get("admin/dead-letter").ok()
    assert [item["id"] for item in body["items"]] == [str(new.pk), str(old.pk)]
    assert body["pagination"] == {"total": 2, "page": 1, "per_page": 20}
    item = body["items"][0]
    assert (item["state"], item["dead_letter"]) == ("discarded", True)
    assert item["error"] == {"type": "Boom", "code": "Boom", "message": "it broke"}


@pytest.mark.both
def test_queue_type_error_and_the_time_of_death_filter_the_list() -> None:
    mine, other = dead(queue="email", type="email.send"), dead(queue="other")
    age(other.pk, 2 * HOUR)
    assert listed("queue=email") == [str(mine.pk)]
    assert listed("type=email.*") == [str(mine.pk)]
    assert len(listed("error_type=Boom")) == 2
    assert listed("error_type=Bang") == []
    at = (read(mine.pk).finished_at - HOUR).isoformat()  # type: ignore[operator]  # it has ended
    assert listed(f"since={at}") == [str(mine.pk)]
    assert listed(f"until={at}") == [str(other.pk)]
    assert listed("sort=created_at&order=asc") == [str(other.pk), str(mine.pk)]


def test_a_dead_letter_is_shown_with_its_history() -> None:
    job = dead(args=[1])
    body = api.get(f"admin/dead-letter/{job.pk}").ok()
    assert (body["id"], body["args"]) == (str(job.pk), [1])
    assert body["errors"][0]["type"] == "Boom"
    assert body["metadata"]["discarded_at"] == body["discarded_at"]


def test_one_is_retried_with_all_its_attempts() -> None:
    job = dead()
    body = api.post(f"admin/dead-letter/{job.pk}/retry").ok()
    assert (body["state"], body["attempt"], body["id"]) == ("available", 0, str(job.pk))
    api.post(f"admin/dead-letter/{job.pk}/retry").error(404, "not_found")


def test_one_is_deleted_without_a_body_in_the_response() -> None:
    job = dead()
    response = api.delete(f"admin/dead-letter/{job.pk}")
    assert (response.status, response.body) == (204, None)
    api.delete(f"admin/dead-letter/{job.pk}").error(404, "not_found")
    assert stored() == 0


@together("state", [state for state in State if state != "discarded"], undo=True)
def test_any_other_job_is_no_dead_letter(state: State) -> None:
    key = in_state(state).pk
    for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/retry")):
        api.ask(method, f"admin/dead-letter/{key}{suffix}").error(404, "not_found")
    assert read(key).state == state


def test_a_job_that_was_only_discarded_is_none_either() -> None:
    key = only_discarded().pk
    api.delete(f"admin/dead-letter/{key}").error(404, "not_found")
    assert stored() == 1


def test_a_filter_retries_dead_letters_and_no_other_jobs() -> None:
    mine, other = dead(queue="billing"), dead(queue="other")
    spared = only_discarded()
    body = {"filter": {"queue": "billing", "error_type": "Boom"}, "confirm": True}
    response = api.post("admin/dead-letter/retry", body).ok()
    assert (response["action"], response["matched"], response["retried"]) == ("retry", 1, 1)
    states = [state_of(str(job.pk)) for job in (mine, other, spared)]
    assert states == ["available", "discarded", "discarded"]
    assert api.post("admin/dead-letter/retry", {"confirm": True}).ok()["succeeded"] == 1
    assert state_of(str(spared.pk)) == "discarded"


def test_ids_do_not_make_a_dead_letter_of_another_job() -> None:
    spared = only_discarded()
    body = {"job_ids": [str(spared.pk)], "confirm": True}
    response = api.post("admin/dead-letter/retry", body).ok()
    assert (response["succeeded"], response["failed"]) == (0, 1)
    assert state_of(str(spared.pk)) == "discarded"


class TestPurge:
    def test_all_dead_letters_go_and_nothing_else(self) -> None:
        dead()
        dead()
        kept = [only_discarded(), push()]
        assert api.delete("admin/dead-letter", {"confirm": True}).ok() == {
            "purged_count": 2,
            "has_more": False,
        }
        assert {state_of(str(job.pk)) for job in kept} == {"discarded", "available"}

    @pytest.mark.both
    def test_older_ones_or_those_of_a_filter(self) -> None:
        old, new, other = dead(queue="q"), dead(queue="q"), dead(queue="other")
        age([old.pk, other.pk], 2 * HOUR)
        at = (read(new.pk).finished_at - HOUR).isoformat()  # type: ignore[operator]  # as above
        body = {"older_than": at, "filter": {"queue": "q"}, "confirm": True}
        assert api.delete("admin/dead-letter", body).ok()["purged_count"] == 1
        assert sorted(listed()) == sorted([str(new.pk), str(other.pk)])

    @together(
        "body",
        [
            {},
            {"confirm": "true"},
            {"confirm": 1},
            {"older_than": "2100-01-01", "confirm": True},
            {"older_than": 5, "confirm": True},
            {"filter": {"qeue": "q"}, "confirm": True},
            {"filter": {"until": "2100-01-01T00:00:00Z"}, "older_than": "2100-01-01T00:00:00Z"},
        ],
        undo=True,
    )
    def test_without_confirmation_or_with_nonsense_nothing_happens(
        self, body: dict[str, Any]
    ) -> None:
        dead()
        api.delete("admin/dead-letter", body).error(400, "invalid_request")
        assert stored() == 1

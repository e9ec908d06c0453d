"""Who may do what on the control plane, and only in which queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.http import urls
from tests.factories import WorkerFactory, active, in_state, push, silence
from tests.http.api import Api, make_key, state_of, stored

pytestmark = [pytest.mark.django_db, pytest.mark.once]

#: The routes below one prefix.
ROUTES = [each for each in urls.urlpatterns if str(each.pattern).startswith("ojs/v1/admin/")]

#: What destroys, or stops everything.
FOR_ADMINS = {
    ("ojs-admin-bulk-delete", "POST"),
    ("ojs-admin-queue-config", "PUT"),
    ("ojs-admin-queue-rate-limit", "PUT"),
    ("ojs-admin-queue-jobs", "DELETE"),
    ("ojs-admin-dead-letter", "DELETE"),
    ("ojs-admin-dead-letters", "DELETE"),
    ("ojs-admin-maintenance", "POST"),
}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    with override_settings(OJS={}):
        yield


@pytest.fixture
def operator() -> Api:
    return Api(make_key("operator"))


@pytest.fixture
def confined() -> Api:
    """Somebody who may do everything, in one queue."""
    return Api(make_key("admin", queues=("mine",)))


@pytest.mark.requirement("ADM-008")
def test_every_route_is_under_one_prefix() -> None:
    assert len(ROUTES) > 20
    named = [each for each in urls.urlpatterns if str(each.name).startswith("ojs-admin-")]
    # By their addresses: a test that imports the URLs again has made others.
    assert {str(each.pattern) for each in named} == {str(each.pattern) for each in ROUTES}


def test_what_destroys_needs_the_scope_of_admins_and_all_else_that_of_operators() -> None:
    found = {
        (str(pattern.name), method): scope
        for pattern in ROUTES
        for method, scope in pattern.callback.view_class.needs.items()  # type: ignore[attr-defined]  # Django's as_view
    }
    assert {key for key, scope in found.items() if scope == "admin"} == FOR_ADMINS
    assert {scope for key, scope in found.items() if key not in FOR_ADMINS} == {"operator"}


@pytest.mark.parametrize("scope", ["read", "producer", "worker"])
def test_the_scopes_of_the_data_plane_open_nothing(scope: str) -> None:
    job = in_state("discarded")
    api = Api(make_key(scope))
    api.get("admin/jobs").error(403, "PERMISSION_DENIED")
    api.get("admin/queues").error(403, "PERMISSION_DENIED")
    api.post(f"admin/jobs/{job.pk}/retry").error(403, "PERMISSION_DENIED")
    Api().get("admin/stats").error(401, "UNAUTHENTICATED")
    assert state_of(str(job.pk)) == "discarded"


def test_an_operator_may_retry_and_may_not_destroy(operator: Api) -> None:
    in_state("discarded", queue="q")
    confirmed = {"filter": {"queue": "q"}, "confirm": True}
    operator.post("admin/jobs/bulk/delete", confirmed).error(403, "PERMISSION_DENIED")
    operator.delete("admin/dead-letter", {"confirm": True}).error(403, "PERMISSION_DENIED")
    purge = {"states": ["discarded"], "confirm": True}
    operator.delete("admin/queues/q/jobs", purge).error(403, "PERMISSION_DENIED")
    operator.post("admin/system/maintenance", {"enabled": True}).error(403, "PERMISSION_DENIED")
    assert stored() == 1
    assert operator.post("admin/jobs/bulk/retry", confirmed).ok()["succeeded"] == 1


class TestQueuesOfAKey:
    def test_lists_hold_its_queues_alone(self, confined: Api) -> None:
        dead = in_state("discarded", queue="mine")
        in_state("discarded", queue="theirs")
        mine, theirs = push(queue="mine"), push(queue="theirs")
        body = confined.get("admin/jobs").ok()
        assert {item["id"] for item in body["items"]} == {str(mine.pk), str(dead.pk)}
        assert body["pagination"]["total"] == 2
        assert len(confined.get("admin/jobs?type=*").ok()["items"]) == 2
        names = [item["name"] for item in confined.get("admin/queues").ok()["items"]]
        assert names == ["mine"]
        letters = confined.get("admin/dead-letter").ok()["items"]
        assert [item["id"] for item in letters] == [str(dead.pk)]
        assert confined.get("admin/stats").ok()["jobs"]["available"] == 1
        assert str(theirs.pk) not in str(body)

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("GET", "admin/jobs?queue=theirs", None),
            ("GET", "admin/dead-letter?queue=theirs", None),
            ("GET", "admin/stats/history?queue=theirs", None),
            ("GET", "admin/queues/theirs", None),
            ("POST", "admin/queues/theirs/pause", None),
            ("POST", "admin/queues/theirs/resume", None),
            ("PUT", "admin/queues/theirs/config", {"max_envelope_bytes": 5}),
            ("PUT", "admin/queues/theirs/rate-limit", {"concurrency": 5}),
            ("DELETE", "admin/queues/theirs/jobs", {"states": ["completed"], "confirm": True}),
            ("POST", "admin/jobs/bulk/retry", {"filter": {"queue": "theirs"}, "confirm": True}),
            ("POST", "admin/system/maintenance", {"enabled": True}),
            ("POST", "admin/workers/w/quiet", None),
            ("DELETE", "admin/workers/w", None),
        ],
    )
    def test_what_concerns_others_is_403(
        self, confined: Api, method: str, path: str, body: Any
    ) -> None:
        push(queue="theirs")
        WorkerFactory(id="w", queues=("mine", "theirs"))
        silence("w")
        confined.ask(method, path, body).error(403, "PERMISSION_DENIED")

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "admin/jobs/{}"),
            ("POST", "admin/jobs/{}/cancel"),
            ("POST", "admin/jobs/{}/retry"),
            ("GET", "admin/dead-letter/{}"),
            ("DELETE", "admin/dead-letter/{}"),
            ("POST", "admin/dead-letter/{}/retry"),
        ],
    )
    def test_single_jobs_of_others_are_403(self, confined: Api, method: str, path: str) -> None:
        key = str(in_state("discarded", queue="theirs").pk)
        confined.ask(method, path.format(key)).error(403, "PERMISSION_DENIED")
        assert state_of(key) == "discarded"

    def test_bulk_operations_end_at_its_queues(self, confined: Api) -> None:
        mine = str(in_state("discarded", queue="mine").pk)
        theirs = str(in_state("discarded", queue="theirs").pk)
        everything = {"filter": {"state": "discarded"}, "confirm": True}
        assert confined.post("admin/jobs/bulk/delete", everything).ok()["matched"] == 1
        by_id = {"job_ids": [mine, theirs], "confirm": True}
        body = confined.post("admin/jobs/bulk/retry", by_id).ok()
        assert (body["succeeded"], body["failed"]) == (0, 2)
        assert confined.delete("admin/dead-letter", {"confirm": True}).ok()["purged_count"] == 0
        assert state_of(theirs) == "discarded"

    def test_it_sees_the_workers_of_its_queues_and_their_jobs_there(self, confined: Api) -> None:
        WorkerFactory(id="both", queues=("mine", "theirs"))
        WorkerFactory(id="other", queues=("theirs",))
        seen = active("both", queue="mine")
        active("both", queue="theirs")
        body = confined.get("admin/workers").ok()
        assert ([item["id"] for item in body["items"]], body["summary"]["total"]) == (["both"], 1)
        jobs = confined.get("admin/workers/both").ok()["jobs"]
        assert [job["id"] for job in jobs] == [str(seen.id)]
        confined.get("admin/workers/other").error(404, "not_found")

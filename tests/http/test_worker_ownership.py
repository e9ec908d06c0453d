"""A worker belongs to the API key that made it known (ojs-security §7.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication

from django_ojs.http.access import Access
from django_ojs.models import Worker
from django_ojs.operations import progress, worker_activity
from django_ojs.operations.access import api_keys
from django_ojs.operations.fetch import fetch
from django_ojs.operations.worker_activity import Principal
from django_ojs.spec.progress import Report
from django_ojs.spec.scopes import Scope
from tests.factories import WorkerFactory, active, push, silence
from tests.http.api import Api, make_key, state_of
from tests.model_factories import ApiKeyFactory

pytestmark = pytest.mark.django_db

FORGED = {"worker_id": "w", "hostname": "forged", "queues": ["mine"], "state": "quiet"}


class Certificate(BaseAuthentication):
    """Another authentication than keys: the name of the caller is that of its certificate."""

    def authenticate(self, request: Any) -> tuple[Any, Access] | None:
        name = request.META.get("HTTP_X_SUBJECT")
        queues = frozenset({request.META.get("HTTP_X_QUEUE", "mine")})
        scopes = frozenset({Scope.WORKER})
        return name and (AnonymousUser(), Access(name=name, scopes=scopes, queues=queues))

    def authenticate_header(self, request: Any) -> str:
        return "Certificate"


@pytest.fixture(autouse=True)
def _closed(settings: Any) -> None:
    settings.OJS = {
        "HTTP_AUTHENTICATION": [
            "django_ojs.http.authentication.ApiKeyAuthentication",
            "tests.http.test_worker_ownership.Certificate",
        ]
    }


def of_queue(*queues: str) -> Api:
    return Api(make_key("worker", queues=queues))


def row() -> dict[str, Any]:
    return Worker.primary.filter(pk="w").values().get()


def beat(api: Api, **values: Any) -> Any:
    return api.post("workers/heartbeat", {"worker_id": "w"} | values)


def rejected(api: Api) -> None:
    """Check that neither BEAT nor FETCH in the name of the worker has any effect."""
    job, before = push(queue="mine"), row()
    responses = [
        api.post("workers/heartbeat", FORGED),
        api.post("workers/beat", FORGED),
        api.post("workers/fetch", {"queues": ["mine"], "worker_id": "w"}),
    ]
    for response in responses:
        error = response.error(403, "PERMISSION_DENIED", field="worker_id")
        assert error["details"] == {"field": "worker_id"}
    assert row() == before
    assert state_of(str(job.pk)) == "available"


@pytest.mark.parametrize(
    "made_known",
    [
        pytest.param(lambda: beat(of_queue("other")).ok(), id="by the BEAT of a limited key"),
        pytest.param(
            lambda: of_queue("other").fetch("other", worker_id="w"), id="by the FETCH of one"
        ),
        pytest.param(lambda: beat(of_queue("mine")).ok(), id="by a key for the same queue"),
        pytest.param(lambda: beat(of_queue()).ok(), id="by a key for all queues"),
        pytest.param(lambda: WorkerFactory(id="w"), id="by a worker of this project"),
    ],
)
def test_a_limited_key_writes_no_worker_of_another_principal(
    made_known: Callable[[], object],
) -> None:
    made_known()
    rejected(of_queue("mine"))


def test_the_rejection_is_the_same_whatever_the_worker_is() -> None:
    WorkerFactory(id="w")
    beat(of_queue("other"), worker_id="x").ok()
    mine = of_queue("mine")
    one, two = (beat(mine, worker_id=name).error(403, "PERMISSION_DENIED") for name in "wx")
    assert one | {"request_id": ""} == two | {"request_id": ""}


def test_a_limited_key_goes_on_with_its_own_worker() -> None:
    push(queue="mine")
    mine = of_queue("mine")
    assert mine.fetch("mine", worker_id="w")
    beat(mine, hostname="h", queues=["mine"]).ok()
    assert mine.fetch("mine", worker_id="w") == []
    assert row()["hostname"] == "h"


def test_a_key_that_replaces_another_one_is_the_same_principal() -> None:
    old, text = ApiKeyFactory(scopes=["worker"], queues=["mine"])
    beat(Api(text)).ok()
    new = api_keys.replace(old.prefix)
    newest = api_keys.replace(new[0].prefix)
    beat(Api(new[1]), hostname="new").ok()
    beat(Api(newest[1]), hostname="newest").ok()
    beat(Api(text)).ok()
    assert row()["hostname"] == "newest"


def test_a_key_of_the_same_name_is_another_principal() -> None:
    beat(of_queue("mine")).ok()
    rejected(of_queue("mine"))


@pytest.mark.both
def test_a_key_for_all_queues_takes_a_worker_over() -> None:
    limited, unlimited = of_queue("mine"), of_queue()
    beat(limited).ok()
    beat(unlimited, hostname="h").ok()
    rejected(limited)
    Worker.primary.filter(pk="w").delete()
    beat(limited).ok()
    unlimited.fetch("mine", worker_id="w")
    rejected(limited)


def test_a_worker_of_this_project_takes_its_own_id_back() -> None:
    mine = of_queue("mine")
    beat(mine).ok()
    WorkerFactory(id="w")
    rejected(mine)


def test_other_authentication_owns_by_the_name_of_the_caller() -> None:
    mine = Api(HTTP_X_SUBJECT="CN=mail")
    beat(mine).ok()
    beat(mine, hostname="h").ok()
    rejected(Api(HTTP_X_SUBJECT="CN=other"))
    rejected(of_queue("mine"))


def test_a_limited_key_names_no_queue_of_others_as_its_own() -> None:
    mine = of_queue("mine")
    beat(mine, queues=["mine", "other"]).error(403, "PERMISSION_DENIED", field="queue")
    assert not Worker.primary.exists()


def test_the_claim_of_another_worker_is_acknowledged_only_under_its_name() -> None:
    job = active("w", queue="mine")
    mine = of_queue("mine")
    for route, body in (("ack", {}), ("nack", {"error": {"type": "Boom", "message": "."}})):
        asked = {"job_id": str(job.id), "worker_id": "x"} | body
        mine.post(f"workers/{route}", asked).error(409, "conflict")
        asked = {"job_id": str(job.id), "worker_id": "w"} | body
        of_queue("other").post(f"workers/{route}", asked).error(403, "PERMISSION_DENIED")
    assert state_of(str(job.id)) == "active"


def test_progress_reported_by_a_limited_key_keeps_no_worker_of_others_alive() -> None:
    job = active("w", queue="mine")
    beat(of_queue()).ok()
    silence("w")
    before = row()["seen_at"]
    body = {"job_id": str(job.id), "progress": 0.5}
    of_queue("mine").post("workers/progress", body).ok()
    assert row()["seen_at"] == before
    progress.report(job.id, Report.parse({"progress": 0.6}))
    assert row()["seen_at"] > before


def test_a_worker_that_becomes_known_between_check_and_record_is_left_alone() -> None:
    loser = Principal(id="loser", limited=True)
    push(queue="mine")
    (claimed,) = fetch(["mine"], worker_id="w", principal=loser)
    beat(of_queue()).ok()
    before = row()
    worker_activity.after_fetch("w", ["mine"], [claimed], loser, None)
    assert row() == before

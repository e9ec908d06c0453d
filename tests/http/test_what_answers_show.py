"""A caller without the right to read jobs gets no response with what another one's job carries.

A stolen key that only enqueues, or only works, must not disclose the arguments of other jobs.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from django_ojs.models import Job
from django_ojs.spec.states import State
from tests.cases import case
from tests.factories import in_state
from tests.http.api import Api, make_key
from tests.http.principals import TABLE
from tests.http.test_principals import ask

pytestmark = pytest.mark.django_db

WORD = "classified"
REQUIRED = {
    *("specversion", "id", "type", "queue", "args", "meta", "state", "attempt", "max_attempts"),
    *("priority", "created_at"),
}
STATES = ("available", "active", "completed", "pending", "discarded")
#: A policy that finds each job of the type, in any state and any queue.
ANY = {"keys": ["type"], "states": [state.value for state in State], "on_conflict": "ignore"}


@pytest.fixture(autouse=True)
def _closed(settings: Any) -> None:
    settings.OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}


def secret(state: str = "completed", **values: Any) -> Job:
    """Store a job in this state, with the word in each place that a job has for one."""
    api = Api(make_key("admin"))
    job = {
        "type": "a.b",
        "args": [WORD],
        "meta": {"who": WORD},
        "of_client": WORD,
        "options": {"tags": [WORD], "unique": ANY} | values,
    }
    key = api.push(**job)["id"]
    if state == "pending":
        return Job.objects.get(pk=key)
    if state != "available":
        api.fetch("default", worker_id="w")
    if state == "completed":
        api.post("workers/ack", {"job_id": key, "result": WORD}).ok()
    return Job.objects.get(pk=key)


def is_outline(shown: dict[str, Any], job: Job) -> bool:
    """Whether a client can read it as the job, and it says nothing of what the job carries."""
    job.refresh_from_db()
    known = {"id": str(job.pk), "type": job.type, "queue": job.queue, "state": job.state}
    return (
        set(shown) - {"previous_state"} == REQUIRED
        and shown.items() >= known.items()
        and (shown["args"], shown["meta"]) == ([], {})
    )


def duplicate(**values: Any) -> dict[str, Any]:
    return {"type": "a.b", "args": [], "options": {"unique": ANY} | values}


def test_a_producer_does_not_read_the_job_that_its_job_equals() -> None:
    job, api = secret(), Api(make_key("producer"))
    for queue in ("default", "another"):
        body = api.post("jobs", duplicate(queue=queue)).ok()
        assert body["deduplicated"] is True
        assert is_outline(body["job"], job)
        (shown,) = api.post("jobs/batch", {"jobs": [duplicate(queue=queue)]}).ok(201)["jobs"]
        assert is_outline(shown, job)


def test_who_may_read_gets_it_whole() -> None:
    job, api = secret(), Api(make_key("producer", "read"))
    shown = api.post("jobs", duplicate()).ok()["job"]
    assert (shown["id"], shown["args"], shown["result"]) == (str(job.pk), [WORD], WORD)
    assert api.post("jobs/batch", {"jobs": [duplicate()]}).ok(201)["jobs"] == [shown]


def test_a_job_that_was_just_stored_is_whole_beside_one_that_was_not() -> None:
    job, api = secret(), Api(make_key("producer"))
    own = {"type": "own", "args": [1], "meta": {"a": 1}, "options": {"tags": ["x"]}}
    assert api.post("jobs", own).ok(201)["job"].items() >= {"args": [1], "tags": ["x"]}.items()
    found, new = api.post("jobs/batch", {"jobs": [duplicate(), own]}).ok(201)["jobs"]
    assert is_outline(found, job)
    assert (new["args"], new["meta"], new["tags"]) == ([1], {"a": 1}, ["x"])


def test_a_conflict_says_which_job_it_is_and_nothing_else() -> None:
    job, api = secret(), Api(make_key("producer"))
    policy = {"unique": ANY | {"on_conflict": "reject"}}
    response = api.post("jobs", duplicate() | {"options": policy})
    response.error(409, "duplicate", existing_job_id=str(job.pk))
    assert WORD not in response.raw.content.decode()


def test_who_is_kept_to_some_queues_does_not_read_a_job_that_has_left_them() -> None:
    policy = ANY | {"keys": ["type", "queue"]}
    job, api = secret(unique=policy), Api(make_key("producer", "read", queues=("default",)))
    assert api.post("jobs", duplicate(unique=policy)).ok()["job"]["args"] == [WORD]
    Job.objects.filter(pk=job.pk).update(queue="another")
    assert is_outline(api.post("jobs", duplicate(unique=policy)).ok()["job"], job)


def test_a_producer_does_not_read_the_job_that_it_activates() -> None:
    job = secret("pending", pending=True)
    shown = Api(make_key("producer")).post(f"jobs/{job.pk}/activate").ok()["job"]
    assert is_outline(shown, job)
    assert shown["previous_state"] == "pending"


def test_a_worker_does_not_read_the_job_of_another_one_that_it_ends() -> None:
    api = Api(make_key("worker"))
    job = secret("active")
    assert is_outline(api.post("workers/ack", {"job_id": str(job.pk)}).ok()["job"], job)
    job = secret("active", unique=None)
    failed = api.post(f"jobs/{job.pk}/nack", {"error": {"type": "Boom", "message": "x"}}).ok()
    assert is_outline(failed["job"], job)
    assert failed["next_attempt_at"]


def test_a_worker_does_not_read_what_another_one_has_reported() -> None:
    job = secret("active")
    path = f"jobs/{job.pk}/progress"
    Api(make_key("admin")).put(path, {"progress": 0.5, "data": {"note": WORD}}).ok()
    api = Api(make_key("worker"))
    assert api.put(path, {"progress": 0.6}).ok().items() >= {"progress": 0.6, "data": None}.items()
    assert api.put(path, {"data": {"own": 1}}).ok()["data"] == {"own": 1}


def test_no_route_of_producers_and_workers_shows_what_a_job_carries() -> None:
    lines = [each for each in TABLE if each.least in ("producer", "worker")]
    # FETCH gives the job to whoever asks for one of its queue.
    for line, state in product([each for each in lines if each.route != "ojs-fetch"], STATES):
        job = in_state(state, args=[WORD], meta={"who": WORD})
        with case(f"{line.method} {line.route} {state}"):
            response = ask(Api(make_key(line.least)), line, str(job.pk))
            assert response.status < 500
            assert WORD not in response.raw.content.decode()

"""The core document, §5 to §8 and §14: what no test of a module shows by itself."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.extensions.events import storage as events
from django_ojs.models.worker import Directive
from django_ojs.operations import ack, activate, beat, expiry, fail, fetch, promotion, retry
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, InvalidArgs
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.storage import transitions
from django_ojs.worker.process import WorkerProcess
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    WORKER,
    active,
    age,
    hourly,
    in_state,
    push,
    read,
    silence,
    snapshot,
)
from tests.http.api import Api, make_key, stored
from tests.worker.acceptance.ledger import ALIASES
from tests.worker.test_process import configured

pytestmark = pytest.mark.django_db

META = {"trace_id": "t", "nested": {"list": [1, None, {"a": "b"}]}, "ü": 1.5}
SCHEMA = "https://example.com/schemas/email.json"
api = Api()


class Executing:
    """What a serialization of Python would run when it reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("executed",)


@pytest.mark.requirement("CORE-5.1-12")
def test_objects_of_python_are_no_arguments() -> None:
    for foreign in (Executing(), print, Executing, [Executing()], {"deep": Executing()}):
        with pytest.raises(InvalidArgs):
            ojs.enqueue("a", [foreign])  # type: ignore[list-item]  # the point of the test
    assert stored() == 0


@pytest.mark.requirement("CORE-5.2-4")
def test_meta_stays_as_it_was_sent() -> None:
    policy = {"max_attempts": 3, "initial_interval": "PT1M", "jitter": False}
    key = api.push(meta=META, scheduled_at="+PT1H", retry=policy)["id"]
    shown = [api.info(key)]
    age(UUID(key), 2 * HOUR)
    shown += api.fetch()
    api.post("workers/nack", {"job_id": key, "error": {"type": "Boom"}}).ok()
    shown.append(api.info(key))
    age(UUID(key), HOUR)
    shown += api.fetch()
    shown.append(api.post("workers/ack", {"job_id": key}).ok()["job"])
    states = ["scheduled", "active", "retryable", "active", "completed"]
    assert [job["state"] for job in shown] == states
    assert [job["meta"] for job in shown] == [META] * 5


@pytest.mark.requirement("CORE-5.2-5")
@pytest.mark.parametrize("given", [{}, {"meta": {}}, {"meta": {"own": 1}}])
def test_meta_needs_no_member(given: dict[str, Any]) -> None:
    assert api.push(**given)["meta"] == given.get("meta", {})


@pytest.mark.requirement("CORE-5.2-20")
def test_a_schema_is_kept() -> None:
    key = api.push(schema=SCHEMA)["id"]
    assert api.info(key)["schema"] == SCHEMA
    assert api.fetch()[0]["schema"] == SCHEMA


def moment(job: Any, name: str) -> datetime:
    return datetime.fromisoformat(job[name])


@pytest.mark.requirement("CORE-5.3-4", "CORE-5.3-7")
def test_the_times_are_those_of_the_transitions() -> None:
    key = api.push(scheduled_at="+PT1H", retry={"max_attempts": 1})["id"]
    pushed = moment(api.info(key), "created_at")
    age(UUID(key), 2 * HOUR)
    api.fetch()
    api.post("workers/nack", {"job_id": key, "error": {"type": "Boom"}}).ok()
    job = api.info(key)
    created, enqueued, started, completed = (
        moment(job, name) for name in ("created_at", "enqueued_at", "started_at", "completed_at")
    )
    assert abs(pushed - datetime.now(UTC)) < MINUTE
    assert created == pushed - 2 * HOUR
    assert enqueued - created > HOUR
    assert started <= completed < started + MINUTE


@pytest.mark.requirement("CORE-6.3-2", "CORE-6.5-5")
@pytest.mark.parametrize("state", ["completed", "cancelled", "discarded"])
def test_only_a_discarded_job_leaves_a_terminal_state(state: str) -> None:
    key = in_state(state, queue="a").pk
    assert fetch.fetch(["a"]) == []
    ways: list[Any] = [
        lambda: ack.ack(key),
        lambda: fail.fail(key, BOOM),
        lambda: fail.requeue(key),
        lambda: activate.activate(key),
    ]
    for way in ways:
        with pytest.raises(Conflict):
            way()
    assert read(key).state == state
    if state == "discarded":
        assert retry.retry(key).state == "available"
        return
    with pytest.raises(Conflict):
        retry.retry(key)
    assert read(key).state == state


@pytest.mark.requirement("CORE-6.3-4")
def test_the_attempt_only_grows() -> None:
    key = push(queue="a", retry=hourly(9)).pk
    attempts = [read(key).attempt]
    for end in (
        lambda: fail.requeue(key),
        lambda: fail.fail(key, BOOM),
        rescue.lapse,
        lambda: rescue.rescue([WORKER]),
        lambda: ack.ack(key),
    ):
        (job,) = fetch.fetch(["a"], worker_id=WORKER)
        attempts.append(job.attempt)
        if end is rescue.lapse:
            age(key, HOUR)
        end()
        attempts.append(read(key).attempt)
        age(key, 2 * HOUR)
    assert attempts == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.requirement("CORE-6.5-1", "CORE-7.4-8")
def test_a_transition_is_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    job = active()
    before = snapshot(job.id)

    def interrupted(*args: Any, **values: Any) -> None:
        raise RuntimeError

    # The history is stored by then.
    monkeypatch.setattr(transitions, "apply_one", interrupted)
    with pytest.raises(RuntimeError):
        fail.fail(job.id, BOOM)
    assert snapshot(job.id) == before


@pytest.mark.requirement("CORE-7.3-6")
@pytest.mark.django_db(transaction=True)
def test_an_ack_is_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.OJS = settings.OJS | {"KEEP_EVENTS": ["job.completed"]}
    job = active()
    before = snapshot(job.id)

    def interrupted(*args: Any, **values: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(events, "add", interrupted)
    with pytest.raises(RuntimeError):
        ack.ack(job.id)
    assert snapshot(job.id) == before


@pytest.mark.requirement("CORE-6.5-3")
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_claim_that_loses_is_no_error() -> None:
    taken, free = push(queue="a"), push(queue="a")
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM ojs_job WHERE id = %s FOR UPDATE", [taken.pk])
            assert [job.id for job in fetch.fetch(["a"], count=2, due=False)] == [free.pk]
            assert fetch.fetch(["a"], due=False) == []
            cursor.execute("ROLLBACK")
    finally:
        other.close()
    assert [job.id for job in fetch.fetch(["a"], due=False)] == [taken.pk]


@pytest.mark.requirement("CORE-6.5-4")
@pytest.mark.parametrize("state", ["completed", "cancelled", "discarded"])
def test_nothing_happens_to_a_terminal_job_by_itself(state: str) -> None:
    key = in_state(state, queue="a", expires_at=3 * HOUR, timeout_ms=1).pk
    age(key, 4 * HOUR)
    beat.beat(WORKER, state=Directive.RUNNING, holding=[key])
    silence(WORKER, HOUR)
    before = snapshot(key)
    steps = (promotion.promote, expiry.expire, rescue.lapse, timeouts.enforce)
    assert [step() for step in steps] == [0, 0, 0, 0]
    assert rescue.rescue([WORKER]) == 0
    assert fetch.fetch(["a"]) == []
    assert snapshot(key) == before


@pytest.mark.requirement("CORE-8.3-2")
def test_the_error_is_the_last_one() -> None:
    key = push(queue="a", retry=hourly(3)).pk
    for n in range(1, 4):
        fetch.fetch(["a"])
        fail.fail(key, Failure(type=f"Boom{n}", message="it broke"))
        job = read(key).envelope()
        assert job["error"]["type"] == f"Boom{n}"
        assert [error["type"] for error in job["errors"]] == [f"Boom{m}" for m in range(1, n + 1)]
        age(key, 2 * HOUR)
    assert job["state"] == State.DISCARDED


CODE = ["__import__('os').getpid()", "{{ 7 * 7 }}", "${jndi:ldap://x}", "!!python/object:os.x"]


@pytest.mark.requirement("CORE-14-1")
@pytest.mark.django_db(transaction=True, databases=ALIASES)
@pytest.mark.parametrize("text", CODE)
def test_arguments_are_data(text: str) -> None:
    key = api.push(type="worker.note", args=[text])["id"]
    WorkerProcess(configured(once=True)).run()
    job = api.info(key)
    assert (job["state"], job["args"], job["result"]) == ("completed", [text], text)


#: Reading what these wrote can execute code.
EXECUTING = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "jsonpickle",
}


@pytest.mark.once
@pytest.mark.requirement("CORE-14-2")
def test_no_module_reads_a_serialization_that_executes() -> None:
    found = []
    for path in sorted(Path(ojs.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found += [f"{path.name}: {name}" for name in names if name.split(".")[0] in EXECUTING]
    assert found == []


@pytest.mark.requirement("CORE-14-3")
def test_meta_gives_no_rights(settings: Any) -> None:
    settings.OJS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}
    limited = Api(make_key("producer", queues=("mine",)))
    claims = {
        "queue": "mine",
        "queues": ["mine", "other"],
        "scope": "admin",
        "scopes": ["admin"],
        "user_id": "1",
        "is_superuser": True,
        "tenant_id": "other",
    }
    job = {"type": "a", "args": [], "meta": claims}
    limited.post("jobs", job | {"queue": "other"}).error(403, "PERMISSION_DENIED")
    batch = {"jobs": [job | {"queue": "other"}]}
    limited.post("jobs/batch", batch).error(403, "PERMISSION_DENIED")
    key = limited.post("jobs", job | {"queue": "mine"}).ok(201)["job"]["id"]
    limited.delete(f"jobs/{key}").error(403, "PERMISSION_DENIED")
    assert read(UUID(key)).meta == claims

"""Steps over HTTP: a worker in another language replays, stores and suspends."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.test import override_settings

from django_ojs.extensions.steps import operations, store
from django_ojs.extensions.steps.models import Step
from django_ojs.models import Job
from django_ojs.operations.retry import retry
from django_ojs.operations.run_now import run_now
from django_ojs.storage import transitions
from tests.factories import in_state
from tests.http.api import NOBODY, Api, make_key
from tests.http.test_held_locks import answer
from tests.other_session import open_transaction

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

api = Api()
DAY_MS = 86_400_000


class Worker:
    """A run of a client: it numbers its steps."""

    def __init__(self, job: Any, **claim: Any) -> None:
        self.job: str = job["id"]
        self.path = f"jobs/{job['id']}/steps"
        self.claim = {"run": job["run"], **claim}

    def steps(self) -> list[Any]:
        found: list[Any] = api.get(f"{self.path}?run={self.claim['run']}").ok()["steps"]
        return found

    def store(self, number: int, name: str, **values: Any) -> Any:
        return api.post(self.path, self.claim | {"number": number, "name": name} | values)

    def suspend(self, number: int, name: str, **values: Any) -> Any:
        body = self.claim | {"number": number, "name": name} | values
        return api.post(f"{self.path}/suspend", body)


def again(job: Any) -> Any:
    (claimed,) = api.fetch(job["queue"])
    assert claimed["id"] == job["id"]
    return claimed


@pytest.mark.both
@pytest.mark.parametrize("worker_id", [None, "node-1"])
def test_the_next_run_reads_what_a_run_has_stored(worker_id: str | None) -> None:
    job = api.active(worker_id=worker_id)
    worker = Worker(job)
    assert worker.steps() == []
    step = worker.store(0, "charge", result={"id": "ch_1"}).ok(201)["step"]
    assert (step["outcome"], step["attempts"], step["kind"]) == ("done", 1, "run")
    # Its answer was lost.
    assert worker.store(0, "charge", result={"id": "ch_2"}).ok()["step"] == step
    api.post("workers/nack", {"job_id": job["id"], "requeue": True}).ok()
    worker.store(1, "ship").error(409, "conflict")
    later = Worker(again(job))
    assert later.steps() == [step]
    error = {"type": "OutOfStock", "message": "none left"}
    assert later.store(1, "ship", error=error).ok(201)["step"]["outcome"] == "failed"


def test_a_sleep_gives_the_job_back_and_is_over_in_the_next_run() -> None:
    job = api.active()
    answer = Worker(job).suspend(0, "cool off", delay_ms=DAY_MS).ok()
    assert answer["suspended"] is True
    asleep = api.info(job["id"])
    assert (asleep["state"], asleep["scheduled_at"]) == ("scheduled", answer["step"]["until"])
    operations.end_wait(Job.objects.get(pk=job["id"]).pk)
    worker = Worker(again(job))
    answer = worker.suspend(0, "cool off", delay_ms=DAY_MS).ok()
    assert (answer["suspended"], answer["step"]["outcome"]) == (False, "done")
    assert worker.suspend(0, "cool off", delay_ms=DAY_MS).ok() == answer
    assert worker.suspend(1, "past", until="2020-01-01T00:00:00Z").ok()["suspended"] is False


@pytest.mark.both
def test_a_signal_wakes_the_job_that_waits_and_is_the_result_of_its_step() -> None:
    job = api.active()
    assert Worker(job).suspend(0, "packed", kind="wait", key="order-7").ok()["suspended"] is True
    assert api.fetch(job["queue"]) == []
    api.post("signals", {"name": "packed", "key": "order-7", "payload": None}).ok(201)
    worker = Worker(again(job))
    answer = worker.suspend(0, "packed", kind="wait", key="order-7").ok()
    assert (answer["suspended"], answer["step"]["outcome"]) == (False, "done")
    assert answer["step"]["result"] is None
    # The same signal does not come twice to a job, and an early one is kept.
    api.post("signals", {"name": "packed", "key": "order-7", "payload": [2]}).ok(201)
    second = worker.suspend(1, "packed#2", kind="wait", key="order-7").ok()
    assert (second["suspended"], second["step"]["result"]) == (False, [2])


@pytest.mark.both
def test_a_wait_that_timed_out_is_an_outcome_of_its_own() -> None:
    job = api.active()
    Worker(job).suspend(0, "packed", kind="wait", key="7", delay_ms=DAY_MS).ok()
    operations.end_wait(Job.objects.get(pk=job["id"]).pk)
    worker = Worker(again(job))
    answer = worker.suspend(0, "packed", kind="wait", key="7", delay_ms=DAY_MS).ok()
    assert (answer["suspended"], answer["step"]["outcome"]) == (False, "timed_out")
    assert worker.steps() == [answer["step"]]


def test_a_job_that_is_run_before_its_time_waits_on_and_sleeps_no_longer() -> None:
    for values, suspended in (({"kind": "wait", "key": "7"}, True), ({"delay_ms": DAY_MS}, False)):
        job = api.active()
        first = Worker(job).suspend(0, "packed", **values).ok()
        run_now(UUID(job["id"]))
        answer = Worker(again(job)).suspend(0, "packed", **values).ok()
        assert answer["suspended"] is suspended
        assert answer["step"]["until"] == first["step"]["until"]


def test_a_step_that_failed_is_tried_again_later() -> None:
    job = api.active()
    error = {"type": "Timeout", "message": "slow"}
    Worker(job).suspend(0, "charge", kind="run", delay_ms=DAY_MS, error=error).ok()
    operations.end_wait(Job.objects.get(pk=job["id"]).pk)
    worker = Worker(again(job))
    (waiting,) = worker.steps()
    assert (waiting["outcome"], waiting["attempts"]) == ("waiting", 1)
    step = worker.store(0, "charge", result=3).ok(201)["step"]
    assert (step["outcome"], step["attempts"], "error" in step) == ("done", 2, False)


@pytest.mark.both
def test_after_a_retry_by_hand_a_step_has_all_its_attempts_again() -> None:
    job = api.active()
    later = {"kind": "run", "delay_ms": DAY_MS, "error": {"type": "Timeout", "message": "slow"}}
    Worker(job).suspend(0, "charge", **later).ok()
    operations.end_wait(Job.objects.get(pk=job["id"]).pk)
    again(job)
    error = {"type": "Boom", "message": "no", "retryable": False}
    api.post("workers/nack", {"job_id": job["id"], "error": error}).ok()
    retry(Job.objects.get(pk=job["id"]).pk)
    worker = Worker(again(job))
    assert worker.steps()[0]["attempts"] == 0
    assert worker.suspend(0, "charge", **later).ok()["step"]["attempts"] == 1


def test_a_suspension_spends_no_attempt() -> None:
    job = api.active()
    assert "x_spent_attempts" not in api.info(job["id"])
    Worker(job).suspend(0, "rest", delay_ms=DAY_MS).ok()
    shown = api.info(job["id"])
    assert (shown["attempt"], shown["x_spent_attempts"]) == (1, 0)
    operations.end_wait(Job.objects.get(pk=job["id"]).pk)
    claimed = again(job)
    answer = api.get(f"jobs/{job['id']}/steps?run={claimed['run']}").ok()
    assert (claimed["attempt"], answer["x_spent_attempts"]) == (2, 1)


@pytest.mark.both
def test_a_step_is_found_in_a_long_history(django_assert_max_num_queries: Any) -> None:
    job = api.active()
    worker = Worker(job)
    for number in range(5):
        worker.store(number, f"pay#{number}" if number > 1 else f"p{number}").ok(201)
    worker.store(6, "late").error(409, "conflict", number=6)
    assert worker.store(0, "p0").ok()["step"]["number"] == 0
    worker.store(5, "p0").error(400, "invalid_request", field="name")
    with django_assert_max_num_queries(4):  # The job, the time, near steps; and the INSERT.
        worker.store(5, "last").ok(201)


@pytest.mark.postgresql
def test_a_step_whose_job_is_locked_is_stored_once_it_is_free() -> None:
    worker = Worker(api.active())
    with open_transaction(lambda: transitions.lock(UUID(worker.job))):
        response = answer(lambda: worker.store(0, "a"))
        response.error(503, "backend_error", job_id=worker.job)
        assert int(response.headers["Retry-After"]) >= 1
        assert answer(lambda: worker.suspend(0, "a", delay_ms=5)).status == 503
    worker.store(0, "a").ok(201)


@pytest.mark.postgresql
def test_a_signal_that_another_session_sends_is_not_waited_for() -> None:
    worker = Worker(api.active())
    with open_transaction(lambda: store.lock_signal("packed", "7")):
        assert api.post("signals", {"name": "packed", "key": "7"}).status == 503
        assert worker.suspend(0, "packed", kind="wait", key="7").status == 503
    assert worker.suspend(0, "packed", kind="wait", key="7").ok()["suspended"] is True
    with open_transaction(lambda: transitions.lock(UUID(worker.job))):
        assert api.post("signals", {"name": "packed", "key": "7"}).status == 503
    api.post("signals", {"name": "packed", "key": "7"}).ok(201)
    assert api.info(worker.job)["state"] == "available"


@pytest.mark.both
def test_a_run_that_lost_its_job_stores_nothing() -> None:
    job = api.active(worker_id="one")
    other = Worker(job, worker_id="two")
    for ask in (other.store, other.suspend):
        ask(0, "a", delay_ms=1).error(409, "conflict", job_id=job["id"])
    Worker({**job, "run": 2}).store(0, "a").error(409, "conflict")
    api.get(f"{other.path}?run=1&worker_id=two").error(409, "conflict")
    assert not Step.objects.exists()
    Worker(job, worker_id="one").store(0, "a").ok(201)


def test_a_history_that_says_another_step_is_a_conflict() -> None:
    job = api.active()
    worker = Worker(job)
    worker.store(1, "b").error(409, "conflict", number=1)
    worker.store(0, "a").ok(201)
    worker.store(0, "b").error(409, "conflict", number=0)
    worker.suspend(0, "a", delay_ms=5).error(409, "conflict")
    worker.store(1, "a").error(400, "invalid_request", field="name")


@pytest.mark.parametrize("state", ["available", "completed", "scheduled", "discarded"])
def test_a_job_that_is_not_active_takes_no_steps(state: str) -> None:
    worker = Worker({"id": str(in_state(state).pk), "run": 1})
    worker.store(0, "a").error(409, "conflict", current_state=state)
    worker.suspend(0, "a", delay_ms=5).error(409, "conflict", current_state=state)
    api.get(f"{worker.path}?run=1").error(409, "conflict", current_state=state)


@pytest.mark.parametrize("key", ["x", "0", NOBODY])
def test_what_is_no_job_has_no_steps(key: str) -> None:
    worker = Worker({"id": key, "run": 1})
    worker.store(0, "a").error(404, "not_found")
    worker.suspend(0, "a", delay_ms=5).error(404, "not_found")
    api.get(f"{worker.path}?run=1").error(404, "not_found")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"run": None}, "run"),
        ({"run": "1"}, "run"),
        ({"number": None}, "number"),
        ({"number": -1}, "number"),
        ({"number": 2**40}, "number"),
        ({"name": None}, "name"),
        ({"name": 5}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a#b"}, "name"),
        ({"name": "a#1x"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a" * 201}, "name"),
        ({"worker_id": 5}, "worker_id"),
        ({"worker_id": "w" * 256}, "worker_id"),
        ({"error": []}, "error"),
    ],
)
def test_what_is_no_step_is_rejected(values: dict[str, Any], field: str) -> None:
    job = api.active()
    body = {"run": 1, "number": 0, "name": "a", "delay_ms": 5} | values
    for path in ("steps", "steps/suspend"):
        api.post(f"jobs/{job['id']}/{path}", body).error(400, "invalid_request", field=field)
    assert not Step.objects.exists()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "until"),
        ({"until": "tomorrow"}, "until"),
        ({"until": "9999-12-31T23:59:59Z"}, "until"),
        ({"delay_ms": 0}, "delay_ms"),
        ({"delay_ms": 2**31}, "delay_ms"),
        ({"kind": "gather", "delay_ms": 5}, "kind"),
        ({"kind": "wait"}, "key"),
        ({"kind": "wait", "key": "\n"}, "key"),
        ({"kind": "wait", "key": ""}, "key"),
        ({"kind": "run"}, "until"),
    ],
)
def test_what_is_no_suspension_is_rejected(values: dict[str, Any], field: str) -> None:
    job = api.active()
    Worker(job).suspend(0, "a", **values).error(400, "invalid_request", field=field)
    assert api.info(job["id"])["state"] == "active"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"key": "7"}, "name"),
        ({"name": "packed"}, "key"),
        ({"name": "\n", "key": "7"}, "name"),
        ({"name": "packed", "key": "7" * 201}, "key"),
        ({"name": "packed", "key": 7}, "key"),
    ],
)
def test_what_is_no_signal_is_rejected(body: dict[str, Any], field: str) -> None:
    api.post("signals", body).error(400, "invalid_request", field=field)


def test_a_result_that_is_too_large_is_413_and_nothing_is_stored() -> None:
    worker = Worker(api.active())
    with override_settings(OJS={**settings.OJS, "MAX_STEP_RESULT_BYTES": 100}):
        worker.store(0, "a", result="x" * 100).error(413, "PAYLOAD_TOO_LARGE", field="result")
    assert not Step.objects.exists()


@override_settings(OJS={})
def test_workers_store_within_their_queues() -> None:
    job = Api(make_key("admin")).active(queue="mine")
    path, body = f"jobs/{job['id']}/steps", {"run": 1, "number": 0, "name": "a"}
    other = Api(make_key("worker", queues=("other",)))
    other.post(path, body).error(403, "PERMISSION_DENIED")
    other.get(f"{path}?run=1").error(403, "PERMISSION_DENIED")
    Api(make_key("read")).post(path, body).error(403, "PERMISSION_DENIED")
    Api(make_key("worker", queues=("mine",))).post(path, body).ok(201)

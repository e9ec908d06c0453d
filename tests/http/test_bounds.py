"""Bounded queues as a client sees them (ojs-backpressure §5, §7)."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.http import HttpRequest

from django_ojs.extensions.backpressure import http as backpressure
from django_ojs.http import long_poll
from django_ojs.operations import queues
from django_ojs.spec.full_policy import WaitPolicy
from django_ojs.storage import queue_configs
from tests.factories import in_state, own_connections
from tests.http.api import Api, ApiResponse, state_of, stored
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "bounded"
GENEROUS = 20
api = Api()


def bound(depth: int | None, **more: Any) -> None:
    """Configure it as an operator would."""
    config = {"backpressure": {"max_depth": depth, **more}}
    api.put(f"admin/queues/{NAME}/config", config).ok()


def push(**headers: str) -> ApiResponse:
    return api.post("jobs", {"type": "a", "args": [], "queue": NAME}, headers=headers)


def push_batch(number: int, **headers: str) -> ApiResponse:
    jobs = [{"type": "a", "args": [], "queue": NAME}] * number
    return api.post("jobs/batch", {"jobs": jobs}, headers=headers)


def pressure(response: ApiResponse) -> tuple[str | None, ...]:
    names = ("Depth", "Bound", "Pressure")
    return tuple(response.headers.get(f"X-OJS-Queue-{name}") for name in names)


@pytest.mark.both
@pytest.mark.requirement("BP-002")
@pytest.mark.requirement("BP-003")
@pytest.mark.requirement("BP-005")
def test_a_full_queue_returns_429_with_its_depth_and_retry_after() -> None:
    bound(2)
    push().ok(201)
    push().ok(201)
    response = push()
    where = {"queue": NAME, "depth": 2, "bound": 2, "strategy": "reject"}
    error = response.error(429, "QUEUE_FULL", **where)
    assert error.items() >= where.items()
    assert error["retryable"] is True
    assert int(response.headers["Retry-After"]) >= 1
    assert pressure(response) == ("2", "2", None)
    assert stored() == 2


def test_a_bound_that_another_process_has_just_set_holds() -> None:
    bound(1)
    queue_configs.remember({}, seconds=3_600)
    push().ok(201)
    push().error(429, "QUEUE_FULL")


def test_a_bound_that_is_raised_or_taken_away_lets_the_next_request_in() -> None:
    bound(1)
    push().ok(201)
    push().error(429, "QUEUE_FULL")
    bound(2)
    push().ok(201)
    bound(0)
    push().ok(201)


@pytest.mark.requirement("BP-R004")
def test_a_success_from_the_threshold_on_says_how_full_the_queue_is_then() -> None:
    bound(10, warning_threshold=0.8)
    assert pressure(push_batch(7)) == (None, None, None)
    assert pressure(push()) == ("8", "10", "0.8")
    assert pressure(push_batch(2)) == ("10", "10", "1")


def test_of_several_queues_the_headers_are_of_the_fullest() -> None:
    bound(10, warning_threshold=0.1)
    queues.configure("other", {"backpressure": {"max_depth": 4, "warning_threshold": 0.1}})
    jobs = [{"type": "a", "args": [], "queue": name} for name in (NAME, "other", "other")]
    assert pressure(api.post("jobs/batch", {"jobs": jobs})) == ("2", "4", "0.5")


def test_a_bound_in_bytes_is_reported_in_bytes() -> None:
    config = {"backpressure": {"max_size_bytes": 5_000, "warning_threshold": 0.1}}
    api.put(f"admin/queues/{NAME}/config", config).ok()
    body = {"type": "a", "args": ["x" * 2_000], "queue": NAME}
    depth, most, _ = pressure(api.post("jobs", body))
    assert depth is not None
    assert 2_000 < int(depth) < 2_200
    assert most == "5000"
    api.post("jobs", body).ok(201)
    api.post("jobs", body).error(429, "QUEUE_FULL", bound=5_000, unit="bytes")


@pytest.mark.parametrize("strategy", ["reject", "block", "drop_oldest"])
def test_a_batch_is_stored_as_a_whole_or_not_at_all(strategy: str) -> None:
    bound(10, strategy=strategy)
    push_batch(8).ok(201)
    if strategy == "drop_oldest":
        push_batch(5).ok(201)
        assert api.get(f"queues/{NAME}/stats").ok()["stats"]["depth"] == 10
    else:
        push_batch(3).error(429, "QUEUE_FULL", depth=8)
        assert stored() == 8
    before = stored()
    # More than it may ever hold: nobody waits for that.
    never = push_batch(11, **{"OJS-Block-Timeout": "50"})
    assert never.error(429, "QUEUE_FULL", bound=10)["retryable"] is False
    assert "Retry-After" not in never.headers
    assert stored() == before


@pytest.mark.requirement("BP-R003")
def test_drop_oldest_takes_the_job_in() -> None:
    bound(1, strategy="drop_oldest")
    first = push().ok(201)["job"]["id"]
    push().ok(201)
    assert state_of(first) == "discarded"


@pytest.mark.both
@pytest.mark.requirement("BP-R002")
def test_a_request_that_blocks_gets_its_response_when_there_is_room() -> None:
    bound(1, strategy="block")
    push().ok(201)

    def wait() -> ApiResponse:
        with own_connections():
            return push(**{"OJS-Block-Timeout": str(GENEROUS)})

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(wait)
        _until_waiting(1)
        (job,) = api.fetch(NAME)
        found.result(BOUND).ok(201)
    assert long_poll.waiting.count == 0
    assert state_of(job["id"]) == "active"


def test_a_request_whose_client_has_gone_waits_no_longer_and_stores_nothing() -> None:
    """The client sends the job again, which would then be there twice."""
    bound(1, strategy="block")
    push().ok(201)
    client, connection = socket.socketpair()

    def wait() -> ApiResponse:
        with own_connections():
            body = {"type": "a", "args": [], "queue": NAME}
            server = {"gunicorn.socket": connection}
            return api.post("jobs", body, headers={"OJS-Block-Timeout": "50"}, **server)

    began = time.monotonic()
    with connection, ThreadPoolExecutor(1) as pool:
        found = pool.submit(wait)
        _until_waiting(1)
        client.close()
        found.result(BOUND).error(429, "QUEUE_FULL", strategy="block")
    assert time.monotonic() - began < 40
    assert stored() == 1


def test_without_the_header_or_with_another_strategy_nobody_waits() -> None:
    bound(1, strategy="block")
    push().ok(201)
    began = time.monotonic()
    push().error(429, "QUEUE_FULL", strategy="block")
    push(**{"OJS-Block-Timeout": "0"}).error(429, "QUEUE_FULL")
    bound(1)
    push(**{"OJS-Block-Timeout": "50"}).error(429, "QUEUE_FULL")
    assert time.monotonic() - began < 40


@pytest.mark.parametrize("given", ["9" * 10, "9" * 100, "0" * 40 + "1"], ids=len)
def test_a_time_of_any_length_is_at_most_the_longest_wait(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    make = backpressure._waiting

    def waiting(request: HttpRequest, seconds: float, *, always: bool) -> WaitPolicy:
        found = make(request, seconds, always=always)
        waits.append(found.seconds)
        return found

    monkeypatch.setattr(backpressure, "_waiting", waiting)
    push(**{"OJS-Block-Timeout": given}).ok(201)
    assert waits == [1 if given.startswith("0") else backpressure.LONGEST_BLOCK]


def test_a_wait_that_is_over_returns_429_and_is_published_once() -> None:
    bound(1, strategy="block")
    push().ok(201)
    push(**{"OJS-Block-Timeout": "1"}).error(429, "QUEUE_FULL", strategy="block")


def test_who_finds_no_place_to_wait_is_rejected_at_once(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "HTTP_WAITING_REQUESTS": 1}
    bound(1, strategy="block")
    push().ok(201)
    release = Event()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(long_poll.until, release.is_set, GENEROUS)
        _until_waiting(1)
        began = time.monotonic()
        push(**{"OJS-Block-Timeout": "50"}).error(429, "QUEUE_FULL")
        assert time.monotonic() - began < 40
        release.set()
        assert held.result(BOUND)


@pytest.mark.parametrize("bad", ["-1", "1.5", "", "soon", "1e3", "9" * 101, "٣"])
def test_a_bad_time_to_wait_is_rejected_whether_or_not_there_is_room(bad: str) -> None:
    for response in (
        push(**{"OJS-Block-Timeout": bad}),
        push_batch(1, **{"OJS-Block-Timeout": bad}),
    ):
        response.error(400, "invalid_request", field="OJS-Block-Timeout")
    assert stored() == 0


def test_a_deduplicated_job_is_no_job_too_many() -> None:
    bound(1)
    body = {"type": "a", "args": [], "queue": NAME, "unique": {"on_conflict": "ignore"}}
    first = api.post("jobs", body).ok(201)["job"]["id"]
    response = api.post("jobs", body)
    assert response.ok(200)["job"]["id"] == first
    assert pressure(response) == ("1", "1", "1")


def test_activation_and_retry_need_room_too() -> None:
    bound(1)
    pending = api.push(type="a", queue=NAME, pending=True)["id"]
    dead = in_state("discarded", queue=NAME)
    push().ok(201)
    for response in (
        api.post(f"jobs/{pending}/activate"),
        api.post(f"dead-letter/{dead.pk}/retry"),
        api.post(f"admin/jobs/{dead.pk}/retry"),
        api.post(f"admin/dead-letter/{dead.pk}/retry"),
    ):
        error = response.error(429, "QUEUE_FULL", queue=NAME, depth=1)
        assert error["bound"] == 1
        assert pressure(response) == ("1", "1", None)
        assert int(response.headers["Retry-After"]) > 1
    assert (state_of(pending), state_of(str(dead.pk))) == ("pending", "discarded")


def test_a_queue_is_not_deleted_into_one_that_is_full() -> None:
    bound(3)
    push_batch(2).ok(201)
    for _ in range(2):
        api.push(queue="source")
    response = api.delete("queues/source", {"strategy": "move", "target_queue": NAME})
    error = response.error(429, "QUEUE_FULL", queue=NAME, jobs_affected=0)
    assert "the others still wait in queue source" in error["message"]
    bound(4)
    done = api.delete("queues/source", {"strategy": "move", "target_queue": NAME}).ok(202)
    assert done["jobs_affected"] == 2


def _until_waiting(number: int) -> None:
    deadline = time.monotonic() + BOUND
    while long_poll.waiting.count < number and time.monotonic() < deadline:
        Event().wait(0.01)
    assert long_poll.waiting.count == number

"""Concurrent requests: one of them succeeds, and the others get a conflict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from django_ojs.operations.push import push_batch
from django_ojs.spec import ids
from tests.factories import GENERATED, EnvelopeFactory, in_state, own_connections
from tests.http.api import Api, ApiResponse, state_of, stored
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

ERROR = {"type": "Boom", "message": "it broke"}
ROUNDS = 12
api = Api()


def at_once(*asks: Callable[[Api], ApiResponse]) -> list[ApiResponse]:
    """Ask all of these at the same moment, each on a connection of its own.

    As a client does, each asks again that met a lock: on a busy machine the winner may hold the row
    for longer than a request waits.
    """
    start = Barrier(len(asks))

    def one(ask: Callable[[Api], ApiResponse]) -> ApiResponse:
        with own_connections():
            start.wait(BOUND)
            while (response := ask(Api())).status == 503:
                assert "Retry-After" in response.headers
            return response

    with ThreadPoolExecutor(len(asks)) as pool:
        return list(pool.map(one, asks, timeout=BOUND))


def statuses(responses: Sequence[ApiResponse]) -> Counter[int]:
    return Counter(response.status for response in responses)


def posting(path: str, body: Any = None) -> Callable[[Api], ApiResponse]:
    return lambda client: client.post(path, body)


def acking(key: str, **values: Any) -> Callable[[Api], ApiResponse]:
    return posting("workers/ack", {"job_id": key, **values})


def failing(key: str) -> Callable[[Api], ApiResponse]:
    return posting("workers/nack", {"job_id": key, "error": ERROR})


def cancelling(key: str) -> Callable[[Api], ApiResponse]:
    return lambda client: client.delete(f"jobs/{key}")


def test_one_of_two_acks_is_accepted_and_its_result_is_kept() -> None:
    for _ in range(ROUNDS):
        key = str(in_state("active").pk)
        responses = at_once(*(acking(key, result=number) for number in range(4)))
        assert statuses(responses) == {200: 1, 409: 3}
        (winner,) = [number for number, response in enumerate(responses) if response.status == 200]
        assert api.info(key)["result"] == winner


@pytest.mark.both
def test_ack_fail_and_cancel_have_one_winner_and_the_others_conflict() -> None:
    for _ in range(ROUNDS):
        key = str(in_state("active").pk)
        acked, failed, cancelled = at_once(acking(key), failing(key), cancelling(key))
        ended = state_of(key)
        if acked.status == 200:
            assert (failed.status, cancelled.status, ended) == (409, 409, "completed")
        elif failed.status == 200 and cancelled.status == 200:
            # It failed, and was cancelled while it waited for its next attempt.
            assert (acked.status, ended) == (409, "cancelled")
        else:
            won = "retryable" if failed.status == 200 else "cancelled"
            assert statuses([acked, failed, cancelled]) == {200: 1, 409: 2}
            assert ended == won


def test_no_job_is_handed_out_twice() -> None:
    queue = "contended"
    push_batch(EnvelopeFactory.create_batch(120, queue=queue), GENERATED)

    def drain(client: Api) -> ApiResponse:
        found: list[str] = []
        while claimed := client.fetch(queue, count=7):
            found += [job["id"] for job in claimed]
        response = client.get("health")
        response.body["found"] = found
        return response

    taken = [key for response in at_once(*[drain] * 8) for key in response["found"]]
    assert len(taken) == len(set(taken)) == 120


def test_of_many_pushes_with_one_id_one_is_stored() -> None:
    for _ in range(ROUNDS):
        key = str(ids.uuid7())
        body = {"id": key, "type": "a", "args": []}
        responses = at_once(*(posting("jobs", body | {"args": [n]}) for n in range(4)))
        assert statuses(responses) == {201: 1, 409: 3}
        (winner,) = [number for number, response in enumerate(responses) if response.status == 201]
        assert api.info(key)["args"] == [winner]


@pytest.mark.both
def test_of_two_batches_that_share_an_id_one_is_stored_whole() -> None:
    for _ in range(ROUNDS):
        before = stored()
        shared, own = str(ids.uuid7()), [str(ids.uuid7()) for _ in range(4)]
        batches = [
            {"jobs": [{"id": key, "type": "a", "args": []} for key in keys]}
            for keys in ([own[0], shared, own[1]], [own[2], own[3], shared])
        ]
        responses = at_once(*(posting("jobs/batch", batch) for batch in batches))
        assert statuses(responses) == {201: 1, 409: 1}
        assert stored() == before + 3


@pytest.mark.parametrize(
    ("state", "path"), [("pending", "jobs/{}/activate"), ("active", "workers/nack")]
)
def test_a_job_is_activated_or_given_back_once(state: str, path: str) -> None:
    for _ in range(ROUNDS):
        key = str(in_state(state).pk)
        body = {"job_id": key, "requeue": True} if state == "active" else None
        responses = at_once(*[posting(path.format(key), body)] * 3)
        assert statuses(responses) == {200: 1, 409: 2}
        assert state_of(key) == "available"

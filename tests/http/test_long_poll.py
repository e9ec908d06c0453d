"""FETCH that waits for a job, and how many may wait."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from django_ojs.http import long_poll
from tests.factories import own_connections
from tests.http.api import Api
from tests.worker.waiting import BOUND, eventually

GENEROUS = 20
api = Api()


def test_what_is_there_is_returned_at_once() -> None:
    assert long_poll.until(lambda: ["job"], GENEROUS) == ["job"]


def test_it_looks_until_there_is_something() -> None:
    looks: list[int] = []

    def look() -> list[int]:
        looks.append(1)
        return looks if len(looks) > 3 else []

    assert len(long_poll.until(look, GENEROUS)) == 4


@pytest.mark.parametrize("seconds", [0, -1])
def test_without_a_wait_it_looks_once(seconds: float) -> None:
    looks: list[int] = []
    assert long_poll.until(lambda: looks.append(1), seconds) is None
    assert len(looks) == 1


def test_it_ends_when_the_time_is_over_with_what_the_last_look_found() -> None:
    assert long_poll.until(list, 0.05) == []


def test_it_ends_without_another_look_when_it_is_over() -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(1)

    # It is over in the third pause.
    over = iter([False, False, True])
    assert long_poll.until(look, GENEROUS, is_over=lambda: next(over)) is None
    assert len(looks) == 3


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_client_is_gone_once_its_connection_is_closed(
    family: socket.AddressFamily, tmp_path: Path
) -> None:
    address: Any = ("127.0.0.1", 0) if family == socket.AF_INET else str(tmp_path / "s")
    with socket.create_server(address, family=family) as server:
        client = socket.socket(family)
        client.connect(server.getsockname())
        connection, _ = server.accept()
    with connection:
        environ = {"gunicorn.socket": connection}
        assert not long_poll.client_is_gone(environ)
        client.sendall(b"GET / HTTP/1.1")  # The next request of a client that is there.
        assert not long_poll.client_is_gone(environ)
        client.close()
        eventually(lambda: long_poll.client_is_gone(environ), "the connection is closed")


def test_of_a_server_that_does_not_pass_its_connection_on_nothing_is_known() -> None:
    assert not long_poll.client_is_gone({})


def test_no_more_wait_than_the_setting_allows_and_a_place_is_given_back(settings: Any) -> None:
    settings.OJS = {"HTTP_WAITING_REQUESTS": 2}
    release, waits = Event(), [Event(), Event()]

    def looking(number: int) -> Any:
        def look() -> bool:
            waits[number].set()
            return release.is_set()

        return look

    with ThreadPoolExecutor(2) as pool:
        held = [pool.submit(long_poll.until, looking(number), GENEROUS) for number in (0, 1)]
        assert all(wait.wait(BOUND) for wait in waits)
        # Both have looked once; from their second look on, they hold their places.
        deadline = time.monotonic() + BOUND
        while long_poll.waiting.count < 2 and time.monotonic() < deadline:
            release.wait(0.01)
        looks: list[int] = []
        assert long_poll.until(lambda: looks.append(1), GENEROUS) is None
        assert len(looks) == 1
        release.set()
        assert [future.result(BOUND) for future in held] == [True, True]
    assert long_poll.waiting.count == 0


def test_a_look_that_fails_gives_its_place_back() -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) > 1:
            raise LookupError

    with pytest.raises(LookupError):
        long_poll.until(look, GENEROUS)
    assert long_poll.waiting.count == 0


@pytest.mark.both
@pytest.mark.django_db(transaction=True)
def test_a_fetch_that_waits_gets_the_job_that_comes_meanwhile() -> None:
    def wait() -> Any:
        with own_connections():
            return Api().fetch(wait_ms=GENEROUS * 1_000)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(wait)
        deadline = time.monotonic() + BOUND
        while long_poll.waiting.count < 1 and time.monotonic() < deadline:
            Event().wait(0.01)
        key = api.push()["id"]
        assert [job["id"] for job in found.result(BOUND)] == [key]


@pytest.mark.django_db
def test_a_fetch_that_begins_after_its_client_has_gone_claims_nothing() -> None:
    """A busy server comes to the request when its client has given up."""
    key = api.push()["id"]
    client, connection = socket.socketpair()
    with connection:
        client.close()
        server = {"gunicorn.socket": connection}
        assert api.post("workers/fetch", {"queues": ["default"]}, **server).ok() == {"jobs": []}
    assert [job["id"] for job in api.fetch()] == [key]


@pytest.mark.django_db
def test_a_wait_that_ends_returns_no_jobs() -> None:
    assert api.fetch(wait_ms=30) == []


@pytest.mark.django_db
@pytest.mark.parametrize("bad", [-1, 20_001, 1.5, "1", True])
def test_a_bad_wait_is_rejected(bad: Any) -> None:
    response = api.post("workers/fetch", {"queues": ["a"], "wait_ms": bad})
    response.error(400, "invalid_request", field="wait_ms")

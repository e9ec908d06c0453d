"""Connections over which no reply comes are ended, and those at work are left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from django.db import Error, connection

from django_ojs.storage import connection_watch, database
from django_ojs.storage.connection_watch import ConnectionWatch
from tests.factories import connected_to, own_connections
from tests.faults.proxy import Proxy
from tests.worker.waiting import BOUND, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

STUCK = b"carries nothing"


@pytest.fixture
def network() -> Iterator[Proxy]:
    """Return a proxy before the server, by which all connections of this process go."""
    values = connection.settings_dict
    port = int(values["PORT"] or 5432)
    local = values["HOST"].startswith("/")
    upstream = f"{values['HOST']}/.s.PGSQL.{port}" if local else port
    with (
        closing(Proxy(upstream)) as network,
        connected_to({"HOST": "127.0.0.1", "PORT": str(network.port)}),
    ):
        yield network


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectionWatch]:
    monkeypatch.setattr(connection_watch, "ANSWER_TIMEOUT", BOUND)
    watch = ConnectionWatch(timeout=0.0)
    yield watch
    watch.close()


class Session(threading.Thread):
    """A thread with a connection of its own, that executes a statement."""

    def __init__(self, statement: str) -> None:
        super().__init__(daemon=True)
        self._statement = statement
        self.error: Error | None = None
        self.start()

    def run(self) -> None:
        with own_connections():
            try:
                with connection.cursor() as cursor:
                    cursor.execute(self._statement)
            except Error as error:
                self.error = error


def waiting() -> int:
    """Return how many connections of this process wait for a reply."""
    return sum(bool(database.dialect().is_waiting(link)) for link in database.watched())


def looks_until(watch: ConnectionWatch, condition: Callable[[], bool]) -> None:
    def is_true() -> bool:
        watch.look()
        return condition()

    eventually(is_true, "the watch has done it")


def test_one_that_the_server_has_heard_nothing_from_is_ended(
    network: Proxy, watch: ConnectionWatch
) -> None:
    connection.ensure_connection()
    network.stall(at=lambda data: STUCK in data)
    stuck = Session(f"SELECT '{STUCK.decode()}'")
    eventually(lambda: network.held, "the statement is on its way")
    looks_until(watch, lambda: not stuck.is_alive())
    assert stuck.error is not None
    # Only that one.
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


@pytest.mark.parametrize("is_beat", [False, True])
def test_a_statement_that_the_server_executes_is_waited_for(
    network: Proxy, watch: ConnectionWatch, is_beat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = watch._ask

    def ask(numbers: list[int]) -> object:
        asked.append(real(numbers))
        return asked[-1]

    monkeypatch.setattr(watch, "_ask", ask)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(7)")
        held = Session("SELECT pg_advisory_lock(7)")
        eventually(lambda: waiting() == 1, "it waits for the lock")
        if is_beat:
            watch.__enter__()
        looks_until(watch, lambda: len(asked) >= 3)
        cursor.execute("SELECT pg_advisory_unlock(7)")
    held.join(BOUND)
    assert not held.is_alive()
    assert held.error is None
    assert None not in asked


def test_without_an_answer_a_heartbeat_ends_all_and_another_statement_none(
    network: Proxy, watch: ConnectionWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_ask", lambda numbers: None)
    network.stall(at=lambda data: STUCK in data)
    stuck = Session(f"SELECT '{STUCK.decode()}'")
    eventually(lambda: network.held, "the statement is on its way")
    for _ in range(3):
        watch.look()
    assert waiting() == 1
    with watch:
        looks_until(watch, lambda: not stuck.is_alive())
    assert stuck.error is not None


def test_what_the_watch_asks_over_a_silent_connection_ends_too(
    network: Proxy, watch: ConnectionWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_watch, "ANSWER_TIMEOUT", 0.0)
    # Its question, and not what it sends to connect.
    network.stall(at=lambda data: b"pg_stat_activity" in data or STUCK in data)
    stuck = Session(f"SELECT '{STUCK.decode()}'")
    eventually(lambda: network.held, "the statement is on its way")
    with watch:
        looks_until(watch, lambda: not stuck.is_alive())
    assert stuck.error is not None

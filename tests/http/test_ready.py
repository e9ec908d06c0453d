"""Readiness: the server responds within a second, and takes writes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction

from django_ojs.http import readiness
from django_ojs.http.views import system
from django_ojs.models import Job
from django_ojs.storage import connection_watch
from tests.factories import connected_to
from tests.faults.proxy import Proxy
from tests.http.api import Api
from tests.storage.test_connection_watch import STUCK, Session
from tests.storage.test_connection_watch import network as network
from tests.worker.waiting import BOUND, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

api = Api()


def status() -> int:
    return api.get("ready").status


def test_a_server_that_says_nothing_is_not_ready_until_it_does(
    network: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    # On a busy machine an answer may take longer than a second.
    eventually(lambda: status() == 200, "the server is ready")
    monkeypatch.setattr(readiness, "GIVE_UP_AFTER", 0.0)
    # Connections are made, and the first statement has no reply.
    network.stall(at=lambda data: b"unique_key" in data)
    assert [status() for _ in range(3)] == [503, 503, 503]
    # Nothing of them is in the log but one line for each, by Django.
    assert not [record for record in caplog.records if record.exc_info]
    network.stall()
    assert status() == 503
    network.resume()
    eventually(lambda: status() == 200, "the server is ready again")


def test_a_server_that_takes_no_writes_is_not_ready() -> None:
    values = connection.settings_dict
    options = {**values["OPTIONS"], "options": "-c default_transaction_read_only=on"}
    eventually(lambda: status() == 200, "the server is ready")
    with connected_to({**values, "OPTIONS": options}):
        assert [status() for _ in range(3)] == [503, 503, 503]
        api.get("health").ok()
    eventually(lambda: status() == 200, "the server is ready again")


def test_a_server_whose_table_lacks_a_column_is_not_ready() -> None:
    columns = [field.column for field in Job._meta.concrete_fields]
    for column in (columns[0], columns[-1]):
        with transaction.atomic(), connection.cursor() as cursor:
            assert readiness.is_ready(connection)
            cursor.execute(f"ALTER TABLE {Job._meta.db_table} RENAME {column} TO other")
            with pytest.raises(ProgrammingError), transaction.atomic():
                readiness.is_ready(connection)
            transaction.set_rollback(True)


def test_once_the_server_responds_what_requests_wait_for_at_one_that_has_gone_ends(
    network: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "WAIT_TIMEOUT", 0.0)
    monkeypatch.setattr(connection_watch, "ANSWER_TIMEOUT", BOUND)
    monkeypatch.setattr(system, "_probe", readiness.Probe())
    network.stall(at=lambda data: STUCK in data)
    stuck = Session(f"SELECT '{STUCK.decode()}'")
    eventually(lambda: network.held, "its statement is on its way")

    def has_ended() -> bool:
        status()
        return not stuck.is_alive()

    eventually(has_ended, "the request ends")
    assert stuck.error is not None

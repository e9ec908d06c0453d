"""What is done on a second connection, while the caller's transaction is open."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connections, transaction

from django_ojs.storage import database

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_needs_no_connection_of_a_pool_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    link = connections[database.alias()]
    given = link.settings_dict
    pooled = {**given["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    changed = {**given, "OPTIONS": pooled, "AUTOCOMMIT": False}
    monkeypatch.setitem(connections.settings, link.alias, changed)

    def look() -> tuple[bool, bool, bool]:
        other = database.connection()
        other.ensure_connection()
        return other is not link, "pool" in other.settings_dict["OPTIONS"], other.get_autocommit()

    with transaction.atomic():
        assert database.elsewhere(look) == (True, False, True)


def test_an_error_is_that_of_the_caller() -> None:
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        database.elsewhere(fail)


def test_a_caller_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ELSEWHERE_TIMEOUT", 0.01)
    over, ended = threading.Event(), threading.Event()

    def wait() -> None:
        over.wait()
        ended.set()

    try:
        with pytest.raises(OperationalError, match="did not finish within"):
            database.elsewhere(wait)
    finally:
        over.set()
    assert ended.wait(60)

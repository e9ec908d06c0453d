"""Which errors say that the database is away: a retry of others would never end."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection

from django_ojs.storage import database

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@pytest.mark.parametrize("state", ["54000", "54001", "54011", "54023", "55000"])
def test_what_is_too_large_for_the_server_is_no_outage(state: str) -> None:
    with connection.cursor() as cursor, pytest.raises(OperationalError) as caught:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")
    assert not database.is_unavailable(caught.value)


@pytest.mark.parametrize("state", ["53100", "53300", "57P01", "57P03", "58030"])
def test_a_server_without_room_or_at_its_end_is_away(state: str) -> None:
    with connection.cursor() as cursor, pytest.raises(OperationalError) as caught:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")
    assert database.is_unavailable(caught.value)


def test_the_connection_of_a_database_that_cannot_have_jobs_is_left_alone() -> None:
    class Link:
        vendor = "oracle"
        errors_occurred = health_check_done = True
        _thread_ident = 0

    link: Any = Link()
    database.watch(link)
    database.recheck(healthy=True)
    assert link.health_check_done

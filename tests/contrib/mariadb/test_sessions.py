"""Whether a transaction is open, and variables of the session, on MariaDB."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, IntegrityError, connection, transaction

from django_ojs.storage import database

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(
    ("statements", "is_open", "asked"),
    [
        (["SELECT 1", "UPDATE ojs_job SET hold = 0"], False, 0),
        (["BEGIN"], True, 1),
        (["start transaction read only"], True, 1),
        (["SELECT 1; BEGIN"], True, 1),
        (["/* a comment */ BEGIN"], True, 1),
        (["SET autocommit = 0", "SELECT * FROM ojs_job"], True, 1),
        (["BEGIN", "COMMIT"], False, 1),
        (["BEGIN", "COMMIT AND CHAIN"], True, 1),
    ],
)
def test_the_server_is_asked_after_what_may_begin_a_transaction_and_never_else(
    statements: list[str], is_open: bool, asked: int
) -> None:
    connection.close()
    with connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)
    before = questions()
    assert database.is_transaction_open(connection) is is_open
    assert questions() - before - 1 == asked
    if not is_open:
        assert not database.is_transaction_open(connection)
        assert questions() - before - 2 == asked, "it is asked once"
    connection.close()


def questions() -> int:
    """Return how many statements the server has had on this connection, with this one."""
    with connection.connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
        return int(cursor.fetchone()[1])


def test_a_transaction_counts_as_open_where_the_server_cannot_be_asked() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("KILL CONNECTION_ID()")
    assert database.is_transaction_open(connection)
    connection.close()


def limits() -> tuple[object, ...]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_lock_wait_timeout, @@max_statement_time")
        return tuple(cursor.fetchone())


def test_an_error_within_a_limit_is_raised_and_the_limit_ends() -> None:
    dialect = database.dialect()
    before = limits()
    for limit in (dialect.lock_timeout(connection, 2000), dialect.query_timeout(connection, 7)):
        with pytest.raises(IntegrityError), transaction.atomic(), limit:
            fail_within(limits_before=before)
        assert limits() == before


def fail_within(limits_before: tuple[object, ...]) -> None:
    assert limits() != limits_before
    # It saves without a savepoint, so its error breaks the whole transaction.
    Group.objects.bulk_create([Group(name="twice"), Group(name="twice")])


def end_the_session() -> None:
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("KILL CONNECTION_ID()")
    raise LookupError


def test_an_error_after_which_the_limit_cannot_be_set_back_is_raised() -> None:
    limit = database.dialect().lock_timeout(connection, 2000)
    with pytest.raises(LookupError), transaction.atomic(), limit:
        end_the_session()
    connection.close()


def test_a_limit_ends_where_the_block_only_wants_a_rollback() -> None:
    with transaction.atomic():
        with database.dialect().lock_timeout(connection, 2000):
            transaction.set_rollback(True)
        assert connection.needs_rollback

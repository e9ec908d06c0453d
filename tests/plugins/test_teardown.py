"""What a test leaves for the next one, when a time limit has ended it."""

from __future__ import annotations

import unittest

import pytest
from django.db import connection, connections, transaction
from django.test import SimpleTestCase

from tests.plugins import teardown


@pytest.mark.postgresql
@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside of any"])
@pytest.mark.django_db(transaction=True)
def test_a_statement_that_was_interrupted_takes_no_later_test_with_it(inside: bool) -> None:
    with transaction.atomic() if inside else connection.cursor():
        connection.ensure_connection()
        # The result is never read: pytest-timeout raises where psycopg waits for it.
        connection.connection.pgconn.send_query(b"SELECT pg_sleep(3600)")
        teardown.pytest_runtest_teardown()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
        assert cursor.fetchone() == (0,)


def test_a_class_of_tests_without_queries_leaves_the_connection_as_it_was() -> None:
    teardown.install()  # As the first test that uses a database does.

    class Silent(SimpleTestCase):
        def test(self) -> None:
            """Ask the database nothing."""

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Silent).run(result)
    assert result.wasSuccessful()
    assert "cursor" not in connections["default"].__dict__

"""Tables that a test creates, as another package does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection


@pytest.fixture
def tables_of_the_test(db: None) -> Iterator[None]:
    """Drop the tables that a test has created, where the end of its transaction does not."""
    if connection.vendor != "mysql":
        yield
        return
    before = set(connection.introspection.table_names())
    yield
    with connection.cursor() as cursor:
        for table in set(connection.introspection.table_names()) - before:
            cursor.execute(f"DROP TABLE {table}")

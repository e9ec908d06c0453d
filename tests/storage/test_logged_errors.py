"""What is logged of an error: no value that the database names in its message."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction

from django_ojs.storage import database

pytestmark = pytest.mark.django_db

SECRET = "alice@example.com"


def rejected() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        # MariaDB does not roll it back.
        columns = "address varchar(50) PRIMARY KEY"
        cursor.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS kept ({columns})")
        for _ in range(2):
            cursor.execute("INSERT INTO kept VALUES (%s)", [SECRET])


def after_a_hook() -> None:
    try:
        rejected()
    except IntegrityError as error:
        raise LookupError(f"the colour: {error}") from error


@pytest.mark.parametrize(
    ("way", "kind"), [(rejected, "IntegrityError"), (after_a_hook, "LookupError, after Integ")]
)
def test_the_text_of_the_database_is_left_out(
    way: Callable[[], None], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises((IntegrityError, LookupError)) as caught:
        way()
    logging.getLogger("django_ojs").error(
        "It failed.", exc_info=database.without_values(caught.value)
    )
    assert SECRET not in caplog.text
    assert kind in caplog.text
    # It is told where it happened, and on PostgreSQL, which constraint it was.
    assert f"in {way.__name__}" in caplog.text
    if connection.vendor == "postgresql":
        assert "23505, kept_pkey" in caplog.text


def test_another_error_is_logged_as_it_is() -> None:
    error = LookupError("the colour")
    assert database.without_values(error) is error

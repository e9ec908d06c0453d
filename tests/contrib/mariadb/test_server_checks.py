"""What is wrong with a server of MariaDB, which need not run for these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.apps import apps
from django.core import checks as django_checks
from django.db import NotSupportedError

from django_ojs.contrib.mariadb import server_checks
from django_ojs.contrib.mariadb.apps import MariaDBConfig
from django_ojs.contrib.mariadb.dialect import MariaDB
from django_ojs.storage import database
from tests.test_checks import ids


@pytest.fixture
def installed() -> Iterator[None]:
    """Let an app bring MariaDB, on whatever database the tests run."""
    app = apps.get_app_config("django_ojs")
    with mock.patch.dict(app.ojs_dialects, MariaDBConfig.ojs_dialects):
        database.of_vendor.cache_clear()
        yield
    database.of_vendor.cache_clear()


def mariadb(*version: int, is_mariadb: bool = True) -> Any:
    return mock.Mock(
        vendor="mysql",
        alias="jobs",
        connection=object(),
        mysql_version=version,
        mysql_is_mariadb=is_mariadb,
    )


SOUND = {
    "tx_isolation": "READ-COMMITTED",
    "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
    "character_set_connection": "utf8mb4",
    "max_allowed_packet": "16777216",
}


def said(
    link: Any, *, is_utc: bool = True, may_close_tables: bool = True, **settings: str
) -> list[django_checks.CheckMessage]:
    return server_checks.problems(
        link, {**SOUND, **settings}, is_utc=is_utc, may_close_tables=may_close_tables
    )


def test_e003_a_server_that_is_mysql(installed: None) -> None:
    server = mariadb(8, 4, 0, is_mariadb=False)
    (problem,) = said(server)
    assert (problem.id, problem.level) == ("django_ojs.E003", django_checks.ERROR)
    assert "'jobs' is MySQL" in problem.msg
    assert "Use MariaDB 10.11 or newer" in problem.hint
    with pytest.raises(NotSupportedError, match=r"'jobs' is MySQL\. Use MariaDB"):
        database.dialect_of(server)
    # What a server is is not known before it was connected to.
    server.connection = None
    assert type(database.dialect_of(server)) is MariaDB


def test_e004_a_mariadb_that_is_too_old() -> None:
    assert ids(said(mariadb(10, 6, 21))) == ["django_ojs.E004"]


def test_w006_mariadb_is_new() -> None:
    (problem,) = said(mariadb(10, 11, 0))
    assert problem.id == "django_ojs.W006"
    assert "not for production" in problem.msg


@pytest.mark.parametrize(
    ("name", "value", "id"),
    [
        ("tx_isolation", "REPEATABLE-READ", "django_ojs.E010"),
        ("sql_mode", "NO_ENGINE_SUBSTITUTION", "django_ojs.E010"),
        ("character_set_connection", "latin1", "django_ojs.E010"),
        ("max_allowed_packet", "1048576", "django_ojs.W007"),
    ],
)
def test_a_setting_of_mariadb_that_loses_what_is_stored(name: str, value: str, id: str) -> None:
    _, problem = said(mariadb(10, 11, 0), **{name: value})
    assert problem.id == id
    assert problem.hint


def test_a_session_of_mariadb_that_is_not_in_utc_or_may_not_close_tables() -> None:
    _, problem = said(mariadb(10, 11, 0), is_utc=False)
    assert "SET time_zone = '+00:00'" in problem.hint
    _, problem = said(mariadb(10, 11, 0), may_close_tables=False)
    assert problem.id == "django_ojs.W008"

"""What tells MySQL from MariaDB, and how it gets the schema. Its other tests are those of all."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest

from django_ojs.migrations import _run_sql_files as schema_files
from django_ojs.storage import database
from django_ojs.storage.dialects.mariadb import MariaDB
from django_ojs.storage.dialects.mysql import MySQL


def link(alias: str, *, is_mariadb: bool, is_open: bool = True) -> Any:
    made = mock.Mock(vendor="mysql", alias=alias, mysql_is_mariadb=is_mariadb)
    made.connection = object() if is_open else None
    return made


def test_the_server_says_which_of_the_two_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_of_vendor_mysql", {})
    monkeypatch.setattr(database, "_in_use", {})
    closed = link("one", is_mariadb=False, is_open=False)
    closed.ensure_connection.side_effect = OSError
    # There is no server to ask now: it is asked again.
    assert database.kind_of(closed) == "mariadb"
    assert type(database.dialect_of(closed)) is MariaDB
    assert type(database.dialect_of(link("one", is_mariadb=False))) is MySQL
    assert type(database.dialect_of(link("two", is_mariadb=True))) is MariaDB
    # Said once, it holds for the alias.
    assert database.kind_of(closed) == "mysql"
    assert type(database.dialect_of(closed)) is MySQL


def test_mysql_makes_the_indexes_and_triggers_that_it_lacks() -> None:
    made = [
        text
        for name in schema_files.FILES["mysql"]
        for text in schema_files.statements("mysql", name)
    ]
    server = mock.MagicMock(vendor="mysql", alias="default")
    cursor = server.cursor.return_value.__enter__.return_value
    cursor.fetchall.return_value = [("ojs_job_claim",), ("PRIMARY",)]
    with mock.patch.object(database, "dialect_of", return_value=MySQL()):
        found = "\n".join(schema_files._as_on_mysql(server, made))
    both = "\n".join(made)
    wanted = set(re.findall(r"ADD INDEX IF NOT EXISTS (\w+)", both)) - {"ojs_job_claim"}
    assert set(re.findall(r"ADD INDEX (\w+)", found)) == wanted
    triggers = re.findall(r"OR REPLACE TRIGGER (\w+)", both)
    assert re.findall(r"^DROP TRIGGER IF EXISTS (\w+)\nCREATE TRIGGER \1 ", found, re.M) == triggers
    assert "utf8mb4_nopad_bin" not in found
    assert "OR REPLACE" not in found

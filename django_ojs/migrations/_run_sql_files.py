"""The operations of migrations: execute SQL files, and take an extension out."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.db import migrations

from django_ojs.storage import database, remains, schema
from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.rows import Named

#: What a statement of Django creates.
_CREATED: Final = re.compile(r"ADD CONSTRAINT \"(\w+)\"")


class RunSQLFiles(migrations.RunSQL):
    """Run the files of the database's dialect (`Server.schema`); `drop.sql` reverses them all."""

    def __init__(self) -> None:
        super().__init__((), ())

    def deconstruct(self) -> Any:
        return (type(self).__name__, [], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        # Another alias may be of a database in which no jobs can be.
        if dialect := database.of_vendor(schema_editor.connection.vendor):
            _leave_out(schema_editor, dialect)
            self._execute(schema_editor, schema.core_statements(dialect))

    def database_backwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if dialect := database.of_vendor(schema_editor.connection.vendor):
            _drop_what_extensions_have(schema_editor, dialect)
            self._execute(schema_editor, schema.reverse_statements(dialect))

    def _execute(self, schema_editor: Any, statements: Sequence[str]) -> None:
        for statement in statements:
            schema_editor.execute(statement, params=None)


class RunSQLFile(migrations.RunSQL):
    """Run a file of an extension on the database that has its name, after its tables were created.

    When they are dropped, what it has added goes with them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(tuple(schema.statements(path)), migrations.RunSQL.noop)
        self.path = path

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.path], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        dialect = database.of_vendor(schema_editor.connection.vendor)
        if dialect is not None and dialect.name == self.path.stem:
            super().database_forwards(app_label, schema_editor, *states)


class TakeOut(migrations.RunPython):
    """When the tables of an extension are dropped, take its part of the core's tables out first.

    It is the last operation of the first migration of its app.
    """

    def __init__(self, number: int) -> None:
        super().__init__(migrations.RunPython.noop, partial(_take_out, number))
        self.number = number

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.number], {})


def _take_out(number: int, apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.alias == database.alias():
        remains.take_out(number)


def _leave_out(schema_editor: Any, dialect: Dialect) -> None:
    """Let Django create no constraint after the files that they drop."""
    names = {*schema.combined_constraints(dialect)}
    schema_editor.deferred_sql[:] = [
        each
        for each in schema_editor.deferred_sql
        if not names.intersection(_CREATED.findall(str(each)))
    ]


def _drop_what_extensions_have(schema_editor: Any, dialect: Dialect) -> None:
    """Drop the triggers and functions of all extensions, also of those that are gone."""
    present = set(dialect.read(schema_editor.connection, Named))
    core = schema.created(schema.core_statements(dialect))
    # Django drops indexes with their table.
    ours = {each for each in present - core if each.kind != "INDEX"}
    for statement in schema.drop_statements(dialect, ours):
        schema_editor.execute(statement)

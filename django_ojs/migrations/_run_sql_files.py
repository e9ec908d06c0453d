"""The operations of migrations: execute SQL files, and take an extension out."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.db import migrations

from django_ojs.storage import database, remains, schema

#: What a statement of Django creates.
_CREATED: Final = re.compile(r"ADD CONSTRAINT \"(\w+)\"")


class RunSQLFiles(migrations.RunSQL):
    """Run the files of `sql/<vendor>` on databases of that vendor; `drop.sql` reverses them all."""

    def __init__(self, vendor: str) -> None:
        super().__init__(
            tuple(schema.core_statements(vendor)), tuple(schema.statements(vendor, "drop"))
        )
        self.vendor = vendor

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            _leave_out(schema_editor)
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            _drop_what_extensions_have(schema_editor)
            super().database_backwards(app_label, schema_editor, *states)


class RunSQLFile(migrations.RunSQL):
    """Run one file of an extension on databases of a vendor, after its tables were created.

    When they are dropped, what it has added goes with them.
    """

    def __init__(self, vendor: str, path: Path) -> None:
        super().__init__(
            tuple(schema.split(path.read_text(encoding="utf-8"))), migrations.RunSQL.noop
        )
        self.vendor, self.path = vendor, path

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor, self.path], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
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


def _leave_out(schema_editor: Any) -> None:
    """Let Django create no constraint after the files that they drop."""
    names = {*schema.combined_constraints(schema_editor.connection)}
    schema_editor.deferred_sql[:] = [
        each
        for each in schema_editor.deferred_sql
        if not names.intersection(_CREATED.findall(str(each)))
    ]


def _drop_what_extensions_have(schema_editor: Any) -> None:
    """Drop the triggers and functions of all extensions, also of those that are gone."""
    connection = schema_editor.connection
    present = database.dialect_of(connection).named_objects(connection)
    core = schema.created(schema.core_statements(connection.vendor))
    # Django drops indexes with their table.
    ours = {each for each in present - core if each.kind != "INDEX"}
    for statement in schema.drop_statements(connection.vendor, ours):
        schema_editor.execute(statement)

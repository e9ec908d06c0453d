"""The part of the schema that Django cannot express: functions, procedures and triggers."""

import re
from pathlib import Path
from typing import Any, Final

from django.db import connections, migrations, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage import database

_FOLDER: Final = Path(__file__).parent / "sql"

#: By vendor: the files of the schema, in the order in which they are run.
FILES: Final = {
    "postgresql": (
        "constraints",
        "checkpoints",
        "counts",
        "count_triggers",
        "workflow_triggers",
        "limit_triggers",
        "admission",
        "push",
    ),
    "sqlite": ("checkpoints", "count_triggers", "workflow_triggers", "limit_triggers"),
    "mysql": ("tables", "checkpoints", "count_triggers", "workflow_triggers", "limit_triggers"),
}
#: Django's vendor of MariaDB is that of MySQL.
_FOLDERS: Final = {"mysql": "mariadb"}

#: `flush` empties the tables of models only. On PostgreSQL a trigger empties the counts.
_NO_JOBS: Final = {
    "postgresql": (),
    "sqlite": ("DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",),
    "mysql": (
        "DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
        "DELETE FROM ojs_count_change WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
    ),
}

#: Whether the table of jobs exists, and how many of these triggers do.
_PRESENT: Final = {
    "postgresql": (
        "SELECT to_regclass('ojs_job') IS NOT NULL, (SELECT count(DISTINCT tgname) FROM pg_trigger"
        " WHERE tgname IN ({names}) AND pg_table_is_visible(tgrelid))"
    ),
    "sqlite": (
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'ojs_job'), (SELECT count(*)"
        " FROM sqlite_master WHERE type = 'trigger' AND name IN ({names}))"
    ),
    "mysql": (
        "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND"
        " table_name = 'ojs_job'), (SELECT count(*) FROM information_schema.triggers WHERE"
        " trigger_schema = DATABASE() AND trigger_name IN ({names}))"
    ),
}
_TRIGGER: Final = re.compile(r"^CREATE (?:OR REPLACE )?TRIGGER (?:IF NOT EXISTS )?(\w+)")
#: Constraints that a statement of the files drops, the one that it adds in their place, and what a
#: statement of Django creates.
_ADDED: Final = re.compile(r"\bADD CONSTRAINT (\w+)")
_DROPPED: Final = re.compile(r"DROP CONSTRAINT IF EXISTS (\w+)")
_CREATED: Final = re.compile(r"ADD CONSTRAINT \"(\w+)\"")


class RunSQLFiles(migrations.RunSQL):
    """Run the files of `sql/<vendor>` on databases of that vendor; `drop.sql` reverses them all."""

    def __init__(self, vendor: str) -> None:
        super().__init__(tuple(all_statements(vendor)), tuple(statements(vendor, "drop")))
        self.vendor = vendor

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            _leave_out(schema_editor)
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, *states)


class RunSQLFile(migrations.RunSQL):
    """Run one file of an extension on databases of a vendor, after its tables were created.

    When they are dropped, what it has added goes with them.
    """

    def __init__(self, vendor: str, path: Path) -> None:
        super().__init__(tuple(statements_of(path)), migrations.RunSQL.noop)
        self.vendor, self.path = vendor, path

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor, self.path], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, *states)


def create_missing(using: str, **kwargs: Any) -> None:
    """Create functions, procedures and triggers where there are none (post_migrate).

    Tests without migrations (`pytest --nomigrations`, `TEST = {"MIGRATE": False}`) have only the
    tables. On SQLite a migration that alters the table of jobs has removed its triggers.
    """
    connection = connections[using]
    if connection.vendor not in FILES:
        return
    has_table, is_complete = _present(connection)
    if not has_table:
        return
    if not is_complete:
        with transaction.atomic(using=using):
            create(connection)
        # What changed while there were no triggers was not counted.
        database.dialect_of(connection).repair_counts(connection)
        return
    with connection.cursor() as cursor:
        for statement in _NO_JOBS[connection.vendor]:
            cursor.execute(statement)


def _present(connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
    """Return whether the table of jobs exists, and whether all else of the schema does."""
    found = map(_TRIGGER.match, all_statements(connection.vendor))
    triggers = {match[1] for match in found if match}
    names = ", ".join(f"'{name}'" for name in sorted(triggers))
    with connection.cursor() as cursor:
        cursor.execute(_PRESENT[connection.vendor].format(names=names))
        has_table, number = cursor.fetchone()
    return bool(has_table), number == len(triggers)


def create(connection: BaseDatabaseWrapper) -> None:
    """Create functions, procedures and triggers, in place of those there are."""
    with connection.cursor() as cursor:
        for statement in all_statements(connection.vendor):
            cursor.execute(statement)


def combined_constraints(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return the constraints of models that the files drop, and the one in the place of each."""
    combined: dict[str, str] = {}
    for each in all_statements(connection.vendor):
        if added := _ADDED.search(each):
            combined |= dict.fromkeys(_DROPPED.findall(each), added[1])
    return combined


def _leave_out(schema_editor: Any) -> None:
    """Let Django create no constraint after the files that they drop."""
    names = {*combined_constraints(schema_editor.connection)}
    schema_editor.deferred_sql[:] = [
        each
        for each in schema_editor.deferred_sql
        if not names.intersection(_CREATED.findall(str(each)))
    ]


def all_statements(vendor: str) -> list[str]:
    """Return the statements of all files of a database."""
    return [text for name in FILES[vendor] for text in statements(vendor, name)]


def statements(vendor: str, name: str) -> list[str]:
    """Return the statements of a file of the core."""
    return statements_of(_FOLDER / _FOLDERS.get(vendor, vendor) / f"{name}.sql")


def statements_of(path: Path) -> list[str]:
    """Return the statements of a file. A blank line separates two, and none contains one."""
    text = path.read_text(encoding="utf-8")
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]

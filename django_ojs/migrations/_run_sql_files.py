"""The part of the schema that Django cannot express: functions, procedures and triggers."""

import re
from importlib.resources import files
from typing import Any, Final

from django.db import connections, migrations
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage import database

_FOLDER: Final = files(__package__) / "sql"

#: By vendor: the files of the schema, in the order in which they are run.
FILES: Final = {
    "postgresql": (
        "checkpoints",
        "count_triggers",
        "workflow_triggers",
        "limit_triggers",
        "admission",
        "push",
    ),
    "sqlite": ("checkpoints", "count_triggers", "workflow_triggers", "limit_triggers"),
    "mysql": ("tables", "checkpoints", "count_triggers", "workflow_triggers", "limit_triggers"),
}
#: Django has one vendor for MariaDB and MySQL; the files are for MariaDB.
_FOLDERS: Final = {"mysql": "mariadb"}

#: Whether the table of jobs exists, how many of these triggers do, and, on PostgreSQL, whether the
#: last of the procedures does.
_PRESENT: Final = {
    "postgresql": (
        "SELECT to_regclass('ojs_job') IS NOT NULL, (SELECT count(DISTINCT tgname) FROM pg_trigger"
        " WHERE tgname IN ({names}) AND pg_table_is_visible(tgrelid)), EXISTS (SELECT FROM pg_proc"
        " WHERE proname = 'ojs_push_many' AND pg_function_is_visible(oid))"
    ),
    "sqlite": (
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'ojs_job'), (SELECT count(*)"
        " FROM sqlite_master WHERE type = 'trigger' AND name IN ({names})), 1"
    ),
    "mysql": (
        "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND"
        " table_name = 'ojs_job'), (SELECT count(*) FROM information_schema.triggers WHERE"
        " trigger_schema = DATABASE() AND trigger_name IN ({names})), 1"
    ),
}
#: `flush` empties the tables of models only, and without their triggers.
_NO_JOBS: Final = {
    "sqlite": ("DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",),
    "mysql": (
        "DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
        "DELETE FROM ojs_count_change WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
    ),
}
_TRIGGER: Final = re.compile(r"^CREATE (?:OR REPLACE )?TRIGGER (?:IF NOT EXISTS )?(\w+)")


class RunSQLFiles(migrations.RunSQL):
    """Run the files of `sql/<vendor>` on databases of that vendor; `drop.sql` reverses them all."""

    def __init__(self, vendor: str) -> None:
        super().__init__([*all_statements(vendor)], [*statements(vendor, "drop")])
        self.vendor = vendor

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, *states)


def create_missing(using: str, **kwargs: Any) -> None:
    """Create functions, procedures and triggers where there are none (post_migrate).

    Tests without migrations (`pytest --nomigrations`, `TEST = {"MIGRATE": False}`) have only the
    tables. On SQLite a migration that alters the table of jobs has removed its triggers.
    """
    connection = connections[using]
    if connection.vendor not in FILES:
        return
    found = map(_TRIGGER.match, all_statements(connection.vendor))
    triggers = {match[1] for match in found if match}
    names = ", ".join(f"'{name}'" for name in sorted(triggers))
    with connection.cursor() as cursor:
        cursor.execute(_PRESENT[connection.vendor].format(names=names))
        has_table, number, has_procedures = cursor.fetchone()
        is_complete = number == len(triggers) and has_procedures
        if has_table and is_complete:
            for statement in _NO_JOBS.get(connection.vendor, ()):
                cursor.execute(statement)
    if has_table and not is_complete:
        create(connection)
        # What changed while there were no triggers was not counted.
        database.dialect_of(connection).repair_counts(connection)


def create(connection: BaseDatabaseWrapper) -> None:
    """Create functions, procedures and triggers, in place of those there are."""
    with connection.cursor() as cursor:
        for statement in all_statements(connection.vendor):
            cursor.execute(statement)


def all_statements(vendor: str) -> list[str]:
    """Return the statements of all files of a database."""
    return [text for name in FILES[vendor] for text in statements(vendor, name)]


def statements(vendor: str, name: str) -> list[str]:
    """Return the statements of a file. A blank line separates two, and none contains one."""
    folder = _FOLDERS.get(vendor, vendor)
    text = (_FOLDER / folder / f"{name}.sql").read_text(encoding="utf-8")
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]

"""The part of the schema that Django cannot express: functions, procedures and triggers."""

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

from django.db import connections, migrations, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage import database

_FOLDER: Final = files(__package__) / "sql"

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
#: Django has one vendor for MariaDB and MySQL; the files are for MariaDB (see `_as_on_mysql`).
_FOLDERS: Final = {"mysql": "mariadb"}

#: By a field of `Capabilities`: a file of PostgreSQL, and the one in its place without the feature.
#: Each removes what the other one creates.
INSTEAD: Final = {
    "statement_triggers": ("count_triggers", "count_row_triggers"),
    "advisory_locks": ("admission", "row_locks"),
    "procedures": ("push", "no_push"),
}

#: `flush` empties the tables of models only, and not each database has a trigger that notes it.
_NO_JOBS: Final = {
    "sqlite": ("DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",),
    "postgresql": (
        "DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
        "DELETE FROM ojs_count_change WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
    ),
    "mysql": (
        "DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
        "DELETE FROM ojs_count_change WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
    ),
}

#: Whether the table of jobs exists, how many of these triggers do, and, on PostgreSQL, the
#: capabilities by which the schema was made.
_PRESENT: Final = {
    "postgresql": (
        "SELECT to_regclass('ojs_job') IS NOT NULL, (SELECT count(DISTINCT tgname) FROM pg_trigger"
        " WHERE tgname IN ({names}) AND pg_table_is_visible(tgrelid)), NOT EXISTS (SELECT FROM"
        " pg_trigger WHERE tgname = 'ojs_job_count_insert' AND tgtype & 1 = 1"
        " AND pg_table_is_visible(tgrelid)), to_regclass('ojs_lock') IS NULL, EXISTS (SELECT FROM"
        " pg_proc WHERE proname = 'ojs_push_many' AND pg_function_is_visible(oid))"
    ),
    "sqlite": (
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'ojs_job'), (SELECT count(*)"
        " FROM sqlite_master WHERE type = 'trigger' AND name IN ({names})), 1, 1, 1"
    ),
    "mysql": (
        "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND"
        " table_name = 'ojs_job'), (SELECT count(*) FROM information_schema.triggers WHERE"
        " trigger_schema = DATABASE() AND trigger_name IN ({names})), 1, 1, 1"
    ),
}
_TRIGGER: Final = re.compile(r"^CREATE (?:OR REPLACE )?TRIGGER (?:IF NOT EXISTS )?(\w+)")
#: An index among the changes of a table.
_INDEX: Final = re.compile(
    r",\s+ADD INDEX IF NOT EXISTS (?P<rest>(?P<name>\w+)\s+\((?:[^()]|\(\d+\))*\))"
)
#: Constraints that a statement of the files drops, the one that it adds in their place, and what a
#: statement of Django creates.
_ADDED: Final = re.compile(r"\bADD CONSTRAINT (\w+)")
_DROPPED: Final = re.compile(r"DROP CONSTRAINT IF EXISTS (\w+)")
_CREATED: Final = re.compile(r"(?:INDEX|ADD CONSTRAINT) [`\"](\w+)[`\"]")


class RunSQLFiles(migrations.RunSQL):
    """Run the files of `sql/<vendor>` on databases of that vendor; `drop.sql` reverses them all."""

    def __init__(self, vendor: str) -> None:
        super().__init__([], [*statements(vendor, "drop")])
        self.vendor = vendor

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            # Not before: the settings say which.
            self.sql = tuple(_to_be_run(schema_editor.connection))
            _leave_out(schema_editor)
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
    has_table, is_complete = _present(connection)
    if not has_table:
        return
    dialect = database.dialect_of(connection)
    if not is_complete:
        with transaction.atomic(using=using):
            create(connection)
        # What changed while there were no triggers was not counted.
        dialect.repair_counts(connection)
        return
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql" or not dialect.capabilities.statement_triggers:
            for statement in _NO_JOBS[connection.vendor]:
                cursor.execute(statement)
        if not dialect.capabilities.advisory_locks:
            for statement in statements(connection.vendor, "row_locks"):
                cursor.execute(statement)  # Rows that are missing.


def unlike_settings(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the fields of `Capabilities` that are not those by which the schema was made."""
    if connection.vendor != "postgresql":
        return []
    wanted = database.dialect_of(connection).capabilities
    with connection.cursor() as cursor:
        cursor.execute(_PRESENT["postgresql"].format(names="NULL"))
        has_table, _, *found = cursor.fetchone()
    pairs = zip(INSTEAD, found, strict=True)
    return [name for name, has in pairs if has_table and has is not getattr(wanted, name)]


def _present(connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
    """Return whether the table of jobs exists, and whether all else of the schema does."""
    found = map(_TRIGGER.match, all_statements(connection))
    triggers = {match[1] for match in found if match}
    names = ", ".join(f"'{name}'" for name in sorted(triggers))
    with connection.cursor() as cursor:
        cursor.execute(_PRESENT[connection.vendor].format(names=names))
        has_table, number, *_ = cursor.fetchone()
    is_complete = number == len(triggers) and not unlike_settings(connection)
    return bool(has_table), is_complete


def create(connection: BaseDatabaseWrapper) -> None:
    """Create functions, procedures and triggers, in place of those there are."""
    # Tables that were made from models refer to each other when their collation is changed, which
    # MySQL rejects for the first of two.
    unchecked = connection.vendor == "mysql" and connection.disable_constraint_checking()
    try:
        with connection.cursor() as cursor:
            for statement in _to_be_run(connection):
                cursor.execute(statement)
    finally:
        if unchecked:
            connection.enable_constraint_checking()


def _to_be_run(connection: BaseDatabaseWrapper) -> list[str]:
    made = all_statements(connection)
    return _as_on_mysql(connection, made) if database.kind_of(connection) == "mysql" else made


def combined_constraints(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return the constraints of models that the files drop, and the one in the place of each."""
    combined: dict[str, str] = {}
    for each in all_statements(connection):
        if added := _ADDED.search(each):
            combined |= dict.fromkeys(_DROPPED.findall(each), added[1])
    return combined


def _leave_out(schema_editor: Any) -> None:
    """Let Django create nothing after the files that they have themselves.

    That is an index of an expression on MariaDB, which Django tries on MySQL too, and a constraint
    that they drop.
    """
    connection = schema_editor.connection
    text = " ".join(all_statements(connection))
    names = {found["name"] for found in _INDEX.finditer(text)} | {*combined_constraints(connection)}
    schema_editor.deferred_sql[:] = [
        each
        for each in schema_editor.deferred_sql
        if not names.intersection(_CREATED.findall(str(each)))
    ]


def _as_on_mysql(connection: BaseDatabaseWrapper, made: Iterable[str]) -> list[str]:
    """Return statements for MySQL, which replaces no trigger, and rejects an index that exists."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT index_name FROM information_schema.statistics"
            " WHERE table_schema = DATABASE() AND table_name LIKE 'ojs_%'"
        )
        existing = {name for (name,) in cursor.fetchall()}
    found: list[str] = []
    for each in made:
        if match := _TRIGGER.search(each):
            found.append(f"DROP TRIGGER IF EXISTS {match[1]}")
        text = each.replace("CREATE OR REPLACE TRIGGER", "CREATE TRIGGER")
        text = text.replace("utf8mb4_nopad_bin", database.dialect_of(connection).binary_collation)
        found.append(
            _INDEX.sub(
                lambda index: "" if index["name"] in existing else f", ADD INDEX {index['rest']}",
                text,
            )
        )
    return found


def all_statements(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the statements of all files of a database, for the capabilities of the settings."""
    has = database.dialect_of(connection).capabilities
    instead = {pair[0]: pair[1] for name, pair in INSTEAD.items() if not getattr(has, name)}
    names = [instead.get(name, name) for name in FILES[connection.vendor]]
    return [text for name in names for text in statements(connection.vendor, name)]


def statements(vendor: str, name: str) -> list[str]:
    """Return the statements of a file. A blank line separates two, and none contains one."""
    folder = _FOLDERS.get(vendor, vendor)
    text = (_FOLDER / folder / f"{name}.sql").read_text(encoding="utf-8")
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]

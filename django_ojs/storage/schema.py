"""The part of the schema that Django cannot express: functions, procedures, triggers, indexes.

The core has its statements in `migrations/sql`, which a migration executes. An extension has its
own in the folder `Extension.schema`: they are executed after each `migrate`, where something of
them is missing. So an extension may be added to a site later, and what SQLite loses when a
migration makes the table of jobs anew is made again.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from django.apps import apps
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from django_ojs.extension import Extension
from django_ojs.hooks import registry
from django_ojs.storage import database
from django_ojs.storage.dialects.rows import Named
from django_ojs.storage.dialects.sql_files import folder_of

_FOLDER: Final = Path(__file__).parents[1] / "migrations/sql"

#: By vendor: the files of the core, in the order in which they are run.
FILES: Final = {
    "postgresql": ("constraints", "counts", "count_triggers", "admission", "push"),
    "sqlite": ("count_triggers",),
    "mysql": ("tables", "count_triggers"),
}
#: `flush` empties the tables of models only. On PostgreSQL a trigger empties the counts.
_NO_JOBS: Final = {
    "postgresql": (),
    "sqlite": ("DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",),
    "mysql": (
        "DELETE FROM ojs_count WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
        "DELETE FROM ojs_count_change WHERE NOT EXISTS (SELECT 1 FROM ojs_job)",
    ),
}
#: Statements that drop something, where its name alone does not say of which table it is.
_DROP: Final = {
    ("postgresql", "TRIGGER"): "DROP TRIGGER {name} ON {table}",
    ("postgresql", "FUNCTION"): "DROP FUNCTION {name} CASCADE",
    ("mysql", "INDEX"): "DROP INDEX {name} ON {table}",
}
_CREATED: Final = re.compile(
    r"^CREATE (?:OR REPLACE )?(?:UNIQUE )?(TRIGGER|FUNCTION|PROCEDURE|INDEX) (?:IF NOT EXISTS )?"
    r"(\w+)(?:[^;(]*?\bON (\w+))?",
    re.MULTILINE,
)
#: Constraints that a statement of the files drops, and the one that it adds in their place.
_ADDED: Final = re.compile(r"\bADD CONSTRAINT (\w+)")
_DROPPED: Final = re.compile(r"DROP CONSTRAINT IF EXISTS (\w+)")


def create_missing(using: str, **kwargs: object) -> None:
    """Create what is missing of the core and of each extension (post_migrate).

    Tests without migrations (`pytest --nomigrations`, `TEST = {"MIGRATE": False}`) have only the
    tables.
    """
    connection = connections[using]
    if connection.vendor not in FILES or not _has_jobs(connection):
        return
    present = database.dialect_of(connection).named_objects(connection)
    if created(core_statements(connection.vendor)) - present:
        with transaction.atomic(using=using):
            _execute(connection, core_statements(connection.vendor))
        # What changed while there were no triggers was not counted.
        database.dialect_of(connection).repair_counts(connection)
    else:
        _execute(connection, _NO_JOBS[connection.vendor])
    for extension in registry.with_schema():
        statements = statements_of(extension, connection.vendor)
        if created(statements) - present and _has_tables(connection, extension):
            with transaction.atomic(using=using):
                _execute(connection, statements)
                extension.catch_up(connection)


def create(connection: BaseDatabaseWrapper) -> None:
    """Create all of them, in place of those that exist."""
    _execute(connection, core_statements(connection.vendor))
    for extension in registry.with_schema():
        _execute(connection, statements_of(extension, connection.vendor))
        extension.catch_up(connection)


def mark(connection: BaseDatabaseWrapper, number: int, jobs: str) -> None:
    """Give the bit of an extension to those jobs that lack it; `jobs` selects their ids, in SQL."""
    bit = 1 << number
    statement = "UPDATE ojs_job SET marks = marks | {0} WHERE marks & {0} = 0 AND id IN ({1})"
    _execute(connection, [statement.format(bit, jobs)])


def drop_statements(vendor: str, objects: Collection[Named]) -> list[str]:
    """Return the statements that drop these: triggers and indexes before their functions."""
    return [
        _DROP.get((vendor, each.kind), "DROP {kind} {name}").format_map(each._asdict())
        for each in sorted(objects, key=lambda each: (each.kind not in ("TRIGGER", "INDEX"), each))
    ]


def missing_of_extensions(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of the extensions of which something is missing."""
    wanted = {
        extension.name: created(statements_of(extension, connection.vendor))
        for extension in registry.with_schema()
    }
    present = database.dialect_of(connection).named_objects(connection) if wanted else set()
    return [name for name, objects in wanted.items() if objects - present]


def combined_constraints(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return the constraints of models that the files drop, and the one in the place of each."""
    combined: dict[str, str] = {}
    for each in core_statements(connection.vendor):
        if added := _ADDED.search(each):
            combined |= dict.fromkeys(_DROPPED.findall(each), added[1])
    return combined


def created(statements: Collection[str]) -> set[Named]:
    """Return what these statements create."""
    return {
        Named(kind, name, table if kind in ("TRIGGER", "INDEX") else "")
        for each in statements
        for kind, name, table in _CREATED.findall(each)
    }


def all_statements(vendor: str) -> list[str]:
    """Return the statements of the core and of all extensions for a database."""
    extensions = [statements_of(each, vendor) for each in registry.with_schema()]
    return sum(extensions, core_statements(vendor))


def core_statements(vendor: str) -> list[str]:
    """Return the statements of all files of the core."""
    return [text for name in FILES[vendor] for text in statements(vendor, name)]


def statements_of(extension: Extension, vendor: str) -> list[str]:
    """Return the statements of an extension, with its bit of `ojs_job.marks`."""
    assert extension.schema is not None
    text = (extension.schema / f"{folder_of(vendor)}.sql").read_text(encoding="utf-8")
    return split(text.replace("{mark}", str(1 << extension.number)))


def statements(vendor: str, name: str) -> list[str]:
    """Return the statements of a file of the core."""
    return split((_FOLDER / folder_of(vendor) / f"{name}.sql").read_text(encoding="utf-8"))


def split(text: str) -> list[str]:
    """Return the statements of a text. A blank line separates two, and none contains one."""
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]


def _has_jobs(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        return "ojs_job" in connection.introspection.table_names(cursor)


def _has_tables(connection: BaseDatabaseWrapper, extension: Extension) -> bool:
    """Whether the tables of an extension's app are there: `migrate <label> zero` drops them.

    For an app without tables, return whether its migrations are applied, if those of the core are.
    """
    app = apps.get_containing_app_config(type(extension).__module__)
    if app is None:
        return True
    if app.models_module is None:
        applied = {label for label, _ in MigrationRecorder(connection).applied_migrations()}
        return app.label in applied or "django_ojs" not in applied
    wanted = {
        model._meta.db_table
        for model in app.get_models()
        if router.allow_migrate_model(connection.alias, model)
    }
    with connection.cursor() as cursor:
        return wanted <= {*connection.introspection.table_names(cursor)}


def _execute(connection: BaseDatabaseWrapper, statements: Collection[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)

"""The part of the schema that Django cannot express: functions, procedures, triggers, indexes.

For the core, a migration executes files of the dialect (`Server.schema`). An extension has its own
in the folder `Extension.schema`: they are executed after each `migrate`, if something that they
create is missing. So an extension may be added to a site later, and what SQLite drops when a
migration rebuilds the table of jobs is created again.
"""

import re
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Final

from django.apps import apps
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from django_ojs.extension import Extension
from django_ojs.hooks import registry
from django_ojs.storage import database
from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.rows import Named

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
    dialect = database.of_vendor(connection.vendor)
    if dialect is None or not _has_jobs(connection):
        return
    present = set(dialect.read(connection, Named))
    if created(core_statements(dialect)) - present:
        with transaction.atomic(using=using):
            _execute(connection, core_statements(dialect))
        # What changed while there were no triggers was not counted.
        dialect.repair_counts(connection)
    else:
        _execute(connection, dialect.after_flush)
    for extension in registry.with_schema():
        statements = statements_of(extension, dialect)
        if created(statements) - present and _has_tables(connection, extension):
            with transaction.atomic(using=using):
                _execute(connection, statements)
                extension.catch_up(connection)


def create(connection: BaseDatabaseWrapper) -> None:
    """Create all objects of the core and the extensions, in place of those that exist."""
    dialect = database.dialect_of(connection)
    _execute(connection, core_statements(dialect))
    for extension in registry.with_schema():
        _execute(connection, statements_of(extension, dialect))
        extension.catch_up(connection)


def mark(connection: BaseDatabaseWrapper, number: int, jobs: str) -> None:
    """Give the bit of an extension to jobs that lack it; `jobs` selects their ids, in SQL."""
    bit = 1 << number
    statement = "UPDATE ojs_job SET marks = marks | {0} WHERE marks & {0} = 0 AND id IN ({1})"
    _execute(connection, [statement.format(bit, jobs)])


def drop_statements(dialect: Dialect, objects: Collection[Named]) -> list[str]:
    """Return the statements that drop these objects: triggers and indexes before functions."""
    return [
        dialect.drop.get(each.kind, "DROP {kind} {name}").format_map(asdict(each))
        for each in sorted(objects, key=lambda each: (each.kind not in ("TRIGGER", "INDEX"), each))
    ]


def missing_of_extensions(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of the extensions whose objects are not all in the database."""
    dialect = database.dialect_of(connection)
    wanted = {
        extension.name: created(statements_of(extension, dialect))
        for extension in registry.with_schema()
    }
    present = set(dialect.read(connection, Named)) if wanted else set()
    return [name for name, objects in wanted.items() if objects - present]


def combined_constraints(dialect: Dialect) -> dict[str, str]:
    """Return the constraints of models that the files drop, each with its replacement."""
    combined: dict[str, str] = {}
    for each in core_statements(dialect):
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


def all_statements(dialect: Dialect) -> list[str]:
    """Return the statements of the core and of all extensions for a database."""
    extensions = [statements_of(each, dialect) for each in registry.with_schema()]
    return sum(extensions, core_statements(dialect))


def core_statements(dialect: Dialect) -> list[str]:
    """Return the statements of all files of the core."""
    return [text for path in dialect.schema for text in statements(path)]


def reverse_statements(dialect: Dialect) -> list[str]:
    """Return the statements that drop what the core creates."""
    return statements(dialect.schema[0].with_name("drop.sql"))


def statements_of(extension: Extension, dialect: Dialect) -> list[str]:
    """Return the statements of an extension, with its bit of `ojs_job.marks`."""
    assert extension.schema is not None
    text = (extension.schema / f"{dialect.name}.sql").read_text(encoding="utf-8")
    return split(text.replace("{mark}", str(1 << extension.number)))


def statements(path: Path) -> list[str]:
    """Return the statements of a file."""
    return split(path.read_text(encoding="utf-8"))


def split(text: str) -> list[str]:
    """Return the statements of a text. Blank lines separate them; no statement contains one."""
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]


def _has_jobs(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        return "ojs_job" in connection.introspection.table_names(cursor)


def _has_tables(connection: BaseDatabaseWrapper, extension: Extension) -> bool:
    """Whether the tables of an extension's app are there: `migrate <label> zero` drops them.

    For an app without tables, return whether its migrations are applied, if those of the core are.
    An app without migrations has nothing to wait for.
    """
    app = apps.get_containing_app_config(type(extension).__module__)
    if app is None:
        return True
    if app.models_module is None:
        from django.db.migrations.loader import MigrationLoader

        if app.label not in MigrationLoader(None).migrated_apps:
            return True
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

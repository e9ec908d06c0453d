"""Migrations, triggers, indexes and constraints."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from django.core import checks as system_checks
from django.db.models import CheckConstraint, Index

from django_ojs.command_line.checks.finding import Check
from django_ojs.command_line.database_check import unapplied_migrations
from django_ojs.finding import Finding, Severity
from django_ojs.models.base import stored_models
from django_ojs.storage import database, schema
from django_ojs.storage.dialects.rows import Named
from django_ojs.storage.dialects.server import InvalidIndex
from django_ojs.storage.figures import counts

#: What goes wrong if an object of the schema is missing.
_WHY: Final = {
    "TRIGGER": (
        "Jobs that change without it are not counted, or their workflows and limits get stuck."
    ),
    **dict.fromkeys(("FUNCTION", "PROCEDURE"), "Enqueues fail, or jobs are not counted."),
    "INDEX": (
        "Queries that need it read the whole table: claims, promotion or pages get slower with "
        "every job."
    ),
}


def _settings() -> Iterator[Finding]:
    problems = [
        *system_checks.run_checks(tags=["django_ojs"]),
        *database.dialect().check(database.connection()),
    ]
    for problem in problems:
        if not problem.is_silenced():
            yield Finding(
                kind="system_check",
                subject=problem.id or problem.msg,
                severity=(
                    Severity.WARNING if problem.level >= system_checks.ERROR else Severity.ADVICE
                ),
                text=f"{problem.msg} ({problem.id})",
                why="It is a system check of django_ojs; `manage.py check` shows it too.",
                cure=problem.hint or "See docs/reference/settings.md.",
            )


def _migrations() -> Iterator[Finding]:
    for name in unapplied_migrations():
        yield Finding(
            kind="migration_missing",
            subject=name,
            text=f"The migration {name} is not applied.",
            why="Workers do not start, and enqueues fail where a table or column is missing.",
            cure="Run `manage.py migrate`.",
        )


def _triggers() -> Iterator[Finding]:
    connection = database.connection()
    present = set(database.dialect().read(connection, Named))
    disabled = {each for each in present if each.is_disabled}
    for each in sorted(schema.created(schema.all_statements(database.dialect()))):
        if each not in present:
            problem = "is missing"
        elif each in disabled:
            problem = "is disabled"
        else:
            continue
        yield Finding(
            kind="object_missing",
            subject=str(each),
            text=f"The {each} {problem}.",
            why=_WHY[each.kind],
            cure=(
                "Run `manage.py ojs doctor --repair`. It creates what is missing again, and "
                "corrects the counts."
            ),
        )


def _create_triggers() -> None:
    schema.create(database.connection())


def _indexes() -> Iterator[Finding]:
    connection = database.connection()
    combined = schema.combined_constraints(database.dialect())
    for broken in database.dialect().read(connection, InvalidIndex):
        yield Finding(
            kind="index_invalid",
            subject=broken.name,
            text=f"The index {broken.name} is not valid: its build did not finish.",
            why="No query uses it, and every write still pays for it.",
            cure=f"REINDEX INDEX CONCURRENTLY {broken.name};",
        )
    for model in stored_models():
        if not model._meta.managed or model._meta.proxy:
            continue
        with connection.cursor() as cursor:
            table = model._meta.db_table
            present = connection.introspection.get_constraints(cursor, table)
        for index in model._meta.indexes:
            if index.name not in present and _is_made(index):
                yield Finding(
                    kind="index_missing",
                    subject=index.name,
                    text=f"The index {index.name} of {table} is missing.",
                    why=_WHY["INDEX"],
                    cure=f"{_creation(model, index)};",
                )
        for name in _missing_constraints(model, present, combined):
            yield Finding(
                kind="constraint_missing",
                subject=name,
                text=f"The constraint {name} of {table} is missing.",
                why="Rows that no version of django_ojs writes could be stored.",
                cure=(
                    f"Create it again, as the migration 0001_initial does: `manage.py sqlmigrate "
                    f"{model._meta.app_label} 0001` prints its statement."
                ),
            )


def _missing_constraints(
    model: Any, present: Collection[str], combined: Mapping[str, str]
) -> list[str]:
    declared = [each.name for each in model._meta.constraints if isinstance(each, CheckConstraint)]
    missing = [combined.get(name, name) for name in declared if name not in present]
    return [name for name in dict.fromkeys(missing) if name not in present]


def _is_made(index: Index) -> bool:
    # Where Django makes no indexes of expressions, the files of the schema make the useful ones.
    makes_all = database.connection().features.supports_expression_indexes
    if makes_all or not index.contains_expressions:
        return True
    name = re.compile(rf"\b{index.name}\b")
    return any(map(name.search, schema.all_statements(database.dialect())))


def _creation(model: Any, index: Index) -> str:
    # If the files of the schema make the index, Django does not: return their statement.
    wanted = re.compile(rf"ADD INDEX IF NOT EXISTS {index.name}\s+\([^;]*?\)(?=[,;])")
    for match in filter(None, map(wanted.search, schema.all_statements(database.dialect()))):
        return f"ALTER TABLE {model._meta.db_table} {' '.join(match[0].split())}"
    # The editor is not used as a context manager, because it must execute nothing.
    editor = database.connection().schema_editor(collect_sql=True)
    statement = str(index.create_sql(model, editor))
    return statement.replace("CREATE INDEX", database.dialect().create_index, 1)


CHECKS: Final = (
    Check(
        name="settings",
        about="The settings and the database's options",
        run=_settings,
    ),
    Check(
        name="triggers",
        about="The triggers and functions of the schema",
        run=_triggers,
        # Jobs that changed while there were no triggers were not counted. The counting takes long,
        # so it has its own transaction: new triggers lock the table until they are committed.
        repair=(_create_triggers, counts.repair),
    ),
    Check(name="indexes", about="The indexes and constraints", run=_indexes),
)
MIGRATIONS: Final = Check(name="migrations", about="The migrations", run=_migrations)

"""Whether the database responds, and has the tables of this version."""

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.db.migrations.executor import MigrationExecutor

from django_ojs.storage import database


def unapplied_migrations() -> list[str]:
    """Return the migrations of django_ojs that the jobs' database lacks."""
    executor = MigrationExecutor(database.connection())
    leaves = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "django_ojs"]
    return [str(migration) for migration, _ in executor.migration_plan(leaves)]


def require_database() -> None:
    """Raise CommandError unless the database responds and is migrated."""
    alias = database.alias()
    try:
        missing = unapplied_migrations()
    except DatabaseError as error:
        reason = database.unavailable_reason(error)
        raise CommandError(
            f"The database {alias!r} does not respond ({reason}). "
            "Check that it is running, and the settings of DATABASES."
        ) from error
    if missing:
        raise CommandError(
            f"The tables of django_ojs are missing or old in {alias!r}: "
            "run `manage.py migrate` first."
        )

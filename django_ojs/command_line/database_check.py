"""What a command needs of the database before it starts its work."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from django.core.management.base import CommandError
from django.db import Error, NotSupportedError, OperationalError
from django.db.migrations.executor import MigrationExecutor
from django.utils.connection import ConnectionDoesNotExist

from django_ojs.models.base import stored_models
from django_ojs.spec.errors import OJSError
from django_ojs.storage import database, schema
from django_ojs.storage.backoff import Backoff

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: How often a statement is tried. The pauses between the tries add up to about ten seconds.
TRIES: Final = 8


@contextmanager
def errors_in_words() -> Iterator[None]:
    """Let an error of an operation, or of the database, end the command with a sentence."""
    try:
        yield
    except OJSError as error:
        raise CommandError(error.message) from error
    except (NotSupportedError, ConnectionDoesNotExist) as error:
        raise CommandError(str(error)) from error
    except Error as error:
        # This raises a better message if the database is unavailable or not migrated.
        require_database()
        # The role may only read, for example. Only the first line is shown: the others may contain
        # values of a row.
        reason = str(error).partition("\n")[0]
        raise CommandError(f"The database reported an error: {reason}.") from error


def unapplied_migrations() -> list[str]:
    """Return the migrations of django_ojs and its extensions that the jobs' database lacks."""
    executor = MigrationExecutor(database.connection())
    labels = {model._meta.app_label for model in stored_models()}
    leaves = [key for key in executor.loader.graph.leaf_nodes() if key[0] in labels]
    return [str(migration) for migration, _backwards in executor.migration_plan(leaves)]


def require_database() -> None:
    """Raise CommandError unless the database responds and is migrated."""
    if problem := with_retries(schema_problem):
        raise CommandError(problem)


def schema_problem() -> str | None:
    """Return what is wrong with the tables in the database, and what to do; None if nothing is."""
    if unapplied_migrations():
        return (
            f"The tables of django_ojs are missing or old in {database.alias()!r}: run `manage.py "
            "migrate` first."
        )
    if names := schema.missing_of_extensions(database.connection()):
        return (
            f"Triggers, functions or indexes of these extensions are missing in "
            f"{database.alias()!r}: {', '.join(names)}. Run `manage.py migrate` first."
        )
    return None


def with_retries(operation: Callable[[], T]) -> T:
    """Run an operation at the start of a command; retry it if a lock or a statement times out.

    A migration or a long transaction can hold a lock while a new release starts. If workers ended
    because of it, the deployment would fail. Raises CommandError if the database does not respond,
    and after the last try.
    """
    backoff = Backoff()
    for left in range(TRIES - 1, -1, -1):
        try:
            return operation()
        except ConnectionDoesNotExist as error:
            raise CommandError(str(error)) from error
        except Error as error:
            reason = database.unavailable_reason(error)
            if not _is_connected():
                raise CommandError(
                    f"The database {database.alias()!r} does not respond ({reason}). Check that it "
                    "is running, and the settings of DATABASES."
                ) from error
            if not left or not isinstance(error, OperationalError):
                raise CommandError(
                    f"The database {database.alias()!r} rejected a statement ({reason}). Check "
                    "that the migrations are applied, that no transaction holds a lock on the "
                    "tables of django_ojs, and lock_timeout and statement_timeout of its role."
                ) from error
            logger.warning("A statement failed at the start (%s); trying again.", reason)
        time.sleep(backoff.pause())
    raise AssertionError("unreachable")


def _is_connected() -> bool:
    link = database.connection()
    return link.connection is not None and link.is_usable()

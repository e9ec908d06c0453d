"""The database that an enqueue stores its jobs in, so that they commit with the caller."""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from django.db import connections

from django_ojs.conf import settings
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome, in_current_database
from django_ojs.spec.errors import WrongDatabase
from django_ojs.storage import database

_PACKAGE: Final = f"{Path(__file__).parents[2]}{os.sep}"
#: Modules that run the function of an async twin: their frames are not the caller's.
_BRIDGES: Final = ("asgiref", "concurrent.futures", "threading")


def database_of_caller(*, has_transaction: bool = True) -> AbstractContextManager[None]:
    """Return a context in which jobs are stored in the database of the caller's transaction.

    Only for jobs in several databases. Within `using` it is the one that is selected. Outside of a
    transaction it is the database of this process, and so it is in those of two databases if none
    of them is the caller's (not `has_transaction`); otherwise those raise WrongDatabase.
    """
    if not database.is_to_be_chosen():
        return nullcontext()
    several = settings().databases
    opened = [
        connection.alias
        for connection in connections.all(initialized_only=True)
        if connection.alias in several and database.is_in_transaction(connection)
    ]
    if len(opened) > 1 and not has_transaction:
        return database.using(database.primary_alias())
    if len(opened) > 1:
        named = " and ".join(f"atomic(using={alias!r})" for alias in opened)
        raise WrongDatabase(
            f"A job was enqueued inside {named}, and commits with one of them only. Say with which "
            f"one: with django_ojs.using({opened[-1]!r}): ..."
        )
    return database.using(opened[0] if opened else database.primary_alias())


def stored_with_caller(
    store: Callable[[], list[EnqueuedJob]], *, has_transaction: bool = True
) -> list[EnqueuedJob]:
    """Store jobs in the database of the caller's transaction; their results know it."""
    with database_of_caller(has_transaction=has_transaction):
        return in_current_database(store())


def alias_of(job: EnqueuedJob) -> str | None:
    """Return the alias in whose transaction a job was just enqueued; None for the jobs' own."""
    if job.outcome is Outcome.OUTBOX and not settings().databases:
        return foreign_transaction()
    return job._alias


def alias_for_caller(*, may_use_outbox: bool) -> str | None:
    """Return the alias whose outbox takes the jobs, so that they commit with the caller.

    None where the jobs' own alias commits with the caller. Where it does not, and WRONG_DATABASE is
    not "outbox", or the outbox may not be used: raises WrongDatabase or warns, as the setting says.
    """
    other = foreign_transaction()
    if other is None or (may_use_outbox and settings().wrong_database == "outbox"):
        return other
    alias = database.alias()
    message = (
        f"A job was enqueued inside atomic(using={other!r}), but jobs are stored in {alias!r}: it "
        "would not roll back with that transaction. Enqueue inside "
        f"atomic(using={alias!r}), enqueue after the transaction, or route the models of both to "
        "one database; OJS = {'WRONG_DATABASE': 'warn'} turns this error into a warning, and "
        "'outbox' sends the job through the outbox of that alias."
    )
    if settings().wrong_database != "warn":
        raise WrongDatabase(message)
    warnings.warn(message, RuntimeWarning, stacklevel=_level_of_caller())
    return None


def foreign_transaction() -> str | None:
    """Return the alias of an open `atomic()` with which a job would not commit; None without."""
    alias = database.alias()
    if connections[alias].in_atomic_block:
        return None
    for other in connections.all(initialized_only=True):
        if other.in_atomic_block and other.alias != alias:
            return other.alias
    return None


def _level_of_caller() -> int:
    """Return the `stacklevel` by which `alias_for_caller` warns of the line that enqueued.

    `skip_file_prefixes` does this from Python 3.12 on. An async twin runs in a thread that has no
    frame of the coroutine which awaits it: then it is the line that entered `async_to_sync`, or
    the outermost frame of the thread.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or frame.f_globals.get("__name__", "").startswith(_BRIDGES)
    ):
        level, frame = level + 1, frame.f_back
    return level

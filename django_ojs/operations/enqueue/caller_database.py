"""The database that an enqueue stores its jobs in, so that they commit with the caller."""

import os
import sys
import warnings
from pathlib import Path
from typing import Final

from django.db import connections

from django_ojs.conf import settings
from django_ojs.hooks import registry
from django_ojs.not_installed import line_to_add
from django_ojs.spec.errors import WrongDatabase
from django_ojs.storage import database

_PACKAGE: Final = f"{Path(__file__).parents[2]}{os.sep}"
#: Modules that run the function of an async twin: their frames are not the caller's.
_BRIDGES: Final = ("asgiref", "concurrent.futures", "threading")


def check() -> None:
    """Raise WrongDatabase, or warn, where jobs would not commit with the caller's transaction.

    The setting WRONG_DATABASE decides which. Call this only if the outbox has not taken the jobs.
    """
    if (other := foreign_transaction()) is None:
        return
    alias, wanted = database.alias(), settings().wrong_database
    message = (
        f"A job was enqueued inside atomic(using={other!r}), but jobs are stored in {alias!r}: it "
        "would not roll back with that transaction. Enqueue inside "
        f"atomic(using={alias!r}), enqueue after the transaction, or route the models of both to "
        "one database; OJS = {'WRONG_DATABASE': 'warn'} turns this error into a warning, and "
        "'outbox' sends the job through the outbox of that alias."
    )
    if wanted == "outbox" and not registry.has("outbox"):
        message = f"{message} {line_to_add('outbox')}"
    if wanted != "warn":
        raise WrongDatabase(message)
    warnings.warn(message, RuntimeWarning, stacklevel=_level_of_caller())


def foreign_transaction() -> str | None:
    """Return the alias of an open `atomic()` with which a job would not commit, or None."""
    alias = database.alias()
    if connections[alias].in_atomic_block:
        return None
    for other in connections.all(initialized_only=True):
        if other.in_atomic_block and other.alias != alias:
            return other.alias
    return None


def _level_of_caller() -> int:
    """Return the `stacklevel` by which `check` warns of the line that enqueued.

    `skip_file_prefixes` does this from Python 3.12 on. An async twin runs in a thread that has no
    frame of the coroutine which awaits it. The warning then names the line that entered
    `async_to_sync`, or the outermost frame of the thread.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or frame.f_globals.get("__name__", "").startswith(_BRIDGES)
    ):
        level, frame = level + 1, frame.f_back
    return level

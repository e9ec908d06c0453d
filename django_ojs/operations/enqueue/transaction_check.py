"""Is what is enqueued tied to the caller's transaction?"""

import warnings

from django.db import connections

from django_ojs.conf import settings
from django_ojs.spec.errors import WrongDatabase
from django_ojs.storage import database


def foreign_transaction() -> str | None:
    """Return the alias of an open `atomic()` with which a job would not be tied; None without."""
    if len(connections.settings) == 1:
        return None
    alias = database.alias()
    if connections[alias].in_atomic_block:
        return None
    for other in connections.all(initialized_only=True):
        if other.in_atomic_block and other.alias != alias:
            return other.alias
    return None


def refuse_other_transactions() -> None:
    """Refuse, or warn of, an enqueue inside the `atomic()` of another alias.

    Raises WrongDatabase.
    """
    other = foreign_transaction()
    if other is None:
        return
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
    warnings.warn(message, RuntimeWarning, stacklevel=6)

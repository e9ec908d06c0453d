"""Limits by key: what the maintenance does for jobs that are held (see `claims_by_key`)."""

from typing import Final

from django_ojs.extensions.limits import claims_by_key, limit_journal
from django_ojs.storage import database, raw_queries

#: How many keys one step checks.
AT_ONCE: Final = limit_journal.KEYS_AT_ONCE

due_condition: Final = limit_journal.due_condition


def open_due() -> int:
    """Open held jobs of keys that have room. Return how many keys were checked."""
    # Usually no key is due, and this query takes no lock.
    return _open_due() if raw_queries.holds(due_condition()) else 0


@database.write_transaction
def _open_due() -> int:
    database.dialect().read_committed(database.connection())
    return limit_journal.open_due()


@database.write_transaction
def recheck() -> int:
    """Append to the journal the keys whose jobs are held without a reason. Return how many."""
    return claims_by_key.recheck()


@database.write_transaction
def prune() -> int:
    """Delete rows of keys that their rates no longer need. Return how many."""
    return claims_by_key.prune()

"""Limits by key: what the maintenance does for jobs that are held (see `key_limits`)."""

from typing import Final

from django_ojs.extensions.limits import key_limits, limit_journal
from django_ojs.storage import database, raw_queries

#: Keys of one step.
AT_ONCE: Final = limit_journal.KEYS_AT_ONCE

due_condition: Final = limit_journal.due_condition


def open_due() -> int:
    """Open held jobs of keys that have room. Return how many keys were checked."""
    # Usually there are none, and this query takes no lock.
    return _open_due() if raw_queries.holds(due_condition()) else 0


@database.write_transaction
def _open_due() -> int:
    database.dialect().read_committed(database.connection())
    return limit_journal.open_due()


@database.write_transaction
def recheck() -> int:
    """Let keys be checked whose jobs are held without a reason. Return how many."""
    return key_limits.recheck()


@database.write_transaction
def prune() -> int:
    """Delete what is known of keys whose rates need it no more. Return how many."""
    return key_limits.prune()

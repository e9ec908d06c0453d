"""Write to the jobs' database while a handler's transaction is open, outside of it."""

from collections.abc import Callable

from django_ojs.storage import database


def in_transaction() -> bool:
    """Whether a transaction is open in which a write would lock rows for other threads."""
    link = database.connection()
    return link.in_atomic_block and link.features.has_select_for_update


def run(write: Callable[[], None], *, timeout: float) -> bool:
    """Call `write` on another connection. Return False if that takes longer than the timeout."""
    try:
        database.elsewhere(write, timeout=timeout)
    except database.NotInTime:
        return False
    return True

"""Write to the jobs' database while a handler's transaction is open, outside of it."""

import threading
from collections.abc import Callable

from django.db import connections

from django_ojs.storage import database


def in_transaction() -> bool:
    """Whether a transaction is open in which a write would lock rows for other threads."""
    link = database.connection()
    return link.in_atomic_block and link.features.has_select_for_update


def run(write: Callable[[], None], *, timeout: float) -> bool:
    """Call `write` on another connection. Return False if that takes longer than the timeout."""
    failed: list[Exception] = []

    def call() -> None:
        try:
            write()
        except Exception as error:
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=call, name="ojs-outside-transaction", daemon=True)
    thread.start()
    thread.join(timeout)
    if failed:
        raise failed[0]
    return not thread.is_alive()

"""What a commit and a rollback do, for code that runs inside the transaction of a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("django_ojs")


@contextmanager
def savepoint() -> Iterator[None]:
    """Run a block that in a worker would be outside of any transaction.

    Its writes stay, as they would be committed there, also if it raises; only a transaction that
    an error has broken is rolled back to the beginning of the block. At its end the functions run
    that it registered with `transaction.on_commit`.
    """
    links = [link for link in connections.all(initialized_only=True) if link.in_atomic_block]
    begun = [_Savepoint(link) for link in links]
    try:
        yield
    finally:
        for each in begun:
            each.end()


class _Savepoint:
    def __init__(self, link: BaseDatabaseWrapper) -> None:
        self._link = link
        name = link.savepoint()
        assert name is not None  # Both databases have savepoints.
        self._id = name
        self._callbacks = len(link.run_on_commit)

    def end(self) -> None:
        link = self._link
        if not link.needs_rollback:
            try:
                link.savepoint_commit(self._id)
            except DatabaseError:
                pass  # PostgreSQL ended the transaction after an error.
            else:
                self._run_callbacks()
                return
        link.needs_rollback = False
        link.savepoint_rollback(self._id)
        link.savepoint_commit(self._id)
        del link.run_on_commit[self._callbacks :]

    def _run_callbacks(self) -> None:
        # A callback may register another one.
        while len(self._link.run_on_commit) > self._callbacks:
            entry: tuple[Any, ...] = self._link.run_on_commit.pop(self._callbacks)
            _, function, robust = entry
            try:
                function()
            except Exception:
                if not robust:
                    raise
                logger.exception("A function that runs after the commit failed.")

"""Imitates a commit and a rollback, for code that runs inside the transaction of a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage import database
from django_ojs.worker.handler_call import left_open_error

logger = logging.getLogger("django_ojs")


@contextmanager
def savepoint() -> Iterator[None]:
    """Run a block that in a worker would be outside of any transaction.

    Its writes stay, as they would be committed in a worker, even if it raises; only a transaction
    that an error has broken is rolled back to the beginning of the block. The functions that the
    block registered with `transaction.on_commit` run at its end.
    """
    links = [link for link in connections.all(initialized_only=True) if link.in_atomic_block]
    begun = [_Savepoint(link) for link in links]
    try:
        yield
    finally:
        for each in begun:
            each.end()


@contextmanager
def transactions_ended() -> Iterator[None]:
    """Run a handler; roll back what it leaves open, and raise the error that a worker has for it.

    A transaction that was open before, such as a test's, stays as it is.
    """
    before = {link.alias: _depth(link) for link in connections.all(initialized_only=True)}
    error = None
    try:
        yield
    finally:
        for link in connections.all(initialized_only=True):
            depth = before.get(link.alias, _NOT_OPEN)
            if _depth(link) > depth:
                error = left_open_error(link)
                _roll_back(link, depth, error)
    if error is not None:
        raise error


_Depth = tuple[bool, int]
_NOT_OPEN: _Depth = (False, 0)


def _depth(link: BaseDatabaseWrapper) -> _Depth:
    """Return whether a transaction is open, and how many atomic blocks are."""
    return database.is_transaction_open(link), len(link.atomic_blocks)


def _roll_back(link: BaseDatabaseWrapper, depth: _Depth, error: BaseException) -> None:
    was_open, blocks = depth
    left: list[Any] = link.atomic_blocks[blocks:]
    for block in reversed(left):
        block.__exit__(type(error), error, None)
        # Code that still holds the block may exit it later, which must not end a block of the test.
        block.using = "left open by a handler"
    if not was_open and database.is_transaction_open(link):
        link.rollback()
        link.set_autocommit(True)


class _Savepoint:
    def __init__(self, link: BaseDatabaseWrapper) -> None:
        self._link = link
        name = link.savepoint()
        assert name is not None  # All supported databases have savepoints.
        self._id = name
        self._callbacks = len(link.run_on_commit)

    def end(self) -> None:
        link = self._link
        if not link.needs_rollback:
            try:
                link.savepoint_commit(self._id)
            except DatabaseError:
                pass  # PostgreSQL has aborted the transaction after an error.
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

"""Another session of the application, and whether one waits for the lock of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections, transaction

from tests.worker.waiting import BOUND, PAUSE, eventually

#: Seconds between two looks. What MariaDB shows is a tenth of a second old, and stays so while it
#: is asked for.
_PAUSES = {"postgresql": PAUSE, "mysql": 0.2}


class Other:
    """Another session of the application, that a test takes through its steps."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Other:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        closed = self.do(connections.close_all)
        if failure is None:
            closed.result(BOUND)
        # After a failure, a step may wait for what is open until this block has been left.
        self._pool.shutdown(wait=failure is None)

    def do(self, step: Callable[[], Any]) -> Future[Any]:
        return self._pool.submit(step)


@contextmanager
def open_transaction(step: Callable[[], Any]) -> Iterator[Callable[[], None]]:
    """Let another session do a step in a transaction, and leave it open.

    Pass what commits it. For PostgreSQL and MariaDB: on SQLite, nothing else can be written
    meanwhile.
    """

    def begin() -> None:
        transaction.set_autocommit(False)
        step()

    with Other() as other:
        other.do(begin).result(BOUND)
        try:
            yield lambda: other.do(transaction.commit).result(BOUND)
        finally:
            # The server may take a moment to notice the end of a connection.
            other.do(transaction.rollback).result(BOUND)


def until_one_waits(*steps: Future[Any]) -> None:
    """Return when a session of this database waits for the lock of another one.

    Or when one of the steps has ended, which then did not wait.
    """
    eventually(
        lambda: _waits_for_a_lock() or any(step.done() for step in steps),
        "a session waits for a lock",
        pause=_PAUSES[connection.vendor],
    )


def _waits_for_a_lock() -> bool:
    waiting = (
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE datname = current_database() AND NOT granted"
        if connection.vendor == "postgresql"
        else "SELECT count(*) FROM information_schema.innodb_trx"
        " JOIN information_schema.processlist AS session ON session.id = trx_mysql_thread_id"
        " WHERE session.db = DATABASE() AND trx_state = 'LOCK WAIT'"
    )
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # In a transaction, PostgreSQL goes on showing the sessions that it listed first, and
            # another database's wait for a lock may have made it list them before ours came.
            cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(waiting)
        return bool(cursor.fetchone()[0])

"""Locks of rows, for a database without advisory locks of a transaction.

The table `ojs_lock` has a fixed number of rows, which are locked and, except on a Galera cluster,
never changed. A row for each name is not possible, because the number of names is not limited. So
two names may share a row, and then wait for each other without need. Locks of different kinds have
different rows. A statement locks its rows in their order.

Bounded queues, and bounded parts of queues, are locked by `admission_shares`.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from typing import Final
from zlib import crc32

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage.dialects.base import Dialect

#: Rows of a kind.
SLOTS: Final = 4096
#: The end of a statement that locks rows: it skips locked ones, or waits some seconds for them.
SKIP: Final = "SKIP LOCKED"
WAIT: Final = "WAIT "


class Kind(IntEnum):
    """What is locked; each kind has rows of its own."""

    SUBJECT = 0
    QUEUE = 1
    PART = 2
    UNIQUE_KEY = 3
    KEY = 4


def slot(kind: Kind, name: str) -> int:
    """Return the row of a name."""
    return kind * SLOTS + crc32(name.encode()) % SLOTS


class RowLocks(Dialect):
    """The part of a dialect that uses row locks; to be mixed in before it."""

    def _lock_slots(
        self, connection: BaseDatabaseWrapper, slots: Iterable[int], how: str = ""
    ) -> dict[int, bool]:
        """Lock rows until the transaction ends. Return the locked rows, and for each whether a
        later statement sees what was committed while this one waited.

        `how` is the end of the statement. With `SKIP`, rows that another transaction has
        locked are left out.
        """
        wanted = sorted(set(slots))
        if not wanted:
            return {}
        names = ", ".join(map(str, wanted))
        found = self._rows(connection, "lock_slots", slots=names, how=how)
        if how != SKIP and len(found) < len(wanted):
            # An error is better than two transactions that do what only one may.
            raise DatabaseError("Rows of ojs_lock are missing. Run `manage.py migrate`.")
        return {number: isolation.lower().startswith("read") for number, isolation in found}

    def lock_unique_keys(
        self, connection: BaseDatabaseWrapper, keys: Sequence[str], *, wait: bool = True
    ) -> bool | None:
        slots = {slot(Kind.UNIQUE_KEY, key) for key in keys}
        locked = self._lock_slots(connection, slots, "" if wait else SKIP)
        return all(locked.values()) if len(locked) == len(slots) else None

    def lock_subject(
        self, connection: BaseDatabaseWrapper, subject: str, *, wait: bool = True
    ) -> bool:
        how = "" if wait else SKIP
        return bool(self._lock_slots(connection, [slot(Kind.SUBJECT, subject)], how))

    def try_lock_keys(self, connection: BaseDatabaseWrapper, keys: Collection[str]) -> set[str]:
        """Lock keys of candidates (see `rows.Candidate`). Return the locked ones."""
        slots = {key: slot(Kind.KEY, key) for key in keys}
        locked = self._lock_slots(connection, slots.values(), SKIP)
        return {key for key in keys if slots[key] in locked}

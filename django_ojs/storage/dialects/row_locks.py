"""Locks of rows, for a database without advisory locks of a transaction.

The table `ojs_lock` has a fixed number of rows, which are locked and never changed: a lock that a
name has by itself would be a row for each name, and names are without number. So two names share a
row now and then, and wait for each other without need. Locks of different kinds have different
rows; those of one statement are locked in the order of the rows.

A bounded queue has no tickets and no shared locks (see `storage.bounds`): each transaction that
adds a job to it, or to a tenant with a bound, holds its lock alone until it ends, and counts. The
mixin of `admission_shares` has another way far from the bound.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final
from zlib import crc32

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.rows import Candidate, Turn, TurnJob

#: Rows of a kind.
SLOTS: Final = 4096
#: The end of a statement that locks rows: it waits for none, or for some seconds.
SKIP: Final = "SKIP LOCKED"
WAIT: Final = "WAIT "


class Kind(IntEnum):
    """What is locked; each kind has rows of its own."""

    SUBJECT = 0
    QUEUE = 1
    TENANT = 2
    UNIQUE_KEY = 3
    LIMIT_KEY = 4


def slot(kind: Kind, name: str) -> int:
    """Return the row of a name."""
    return kind * SLOTS + crc32(name.encode()) % SLOTS


class RowLocks(Dialect):
    """What a dialect does by locks of rows; to be mixed in before it."""

    def _lock_slots(
        self, connection: BaseDatabaseWrapper, slots: Iterable[int], how: str = ""
    ) -> dict[int, bool]:
        """Lock rows until the transaction ends. Return those that it has, and for each whether a
        later statement sees what was committed meanwhile.

        `how` is the end of the statement. By `SKIP`, those are left out that another transaction
        has locked.
        """
        wanted = sorted(set(slots))
        if not wanted:
            return {}
        names = ", ".join(map(str, wanted))
        found = self._rows(connection, "lock_slots", slots=names, how=how)
        if how != SKIP and len(found) < len(wanted):
            # Nothing is locked: better an error than two that do what only one may.
            raise DatabaseError("Rows of ojs_lock are missing. Run `manage.py migrate`.")
        return {number: isolation.lower().startswith("read") for number, isolation in found}

    def _lock_name(
        self, connection: BaseDatabaseWrapper, kind: Kind, name: str, timeout: float
    ) -> bool:
        """Lock a name, and say whether the transaction sees what was committed meanwhile.

        One that does not see it does not wait.
        """
        timeout_ms = f"{int(timeout * 1000)}ms"
        former, _, sees_all = self._rows(connection, "begin_row_lock", [timeout_ms])[0]
        if sees_all:
            self._lock_slots(connection, [slot(kind, name)])
        # After an error the rollback does this.
        self._rows(connection, "set_lock_timeout", [former])
        return bool(sees_all)

    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        return "" if self._lock_name(connection, Kind.QUEUE, queue, timeout) else None

    def renew_tickets(self, connection: BaseDatabaseWrapper, queue: str) -> None:
        """Nothing to do: the holder of the lock counts."""

    def spend_tickets(
        self, connection: BaseDatabaseWrapper, queue: str, version: str, cost: int, room: int
    ) -> None:
        """Nothing to do: the holder of the lock counts."""

    def admit_tenant(
        self, connection: BaseDatabaseWrapper, queue: str, tenant: str, *, jobs: int, bound: int
    ) -> bool:
        return False

    def lock_tenant(
        self, connection: BaseDatabaseWrapper, queue: str, tenant: str, timeout: float
    ) -> bool:
        return self._lock_name(connection, Kind.TENANT, f"{queue}\n{tenant}", timeout)

    def lock_unique_keys(
        self, connection: BaseDatabaseWrapper, keys: Sequence[str], *, wait: bool = True
    ) -> bool | None:
        slots = {slot(Kind.UNIQUE_KEY, key) for key in keys}
        locked = self._lock_slots(connection, slots, "" if wait else SKIP)
        return all(locked.values()) if len(locked) == len(slots) else None

    def lock_subject(self, connection: BaseDatabaseWrapper, subject: str) -> None:
        self._lock_slots(connection, [slot(Kind.SUBJECT, subject)])

    def try_lock_subject(self, connection: BaseDatabaseWrapper, subject: str) -> bool:
        return bool(self._lock_slots(connection, [slot(Kind.SUBJECT, subject)], SKIP))

    def limited_candidates(self, connection: BaseDatabaseWrapper, **wanted: Any) -> list[Candidate]:
        found = super().limited_candidates(connection, **wanted)
        locked = self._try_lock_keys(connection, {each.key for each in found if each.key})
        return [replace(each, is_locked=each.key in locked) for each in found]

    def turn_jobs(
        self,
        connection: BaseDatabaseWrapper,
        queue: str,
        turns: Sequence[Turn],
        **wanted: Any,
    ) -> list[TurnJob]:
        found = super().turn_jobs(connection, queue, turns, **wanted)
        keys = {each.candidate.key for each in found if each.candidate.key}
        locked = self._try_lock_keys(connection, keys)
        return [
            replace(each, candidate=replace(each.candidate, is_locked=each.candidate.key in locked))
            for each in found
        ]

    def due_limit_keys(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[str, bool]]:
        keys = [key for key, _ in super().due_limit_keys(connection, limit)]
        locked = self._try_lock_keys(connection, keys)
        return [(key, key in locked) for key in keys]

    def _try_lock_keys(self, connection: BaseDatabaseWrapper, keys: Collection[str]) -> set[str]:
        slots = {key: slot(Kind.LIMIT_KEY, key) for key in keys}
        locked = self._lock_slots(connection, slots.values(), SKIP)
        return {key for key in keys if slots[key] in locked}

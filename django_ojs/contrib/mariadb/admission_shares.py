"""Admission by shares, for a database where only row locks end with a transaction.

A bounded queue, and a part of a queue that has a bound of its own, has a fixed number of shares:
rows of `ojs_lock` that are locked and never changed. A transaction that adds jobs locks as many
free ones as its jobs need, so producers do not wait for each other. Then it counts the jobs, and
adds its own only if there is room for all shares below the bound: so there is room for whatever the
holders of the other shares add, however they end.

Near the bound a producer holds all shares, so that no other adds jobs, and counts. It waits for the
holders, one such producer after the other: the row of `Kind.QUEUE` or `Kind.PART` says whose turn
it is. A transaction that holds a share already does not wait for its turn, because the other one
may wait for that share: it is rejected at once, where the server would end the deadlock by
rolling back the whole transaction.

Row locks stay when a savepoint is rolled back, and no statement says which of them a transaction
has. What a transaction has added is remembered with Django's transaction (`_Spent`); the rows are
locked again each time, so that what is remembered for too long reserves too much, and never too
little.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from math import ceil
from typing import Any, Final
from weakref import ReferenceType, ref
from zlib import crc32

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.contrib.mariadb.row_locks import SKIP, SLOTS, WAIT, Kind, RowLocks, slot
from django_ojs.spec.states import WAITING, State

#: The shares of a queue or a part of one: this many transactions can add jobs at the same time.
SHARES: Final = 32
#: A share is this part of the bound, so that all of them are a quarter of it.
_PARTS: Final = 4 * SHARES
#: How many names have shares of their own, and the first row.
_GROUPS: Final[Mapping[Kind, tuple[int, int]]] = {
    Kind.QUEUE: (256, len(Kind) * SLOTS),
    Kind.PART: (1024, len(Kind) * SLOTS + 256 * SHARES),
}
_COUNTED: Final = [*sorted(WAITING), State.ACTIVE]
_LOCK_WAIT_TIMEOUT: Final = 1205
_DEFAULT: Final = "_default"

#: The ceilings of a queue by jobs and by bytes, and the bytes of a ticket.
BoundRow = tuple[int | None, ...]
#: Stands for the row of a queue that has no row, if the default policy has one.
_INHERITED: Final[BoundRow] = ()


class _Spent:
    """What a transaction has added under shares. Django drops it with the transaction."""

    def __init__(self) -> None:
        self.jobs: Counter[tuple[Kind, str]] = Counter()
        self.held: dict[tuple[Kind, str], set[int]] = {}

    def __call__(self) -> None:
        """Nothing to do after the commit."""


def _spent(connection: BaseDatabaseWrapper) -> _Spent | None:
    found: ReferenceType[_Spent] | None = getattr(connection, "_ojs_spent", None)
    return found() if found is not None else None


def _new_spent(connection: Any) -> _Spent:
    made = _Spent()
    # Only Django's list of functions to call after the commit refers to it.
    connection.on_commit(made)
    connection._ojs_spent = ref(made)
    return made


def _share(bound: int) -> tuple[int, int]:
    """Return the size of a share, and how many there are."""
    share = max(1, bound // _PARTS)
    return share, min(SHARES, bound // (4 * share))


class Shares(RowLocks):
    """Admission by shares; to be mixed in before a dialect, as `RowLocks` is."""

    def uses_shares(self, connection: BaseDatabaseWrapper) -> bool:
        """Say whether shares hold: a transaction must see at once what others have committed.

        Otherwise the lock of the name alone is taken, and no share.
        """
        return True

    def bounds_of(
        self, connection: BaseDatabaseWrapper, queues: Collection[str]
    ) -> dict[str, BoundRow]:
        """Return the rows of these queues that have a bound or inherit one."""
        rows = self._rows(connection, "bounds_of", {"queues": self.texts({*queues, _DEFAULT})})
        found = {queue: tuple(values) for queue, *values in rows}
        inherited = found.pop(_DEFAULT, None)
        bounds = {queue: found.get(queue, inherited and _INHERITED) for queue in queues}
        return {
            queue: values
            for queue, values in bounds.items()
            if values == _INHERITED or (values and values[:2] != (None, None))
        }

    def admit_queues(
        self,
        connection: BaseDatabaseWrapper,
        bounds: Mapping[str, BoundRow],
        added: Mapping[str, tuple[int, int]],
        *,
        alone: bool,
    ) -> bool:
        """Say whether bounded queues have room for (jobs, bytes), far from their bounds.

        Call it inside a transaction, which then adds the jobs. `alone` says that the transaction
        ends if there is no room. `added` has no pending jobs.
        """
        return all(
            self._admit_queue(connection, queue, bounds[queue], *added[queue], alone=alone)
            for queue in sorted(bounds.keys() & added.keys())
        )

    def _admit_queue(
        self,
        connection: BaseDatabaseWrapper,
        queue: str,
        bound: BoundRow,
        jobs: int,
        size: int,
        *,
        alone: bool,
    ) -> bool:
        if bound == _INHERITED:
            return False  # It gets a row of its own under the lock.
        depth, most_bytes, unit = bound

        def room() -> int:
            counted = self.counts(connection, "state", queues=[queue], states=_COUNTED)
            rooms: list[int] = [] if depth is None else [depth - sum(n for _, n, _ in counted)]
            if most_bytes is not None and unit:
                rooms.append((most_bytes - sum(n for _, _, n in counted)) // unit)
            return min(rooms)

        # The size of the shares follows from the bound, not from what is left of it.
        parts = [] if depth is None else [depth]
        if most_bytes is not None and unit:
            parts.append(most_bytes // unit)
        cost = jobs + (size // unit if unit else 0)
        return self.admit(
            connection, Kind.QUEUE, queue, cost=cost, bound=min(parts), room=room, alone=alone
        )

    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        return "" if self.lock_name(connection, Kind.QUEUE, queue, timeout) else None

    def admit_part(self, connection: BaseDatabaseWrapper, name: str, **how: Any) -> bool:
        """Do as `admit` for a part of a queue that has a bound of its own."""
        return self.admit(connection, Kind.PART, name, **how)

    def lock_part(self, connection: BaseDatabaseWrapper, name: str, timeout: float) -> bool:
        """Do as `lock_name` for a part of a queue."""
        return self.lock_name(connection, Kind.PART, name, timeout)

    def admit(
        self,
        connection: BaseDatabaseWrapper,
        kind: Kind,
        name: str,
        *,
        cost: int,
        bound: int,
        room: Callable[[], int],
        alone: bool = False,
    ) -> bool:
        """Lock as many shares as the jobs need, if there is room for all shares."""
        if not self.uses_shares(connection):
            return False
        share, shares = _share(bound)
        spent = _spent(connection)
        needed = ceil((cost + (spent.jobs[kind, name] if spent else 0)) / share)
        # A transaction that outlasts a rejection counts first too, so as to hold no share in vain.
        if needed > shares or not (alone or room() >= share * shares):
            return False
        spent = spent or _new_spent(connection)
        first = _first_share(kind, name)
        held = spent.held.setdefault((kind, name), set())
        # The remembered rows are still locked, or are locked now if they are free.
        found = self._lock_slots(connection, held, SKIP)
        if len(found) < needed:
            last, number = first + shares - 1, needed - len(found)
            found |= self._lock_shares(connection, first, last, number, found)
        held.clear()
        held.update(found)
        if len(found) < needed or not all(found.values()) or room() < share * shares:
            return False
        spent.jobs[kind, name] += cost
        return True

    def _lock_shares(
        self,
        connection: BaseDatabaseWrapper,
        first: int,
        last: int,
        number: int,
        held: Collection[int],
    ) -> dict[int, bool]:
        values = {"first": first, "last": last, "number": number, "held": [*held] or [-1]}
        found = self._rows(connection, "lock_shares", values)
        return {number: isolation.lower().startswith("read") for number, isolation in found}

    def lock_name(
        self, connection: BaseDatabaseWrapper, kind: Kind, name: str, timeout: float
    ) -> bool:
        """Lock a name and all of its shares.

        Return whether the transaction sees what was committed while it waited.
        """
        ends_at = time.monotonic() + timeout

        def wait() -> str:
            left = ends_at - time.monotonic()
            if left <= 0:
                raise OperationalError(_LOCK_WAIT_TIMEOUT, "Transactions that add jobs are open.")
            return f"{WAIT}{ceil(left)}"

        spent = _spent(connection)
        waits = spent is None or not spent.held.get((kind, name))
        turn = self._lock_slots(connection, [slot(kind, name)], wait() if waits else SKIP)
        if not turn:
            raise OperationalError(_LOCK_WAIT_TIMEOUT, "Another transaction waits for its turn.")
        if not all(turn.values()):
            return False
        if not self.uses_shares(connection):
            return True
        first = _first_share(kind, name)
        shares = range(first, first + SHARES)
        free = self._lock_slots(connection, shares, SKIP)
        for number in shares:
            if number not in free:
                self._lock_slots(connection, [number], wait())
        return True


def _first_share(kind: Kind, name: str) -> int:
    groups, first = _GROUPS[kind]
    return first + crc32(name.encode()) % groups * SHARES

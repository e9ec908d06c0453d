"""Bounded queues: exact at the bound, and nearly free far from it (backpressure §6).

On PostgreSQL an enqueue must not count jobs or wait for a lock while there is room; yet thirty
producers that cannot see each other's open transactions must stop at the bound. So there are three
ways of admission; `ojs_admit` (migrations/sql/postgresql/admission.sql) has the first two:

1. By a ticket. A sequence gives each job that is added a number, an admission ticket, and never the
   same one twice. Once it is known that there are at most U jobs, however the open transactions
   end, the next (bound - U) tickets are valid without counting. That costs a read of `ojs_bound`.
2. By counting. A transaction that adds jobs holds a shared lock until it ends, and adds no more
   than its share; for twice the share, four times and so on it holds another lock. No more jobs can
   be waiting before these transactions end than the committed waiting and active jobs and the share
   of each holder together. If that is below the bound, there is room, and tickets for the rest.
3. By the queue lock. Near the bound, a producer holds the lock alone, and sees all jobs.

A transaction that sees no more than was committed before it (REPEATABLE READ, SERIALIZABLE) can
neither count nor take the queue lock: it is admitted by a ticket, or finds the queue full.

SQLite has one writer, which can always count.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from django.db import Error
from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.extensions.backpressure.models import Bound
from django_ojs.models import Queue
from django_ojs.spec.queue_config import DEFAULT_POLICY as DEFAULT
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database, in_memory_state, queue_configs, raw_queries
from django_ojs.storage.queue_configs import config_of
from django_ojs.storage.statements import Statements

#: Seconds a producer waits for the queue lock: longer than most transactions, shorter than most
#: timeouts.
LOCK_TIMEOUT: Final = 5.0

#: Seconds until a process tries again to store the bounds of the settings.
_PAUSE: Final = 1.0

_SLOTS: Final = 16
#: A transaction's share without the queue lock is the bound divided by this: with some dozens of
#: producers, half of the bound needs no lock.
_SHARES: Final = 64
#: If a queue is bounded by bytes alone, its bound is divided into this many tickets.
_PARTS: Final = 65_536
_LEAST_UNIT: Final = 1024
_UNBOUNDED: Final = 2**62
_DERIVED: Final = ("share", "ceiling", "ceiling_bytes", "unit")

_STATEMENTS: Final = Statements(Path(__file__).parent / "statements")


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The waiting jobs of a queue: their number, and their bytes (see `Job.size_bytes`).

    `held` and `held_size` are the active jobs: a failure or the end of their worker returns them,
    without a check of the bound.
    """

    jobs: int
    size: int
    held: int = 0
    held_size: int = 0

    def with_(self, jobs: int, size: int) -> "Load":
        """Return the load with these jobs added."""
        return replace(self, jobs=self.jobs + jobs, size=self.size + size)

    def fits(self, bound: Backpressure) -> bool:
        """Whether it is within a bound."""
        return (bound.max_depth is None or self.jobs <= bound.max_depth) and (
            bound.max_size_bytes is None or self.size <= bound.max_size_bytes
        )

    def pressure(self, bound: Backpressure) -> float:
        """Return which part of the bound is used: the larger part, if there are two bounds."""
        parts = [0.0]
        if bound.max_depth:
            parts.append(self.jobs / bound.max_depth)
        if bound.max_size_bytes:
            parts.append(self.size / bound.max_size_bytes)
        return max(parts)

    def is_above(self, bound: Backpressure) -> bool:
        """Whether it has reached the warning threshold of a bound."""
        return is_bounded(bound) and self.pressure(bound) >= bound.warning_threshold

    def nearest(self, bound: Backpressure) -> tuple[int, int]:
        """Return depth and bound, in jobs or in bytes: in the unit that is nearer to its bound."""
        by_size = replace(bound, max_depth=None)
        if bound.max_depth is None or (
            bound.max_size_bytes is not None
            and self.pressure(by_size) > self.pressure(replace(bound, max_size_bytes=None))
        ):
            return self.size, bound.max_size_bytes or 0
        return self.jobs, bound.max_depth


def is_bounded(bound: Backpressure) -> bool:
    """Whether there is a bound of any kind."""
    return bound.max_depth is not None or bound.max_size_bytes is not None


def write(queue: str, bound: Backpressure) -> None:
    """Store a bound, which holds from the next enqueue on. Called inside a write transaction."""
    values = {**_values(queue, bound), "until": -1}
    _rows().update_or_create(queue=queue, defaults=values)
    # Tickets are issued, because some transactions can be admitted only by a ticket.
    database.after_commit(lambda: renew_tickets(queue))


def withdraw_tickets() -> None:
    """Make all tickets invalid, because they were issued from wrong counts."""
    Bound.primary.update(until=-1)


def renew_tickets(queue: str, *, wait: bool = True) -> None:
    """Issue tickets, if there is room for more than the open transactions may take.

    Without `wait`, nothing happens while another process does it.
    """
    if _has_tickets():
        database.in_write_transaction(partial(_renew_tickets, queue, wait))


def _renew_tickets(queue: str, wait: bool) -> None:
    subject = f"tickets of {queue}"
    if database.dialect().lock_subject(database.connection(), subject, wait=wait):
        # This admission takes one ticket.
        _admit(queue, Load(jobs=1, size=0), alone=True)


def is_admitted_unlocked(queue: str, added: Load) -> bool:
    """Whether a transaction that cannot use the queue lock may add jobs, as an enqueue may."""
    return _has_tickets() and _admit(queue, added, alone=False)


def _admit(queue: str, added: Load, *, alone: bool) -> bool:
    values = {"queue": queue, "jobs": added.jobs, "size": added.size, "alone": alone}
    return bool(_STATEMENTS.rows("admit", values)[0][0])


def _has_tickets() -> bool:
    # On other databases, an enqueue always counts, under a lock.
    return database.kind() == "postgresql"


def _values(queue: str, bound: Backpressure) -> dict[str, object]:
    unit = _unit(bound)
    tickets = min(
        bound.max_depth or _UNBOUNDED,
        bound.max_size_bytes // unit if bound.max_size_bytes and unit else _UNBOUNDED,
    )
    limit = bound.warning_threshold
    return {
        "slot": crc32(queue.encode()) % _SLOTS,
        "share": max(1, tickets // _SHARES),
        "ceiling": _below(bound.max_depth, limit),
        "ceiling_bytes": _below(bound.max_size_bytes, limit),
        "unit": unit,
    }


def rebound(queue: str) -> None:
    """Apply the configured bound of a queue, or of the default, from the next enqueue on.

    It is called inside a write transaction.
    """
    rows, queues = _rows(), Queue.primary.all()
    default = config_of(DEFAULT).backpressure
    if queue == DEFAULT:
        # Queues that inherit it get a row with their next job; the other rows are written now.
        rows.exclude(pk=DEFAULT).delete()
        own = queues.exclude(pk=DEFAULT).exclude(config={}).values_list("pk", flat=True)
        for name in {*own, *settings().queues} - {DEFAULT}:
            rebound(name)
    bound = config_of(queue).backpressure
    # These times are about the former bound.
    queues.filter(pk=queue).exclude(near_full_at=None).update(
        near_full_at=None, full_at=None, eased_at=None
    )
    if is_bounded(bound) or (queue != DEFAULT and is_bounded(default)):
        write(queue, bound)
    else:
        rows.filter(pk=queue).delete()
    queue_configs.changed()


def remove(queue: str) -> None:
    """Delete the bound of a queue that is deleted: a new one of its name inherits the default.

    It is called inside a write transaction.
    """
    _rows().filter(pk=queue).delete()
    if queue in settings().queues:
        rebound(queue)


def _outdated(wanted: Collection[str]) -> list[str]:
    """Return the queues whose stored bounds are not those of their configurations."""
    stored = {row.pop("queue"): row for row in _rows().values("queue", "slot", *_DERIVED)}
    found = []
    # The default comes first: a change of it deletes the rows of queues that inherit it.
    for queue in sorted({*stored, *wanted}, key=lambda name: (name != DEFAULT, name)):
        # The snapshot may be a second old; `rebound` reads the configuration again.
        bound = queue_configs.of(queue).backpressure
        if queue == DEFAULT and queue not in stored and not is_bounded(bound):
            continue
        if stored.get(queue) != _values(queue, bound):
            found.append(queue)
    return found


class ConfiguredBounds:
    """The bounds of `OJS["QUEUES"]`, which each process writes once."""

    def __init__(self) -> None:
        #: The setting as it was applied last; None before the first time.
        self.queues: Mapping[str, object] | None = None
        self._not_before = 0.0

    def apply(self) -> None:
        """Apply the bounds of the setting, even if it no longer has any."""
        wanted = settings().queues
        if wanted is self.queues or (not wanted and self.queues is not None and not self.queues):
            return

        def operation() -> None:
            for queue in _outdated(wanted):
                rebound(queue)

        def remember() -> None:
            self.queues = wanted

        if _has_long_transaction():
            if time.monotonic() < self._not_before:
                return
            # Usually another process has stored them, and no second connection is needed.
            if not _outdated(wanted) or _is_done_elsewhere(operation):
                remember()
            else:
                self._not_before = time.monotonic() + _PAUSE
            return
        database.in_write_transaction(operation)
        database.after_commit(remember)

    def reset(self) -> None:
        """Apply the setting again the next time."""
        self.queues, self._not_before = None, 0.0


configured: Final = in_memory_state.register(ConfiguredBounds())


def _rows() -> QuerySet[Bound]:
    return Bound.primary.all()


def is_inherited(queue: str) -> bool:
    """Whether a queue has no row, and the default policy has one."""
    found = set(_rows().filter(pk__in=[queue, DEFAULT]).values_list("pk", flat=True))
    return bool(found) and queue not in found


def write_inherited(queues: Collection[str]) -> bool:
    """Store the bounds that these queues inherit, unless that has to be done under their locks.

    Return whether it was done. It commits now: a caller's transaction that stored them would keep
    other producers out of the queues until it ends.
    """
    if not _has_long_transaction():
        return False
    missing = [queue for queue in queues if is_inherited(queue)]
    if not missing:
        return False

    def operation() -> None:
        for queue in missing:
            if is_inherited(queue):
                rebound(queue)

    return _is_done_elsewhere(operation)


def _has_long_transaction() -> bool:
    """Whether a transaction is open in which no bound should be stored, because it may be long.

    With one writer, or in a test's transaction, another connection could not store it.
    """
    link = database.connection()
    blocks: list[Any] = link.atomic_blocks
    in_test = any(map(database.is_of_test, blocks))
    return _has_tickets() and database.is_in_transaction(link) and not in_test


def _is_done_elsewhere(operation: Callable[[], object]) -> bool:
    """Run an operation in a transaction of its own. Return False if that is not possible now."""

    def run() -> None:
        # The caller may hold a lock that the operation needs.
        with database.hardly_waiting():
            database.in_write_transaction(operation)

    try:
        database.elsewhere(run)
    except Error:
        return False
    return True


def are_any() -> bool:
    """Whether any queue has a row with a bound."""
    return raw_queries.holds(any_condition())


def any_condition() -> str:
    """Return the SQL condition that any queue has a row with a bound."""
    return raw_queries.condition(Bound, "ceiling IS NOT NULL OR ceiling_bytes IS NOT NULL")


def bounded() -> list[str]:
    """Return the queues that have a row with a bound."""
    found = _rows().exclude(pk=DEFAULT).exclude(ceiling=None, ceiling_bytes=None)
    return list(found.order_by("pk").values_list("pk", flat=True))


def missing() -> list[str]:
    """Return the queues that are configured with a bound and have no row.

    There are some after a restore that left out the table, or changes made by hand.
    """
    queues = Queue.primary.exclude(config={})
    found = queues.exclude(pk__in=_rows().values("pk"))
    return [name for name in found.values_list("pk", flat=True) if is_bounded(_own(name))]


def _own(name: str) -> Backpressure:
    return config_of(name).backpressure


def lock_queue(queue: str, *, is_tried_again: bool = False) -> str | None:
    """Lock a queue until the transaction ends, so that no other one adds jobs to it.

    Call it inside a savepoint. Return the current version of the bound, or None when the
    transaction's snapshot does not show jobs that were added since. Raises OperationalError after
    the lock timeout, or on a deadlock.
    """
    return database.dialect().lock_queue(
        database.connection(), queue, lock_timeout(is_tried_again=is_tried_again)
    )


def lock_timeout(*, is_tried_again: bool) -> float:
    """Return how many seconds to wait for the lock of a queue, or of a tenant in it."""
    is_short = is_tried_again or database.hardly_waits()
    return database.SHORT_LOCK_TIMEOUT if is_short else LOCK_TIMEOUT


def load(queue: str) -> Load:
    """Return the load of a queue: the jobs that are committed, or added by this transaction."""
    found = database.dialect().counts(
        database.connection(), "state", queues=[queue], states=[*sorted(WAITING), State.ACTIVE]
    )
    jobs, size, held, held_size = 0, 0, 0, 0
    for state, number, number_bytes in found:
        if state == State.ACTIVE:
            held, held_size = number, number_bytes
        else:
            jobs, size = jobs + number, size + number_bytes
    return Load(jobs=jobs, size=size, held=held, held_size=held_size)


def issue_tickets(queue: str, version: str, bound: Backpressure, before: Load, after: Load) -> None:
    """Issue tickets for the room that is left, under the queue lock."""
    unit = _unit(bound)
    depth, size = bound.max_depth, bound.max_size_bytes
    if not after.is_above(bound):
        depth = _below(depth, bound.warning_threshold)
        size = _below(size, bound.warning_threshold)
    rooms = [_UNBOUNDED]
    if depth is not None:
        rooms.append(depth - after.jobs - after.held)
    if size is not None and unit:
        rooms.append((size - after.size - after.held_size) // unit)
    cost = after.jobs - before.jobs + ((after.size - before.size) // unit if unit else 0)
    # Take at least one ticket, but not so many that it takes long: tickets beyond the bound are not
    # valid anyway.
    cost, room = max(1, min(cost, 2 * _PARTS)), max(0, min(rooms))
    spend_tickets(queue, version, cost, room)


def spend_tickets(queue: str, version: str, cost: int, room: int) -> None:
    """Take `cost` tickets for jobs added under the queue lock; make `room` more valid.

    If the bound has another version now, this does nothing.
    """
    if _has_tickets():
        values = {"queue": queue, "version": version, "cost": cost, "room": room}
        _STATEMENTS.run("spend_tickets", values)


def set_warned(queue: str, warned: bool) -> bool:
    """Store whether a queue is above its threshold. Return whether that is new.

    Of several processes only one changes the row. Call it inside a write transaction.
    """
    rows = Queue.primary.filter(pk=queue)
    if warned and not rows.exists():
        # The queue has no row yet: it is configured in the settings, or inherits its bound.
        Queue.primary.bulk_create([Queue(name=queue)], ignore_conflicts=True)
    changed = rows.filter(warned_at__isnull=warned)
    # If another session has locked the row, the next check does this.
    return bool(database.update_free(changed, warned_at=Now() if warned else None))


def warned_without_bound() -> list[str]:
    """Return the queues that were above a threshold, and no longer have a bound."""
    found = Queue.primary.exclude(warned_at=None, near_full_at=None).exclude(pk__in=bounded())
    return list(found.order_by("pk").values_list("pk", flat=True))


def _unit(bound: Backpressure) -> int | None:
    if bound.max_size_bytes is None:
        return None
    if bound.max_depth is not None:
        return max(1, bound.max_size_bytes // bound.max_depth)
    return max(_LEAST_UNIT, bound.max_size_bytes // _PARTS)


def _below(whole: int | None, threshold: float) -> int | None:
    # The queue lock begins with the job that reaches the warning threshold: the transaction that
    # crosses it must see that it does.
    return None if whole is None else max(0, min(whole, ceil(whole * threshold)) - 1)

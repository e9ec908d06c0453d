"""Bounded queues: exact at the bound, and nearly free far from it (backpressure §6).

On PostgreSQL an enqueue must not count, wait or take turns while there is room, and thirty
producers that cannot see each other's open transactions must still end at the bound. So there are
three ways to be let in; `ojs_admit` (migrations/sql/postgresql/admission.sql) is the first two:

1. By a ticket. A sequence gives out numbers, to whoever adds a job, and never takes one back. Once
   somebody has found that there are at most U jobs, whatever becomes of all open transactions, the
   next (bound - U) tickets are good without a look. It costs a look into `ojs_bound`.
2. By a look. Whoever adds jobs holds a shared lock until its transaction ends, and adds no more
   than its share while it does; for twice the share, four times and so on it holds another one. So
   what is committed or runs, and its share for each holder, is more than can be waiting before
   these end; if that is below the bound, there is room, and tickets for the rest.
3. By a turn. Near the bound, producers hold the lock alone. What they see is then all there is.

A transaction that sees no more than was committed before it (REPEATABLE READ, SERIALIZABLE) can
neither look nor take a turn: it comes in by a ticket, or finds the queue full.

SQLite has one writer, which can look whenever it likes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final
from zlib import crc32

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Bound, Queue
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database, queue_configs, raw_queries
from django_ojs.storage.queue_configs import DEFAULT_POLICY as DEFAULT
from django_ojs.storage.queue_configs import config_of

#: Seconds a producer waits for its turn: longer than most transactions, shorter than most timeouts.
PATIENCE: Final = 5.0

_SLOTS: Final = 16
#: A transaction's share without a turn, as a part of the bound: with some dozens of producers, half
#: of the bound is free of turns.
_SHARES: Final = 64
#: A ticket of a queue that is bounded by bytes alone stands for this part of the bound.
_PARTS: Final = 65_536
_LEAST_UNIT: Final = 1024
_UNBOUNDED: Final = 2**62
_DERIVED: Final = ("share", "ceiling", "ceiling_bytes", "unit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What waits in a queue: jobs, and their bytes (see `Job.size_bytes`).

    `held` and `held_size` is what runs: a failure or an end of its worker brings it back, and
    nobody asks for room then.
    """

    jobs: int
    size: int
    held: int = 0
    held_size: int = 0

    def with_(self, jobs: int, size: int) -> "Load":
        """Return what it would be with these added."""
        return replace(self, jobs=self.jobs + jobs, size=self.size + size)

    def fits(self, bound: Backpressure) -> bool:
        """Say whether it is within a bound."""
        return (bound.max_depth is None or self.jobs <= bound.max_depth) and (
            bound.max_size_bytes is None or self.size <= bound.max_size_bytes
        )

    def pressure(self, bound: Backpressure) -> float:
        """Return depth ÷ bound, of the bound that is nearer."""
        parts = [0.0]
        if bound.max_depth:
            parts.append(self.jobs / bound.max_depth)
        if bound.max_size_bytes:
            parts.append(self.size / bound.max_size_bytes)
        return max(parts)


def is_bounded(bound: Backpressure) -> bool:
    """Say whether it bounds anything."""
    return bound.max_depth is not None or bound.max_size_bytes is not None


def write(queue: str, bound: Backpressure) -> None:
    """Make a bound hold from the next enqueue on. Inside a write transaction."""
    values = {**_values(queue, bound), "until": -1}
    _rows().update_or_create(queue=queue, defaults=values)
    # Who can only come in by a ticket finds one.
    database.after_commit(lambda: renew_tickets(queue))


def renew_tickets(queue: str) -> None:
    """Give out tickets, if there is room for more than those who are adding now may take."""
    database.retried(lambda: database.dialect().renew_tickets(database.connection(), queue))


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
    """Make what is configured for a queue, or as the default, hold from the next enqueue on.

    Inside a write transaction.
    """
    rows, queues = _rows(), Queue.primary.all()
    default = config_of(DEFAULT).backpressure
    if queue == DEFAULT:
        # Those that inherit it find out with their next job; the others say so again.
        rows.exclude(pk=DEFAULT).delete()
        own = queues.exclude(pk=DEFAULT).exclude(config={}).values_list("pk", flat=True)
        for name in {*own, *settings().queues}:
            rebound(name)
    bound = config_of(queue).backpressure
    if is_bounded(bound) or (queue != DEFAULT and is_bounded(default)):
        write(queue, bound)
    else:
        rows.filter(pk=queue).delete()
    queue_configs.changed()


def forget(queue: str) -> None:
    """Take away what a queue had that is deleted: a new one of its name inherits like any other.

    Inside a write transaction.
    """
    _rows().filter(pk=queue).delete()
    if queue in settings().queues:
        rebound(queue)


_settled: Mapping[str, object] | None = None


def settle_settings() -> None:
    """Make the bounds of `OJS["QUEUES"]` hold, once a process; also when none are left in it."""
    wanted = settings().queues
    if wanted is _settled or (not wanted and _settled is not None and not _settled):
        return

    def operation() -> None:
        rows = _rows().exclude(pk=DEFAULT).values("queue", "slot", *_DERIVED)
        stored = {row.pop("queue"): row for row in rows}
        for queue in sorted({*stored, *wanted}):
            # One look at all of them: where it is a second old, `rebound` looks again.
            if stored.get(queue) != _values(queue, queue_configs.of(queue).backpressure):
                rebound(queue)

    database.in_write_transaction(operation)
    database.after_commit(lambda: _settle(wanted))


def _settle(wanted: Mapping[str, object]) -> None:
    global _settled
    _settled = wanted


def _rows() -> QuerySet[Bound]:
    return Bound.primary.all()


def is_inherited(queue: str) -> bool:
    """Say whether only the default policy says so far how a queue is bounded."""
    found = set(_rows().filter(pk__in=[queue, DEFAULT]).values_list("pk", flat=True))
    return bool(found) and queue not in found


def are_any() -> bool:
    """Say whether any queue has a bound, as far as anybody has asked."""
    return raw_queries.exists(Bound, "ceiling IS NOT NULL OR ceiling_bytes IS NOT NULL")


def bounded() -> list[str]:
    """Return the queues that have one, as far as anybody has asked."""
    found = _rows().exclude(pk=DEFAULT).exclude(ceiling=None, ceiling_bytes=None)
    return list(found.order_by("pk").values_list("pk", flat=True))


def forgotten() -> list[str]:
    """Return the queues that are configured with a bound nobody looks at.

    There are some after a restore that left out the table, or rows written by hand.
    """
    queues = Queue.primary.exclude(config={})
    found = queues.exclude(pk__in=_rows().values("pk"))
    return [name for name in found.values_list("pk", flat=True) if is_bounded(_own(name))]


def _own(name: str) -> Backpressure:
    return config_of(name).backpressure


def lock_queue(queue: str) -> str | None:
    """Keep others from adding to a queue until the transaction ends; inside a savepoint.

    Return the version of the bound that holds then, or None when the transaction cannot see what
    was added meanwhile. OperationalError when those who add do not end, or wait for us.
    """
    return database.dialect().lock_queue(database.connection(), queue, PATIENCE)


def load(queue: str) -> Load:
    """Return what waits in a queue, as far as it is committed or ours."""
    found = database.dialect().queue_counts(
        database.connection(), queue, [*sorted(WAITING), State.ACTIVE]
    )
    jobs, size, held, held_size = 0, 0, 0, 0
    for state, number, number_bytes in found:
        if state == State.ACTIVE:
            held, held_size = number, number_bytes
        else:
            jobs, size = jobs + number, size + number_bytes
    return Load(jobs=jobs, size=size, held=held, held_size=held_size)


def spend_tickets(queue: str, version: str, bound: Backpressure, before: Load, after: Load) -> None:
    """Give out tickets for the room that is left after a turn."""
    unit = _unit(bound)
    most, most_bytes = bound.max_depth, bound.max_size_bytes
    if after.pressure(bound) < bound.warning_threshold:
        most = _below(most, bound.warning_threshold)
        most_bytes = _below(most_bytes, bound.warning_threshold)
    rooms = [_UNBOUNDED]
    if most is not None:
        rooms.append(most - after.jobs - after.held)
    if most_bytes is not None and unit:
        rooms.append((most_bytes - after.size - after.held_size) // unit)
    cost = after.jobs - before.jobs + ((after.size - before.size) // unit if unit else 0)
    # Nothing less than a ticket, and never so many that giving them out is work: more than the
    # bound holds cannot be good anyway.
    cost, room = max(1, min(cost, 2 * _PARTS)), max(0, min(rooms))
    database.dialect().spend_tickets(database.connection(), queue, version, cost, room)


def nearer(load: Load, bound: Backpressure) -> tuple[int, int]:
    """Return depth and bound of what bounds the queue most: jobs, or bytes."""
    by_size = replace(bound, max_depth=None)
    if bound.max_depth is None or (
        bound.max_size_bytes is not None
        and load.pressure(by_size) > load.pressure(replace(bound, max_size_bytes=None))
    ):
        return load.size, bound.max_size_bytes or 0
    return load.jobs, bound.max_depth


def note_pressure(queue: str, *, warned: bool | None = None, full: bool | None = None) -> None:
    """Keep since when a queue is above its threshold, or full; None leaves it as it is."""
    rows = Queue.primary.filter(pk=queue)
    for column, state in (("warned_at", warned), ("full_at", full)):
        if state is True:
            rows.filter(**{column: None}).update(**{column: Now()})
        elif state is False:
            rows.exclude(**{column: None}).update(**{column: None})


def _unit(bound: Backpressure) -> int | None:
    if bound.max_size_bytes is None:
        return None
    if bound.max_depth is not None:
        return max(1, bound.max_size_bytes // bound.max_depth)
    return max(_LEAST_UNIT, bound.max_size_bytes // _PARTS)


def _below(whole: int | None, threshold: float) -> int | None:
    # Turns begin with the job that reaches the warning threshold: then whoever crosses it knows.
    return None if whole is None else max(0, min(whole, ceil(whole * threshold)) - 1)

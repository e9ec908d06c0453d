"""Backpressure (ojs-backpressure §5): every addition to a bounded queue is checked here.

PUSH, ACTIVATE and a retry by hand add jobs. A promotion, a retry after a failure and a return to
the queue are not checked, because their jobs were admitted before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import OperationalError

from django_ojs.conf import settings
from django_ojs.extension import Batch, Readmission
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import pressure_monitor
from django_ojs.extensions.backpressure.operations.drop_oldest import drop_oldest
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope, distinct
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.queue_config import Backpressure
from django_ojs.storage import database, queue_configs
from django_ojs.storage.dialects import job_row
from django_ojs.storage.dialects.job_row import NewRow
from django_ojs.storage.queue_configs import config_and_warned, config_of

T = TypeVar("T")

#: Inserts the jobs of a batch. If the batch says `only_if_admitted`, it returns None and stores
#: nothing, unless the statement itself can determine that their queues have room.
Insert = Callable[[], Sequence[NewRow] | None]


def insert_admitted(batch: Batch, insert: Insert) -> Sequence[NewRow] | None:
    """Store jobs by `insert`, if their queues have room.

    A bound that another process has set within the last second may be overlooked, unless the
    options say `checks_bound`: then the statement checks it, and takes a tenth longer. Raises
    QueueFull before anything is stored, and leaves the caller's transaction usable.
    """
    apply_settings()
    queues = {envelope.queue for envelope in distinct(batch.jobs)}
    is_bounded = _may_be_bounded(queues)
    if not is_bounded and not batch.options.checks_bound:
        return insert()
    stored = _insert_if_admitted(batch, insert)
    if stored is None and bounds.write_inherited(queues):
        stored = _insert_if_admitted(batch, insert)
    if stored is not None:
        return stored
    added, alone = _added(batch.jobs), not database.connection().in_atomic_block

    def operation() -> Sequence[NewRow] | None:
        locks = _lock_queues(added, is_tried_again=batch.options.is_tried_again)
        stored = insert()
        for lock in locks:
            lock.finish(alone=alone)
        return stored

    return database.in_write_transaction(operation)


def apply_settings() -> None:
    """Write the bounds of OJS["QUEUES"], unless this process has written them."""
    if settings().queues is not bounds.configured.queues:
        bounds.configured.apply()


def _insert_if_admitted(batch: Batch, insert: Insert) -> Sequence[NewRow] | None:
    batch.only_if_admitted = True
    try:
        return insert()
    finally:
        batch.only_if_admitted = False


def _may_be_bounded(queues: set[str]) -> bool:
    configs = queue_configs.current()
    if configs is None:
        return False
    if not configs.warned.isdisjoint(queues):
        # A queue was above its threshold when this was last read, and tickets do not show whether
        # it still is.
        pressure_monitor.watch.request()
    return any(bounds.is_bounded(configs.of(queue).backpressure) for queue in queues)


def admitted_again(readmission: Readmission, change: Callable[[], T]) -> T:
    """Make stored jobs wait again by `change`, if their queues have room; in a write transaction.

    Raises QueueFull before the change.
    """
    by_queue: dict[str, list[Job]] = {}
    for job in readmission.waiting():
        by_queue.setdefault(readmission.queue or job.queue, []).append(job)
    added = {queue: _load_of(jobs) for queue, jobs in by_queue.items()}
    # The savepoint keeps the transaction usable if a lock is not released in time, or another hook
    # rejects the jobs.
    with database.atomic():
        locks = _lock_queues(added, is_tried_again=readmission.is_tried_again)
        changed = change()
    for lock in locks:
        lock.finish()
    return changed


def _load_of(jobs: Iterable[Job]) -> Load:
    sizes = [job.size_bytes or 0 for job in jobs]
    return Load(jobs=len(sizes), size=sum(sizes))


def pressure(queue: str) -> tuple[Load, Backpressure] | None:
    """Return the load of a queue and its bound, when it is above its warning threshold."""
    bound = queue_configs.of(queue).backpressure
    if not bounds.is_bounded(bound):
        return None
    found = bounds.load(queue)
    return (found, bound) if found.is_above(bound) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _QueueLock:
    """The lock on a bounded queue, with its load before and after the enqueue."""

    queue: str
    version: str
    bound: Backpressure
    #: Whether the queue has `warned_at`, and whether it was above its threshold before the enqueue
    #: dropped jobs.
    warned: bool
    was_above: bool
    before: Load
    after: Load

    def finish(self, *, alone: bool = False) -> None:
        """Issue tickets for the room that is left, and have a crossed threshold published.

        `alone` says that the enqueue is a transaction of its own.
        """
        bounds.issue_tickets(self.queue, self.version, self.bound, self.before, self.after)
        is_above = self.after.is_above(self.bound)
        if is_above == self.warned:
            return
        if alone or is_above != self.was_above:
            # This is not done in the caller's transaction, which may hold the row of the queue for
            # long.
            database.after_commit(self._cross)
        else:
            # This enqueue crossed no threshold, and there may be thousands in the transaction.
            pressure_monitor.watch.request()

    def _cross(self) -> None:
        pressure_monitor.cross_after_commit(self.queue, self.bound, self.after)


def _lock_queues(added: dict[str, Load], *, is_tried_again: bool = False) -> list[_QueueLock]:
    # Queues are locked in the order of their names, so that two transactions that lock several do
    # not deadlock.
    locks = (_lock_queue(queue, added[queue], is_tried_again) for queue in sorted(added))
    return [lock for lock in locks if lock is not None]


def _lock_queue(queue: str, added: Load, is_tried_again: bool) -> _QueueLock | None:
    """Lock a queue and make room in it, or return None if it has no bound. Raises QueueFull."""
    bound = config_of(queue).backpressure
    # The default policy has a bound, and the queue has no row yet.
    is_new = bounds.is_inherited(queue)
    if not is_new and not bounds.is_bounded(bound):
        return None
    try:
        version = bounds.lock_queue(queue, is_tried_again=is_tried_again)
    except OperationalError as error:
        if not database.dialect().leaves_transaction(error) or not bounds.is_bounded(bound):
            raise
        raise _full(queue, bound, None, added) from None
    if version is None:
        if is_new:
            bounds.write_inherited([queue])
        if bounds.is_bounded(bound) and not bounds.is_admitted_unlocked(queue, added):
            raise _full(queue, bound, None, added)
        return None
    # The bound may have changed while this transaction waited for the lock.
    config, warned = config_and_warned(queue)
    bound = config.backpressure
    if is_new:
        # This must not come before the lock: a transaction that holds the row and waits for the
        # lock would deadlock with this one.
        bounds.write(queue, bound)
    if not bounds.is_bounded(bound):
        return None
    before = bounds.load(queue)
    was_above = before.is_above(bound)
    if not before.with_(added.jobs, added.size).fits(bound):
        left = None
        if added.fits(bound) and bound.strategy == "drop_oldest":
            left = drop_oldest(queue, bound, before, added)
        if left is None:
            raise _full(queue, bound, before, added)
        before = left
    return _QueueLock(
        queue=queue,
        version=version,
        bound=bound,
        warned=warned,
        was_above=was_above,
        before=before,
        after=before.with_(added.jobs, added.size),
    )


def _full(queue: str, bound: Backpressure, found: Load | None, added: Load) -> QueueFull:
    load = found if found is not None else Load(jobs=bound.max_depth or 0, size=0)
    by_size = bound.max_depth is None or (
        load.jobs + added.jobs <= bound.max_depth and bound.max_size_bytes is not None
    )
    error = QueueFull.at(
        queue,
        depth=load.size if by_size else load.jobs,
        bound=(bound.max_size_bytes if by_size else bound.max_depth) or 0,
        strategy=bound.strategy,
        # The depth is not known, because open transactions have added jobs.
        busy=found is None,
    )
    if by_size:
        error.details["unit"] = "bytes"
    _note_needs(error, added, bound)
    error.has_room = _has_room_again
    return error


def _has_room_again(full: QueueFull) -> bool:
    """Whether a queue that was full has room for the rejected jobs now."""
    load = bounds.load(full.queue)
    return load.with_(*full.needs).fits(config_of(full.queue).backpressure)


def add_needs(full: QueueFull, stored: Load) -> None:
    """Add what the same call had stored in the queue before: it is rolled back with the rest."""
    jobs, size = full.needs
    _note_needs(full, stored.with_(jobs, size), config_of(full.queue).backpressure)


def _note_needs(error: QueueFull, added: Load, bound: Backpressure) -> None:
    error.needs = added.jobs, added.size
    if not added.fits(bound):
        error.can_never_fit, error.retryable = True, False
        error.message = (
            f"queue {error.queue} never holds so much at once: its bound is {error.bound}"
        )
        error.hint = "Waiting does not help: send fewer or smaller jobs at a time."


def _added(envelopes: Sequence[Envelope]) -> dict[str, Load]:
    waiting = [envelope for envelope in envelopes if not envelope.pending]
    number = Counter(envelope.queue for envelope in waiting)
    size: Counter[str] = Counter()
    for envelope in waiting:
        size[envelope.queue] += job_row.size_of(job_row.row_of(envelope))
    return {queue: Load(jobs=number[queue], size=size[queue]) for queue in number}

"""Backpressure (ojs-backpressure §5): whatever adds jobs to a bounded queue comes through here.

That is PUSH, ACTIVATE and a retry by hand; not promotion, a retry after a failure or a return to
the queue, whose jobs were let in before.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final, TypeVar

from django.db import OperationalError

from django_ojs.models import Job
from django_ojs.operations.backpressure.drop_oldest import drop_oldest
from django_ojs.operations.events import publish
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import RETRY_AFTER, QueueFull
from django_ojs.spec.events import EventType
from django_ojs.spec.queue_config import Backpressure
from django_ojs.storage import bounds, database, queue_configs, rows, transitions
from django_ojs.storage.bounds import Load
from django_ojs.storage.dialects.base import Stored
from django_ojs.storage.figures import rollup_queries
from django_ojs.storage.queue_configs import config_of

T = TypeVar("T")

_NOTHING: Final = Load(jobs=0, size=0)

_LONGEST_RETRY_AFTER: Final = 60

#: Who waits for room looks this often: within 100 ms of room, it knows.
_LOOK_EVERY: Final = 0.05

#: By queue: when it was asked, and jobs worked off in a second.
_rates: dict[str, tuple[float, float]] = {}


def store(envelopes: Sequence[Envelope], *, generated_ids: bool, at_once: bool) -> list[Stored]:
    """Store jobs in one statement, if their queues have room.

    A bound that another process has set within the last second may be overlooked, unless
    `at_once`: then the statement looks, which costs a tenth. Raises QueueFull before anything is
    stored, and leaves the caller's transaction usable; DuplicateJob as `transitions.push` does.
    """
    bounds.settle_settings()
    if not at_once and not _known_to_be_bounded(envelopes):
        return transitions.push(envelopes, generated_ids=generated_ids)
    stored = transitions.push_if_admitted(envelopes, generated_ids=generated_ids)
    if stored is not None:
        return stored
    added = _added(envelopes)

    def operation() -> list[Stored]:
        turns = _take_turns(added)
        stored = transitions.push(envelopes, generated_ids=generated_ids)
        for turn in turns:
            turn.end()
        return stored

    return database.in_write_transaction(operation)


def _known_to_be_bounded(envelopes: Sequence[Envelope]) -> bool:
    # A set of one is the common case, and costs less than a generator.
    for queue in {envelope.queue for envelope in envelopes}:
        if bounds.is_bounded(queue_configs.of(queue).backpressure):
            return True
    return False


def enter_all(stored: Sequence[Job]) -> None:
    """Let jobs that are stored already into their queues; inside a write transaction.

    Raises QueueFull, and whoever asked changes nothing.
    """
    added: dict[str, Load] = {}
    for job in stored:
        added[job.queue] = added.get(job.queue, _NOTHING).with_(1, job.size_bytes or 0)
    for turn in _take_turns(added):
        turn.end()


@contextmanager
def entered(queue: str, stored: Iterable[Job]) -> Iterator[None]:
    """Let jobs of another queue into this one, which the block moves; in a write transaction.

    Raises QueueFull before the block.
    """
    added = _NOTHING
    for job in stored:
        added = added.with_(1, job.size_bytes or 0)
    turn = _take_turn(queue, added) if added.jobs else None
    yield
    if turn is not None:
        turn.end()


def pressure(queue: str) -> tuple[Load, Backpressure] | None:
    """Return what waits in a queue and its bound, when that is above its warning threshold."""
    bound = queue_configs.of(queue).backpressure
    if not bounds.is_bounded(bound):
        return None
    found = bounds.load(queue)
    if found.pressure(bound) < bound.warning_threshold:
        return None
    return found, bound


def _a_place() -> AbstractContextManager[bool]:
    return nullcontext(True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long an enqueue may wait for room.

    Only where the queue's strategy is `block`, or, with `always`, wherever it is full. Who brings
    patience, even none at all, asks for the bounds as they are at this moment; see `store`.
    """

    seconds: float
    always: bool = False
    #: Opened before the first wait, until the last is over. False: who comes now does not wait.
    place: Callable[[], AbstractContextManager[bool]] = _a_place


def with_patience(attempt: Callable[[], T], patience: Patience | None) -> T:
    """Call `attempt`, and again whenever there is room, until the patience is over.

    It waits outside of any transaction and without a lock; inside a caller's it does not wait.
    Raises QueueFull.
    """
    if patience is None or patience.seconds <= 0 or database.connection().in_atomic_block:
        return attempt()
    end = time.monotonic() + patience.seconds
    with ExitStack() as stack:
        there_is_a_place: bool | None = None
        while True:
            try:
                return attempt()
            except QueueFull as full:
                blocks = patience.always or full.details["strategy"] == "block"
                if not blocks or full.hopeless:
                    raise
                if there_is_a_place is None:
                    there_is_a_place = stack.enter_context(patience.place())
                if not there_is_a_place or not _see_room(full, end):
                    raise


def _see_room(full: QueueFull, end: float) -> bool:
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, random.uniform(_LOOK_EVERY / 2, _LOOK_EVERY)))
        load = bounds.load(full.queue)
        if load.with_(*full.needs).fits(config_of(full.queue).backpressure):
            return True
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Turn:
    """A turn at a bounded queue, with what was and what will be in it."""

    queue: str
    version: str
    bound: Backpressure
    before: Load
    after: Load

    def end(self) -> None:
        """Let others in as far as there is room, and tell who watches."""
        bounds.spend_tickets(self.queue, self.version, self.bound, self.before, self.after)
        limit = self.bound.warning_threshold
        if self.before.pressure(self.bound) < limit <= self.after.pressure(self.bound):
            depth, most = bounds.nearer(self.after, self.bound)
            publish.queue_event(EventType.BACKPRESSURE_WARNING, self.queue, depth=depth, bound=most)
            queue = self.queue
            database.after_commit(lambda: bounds.note_pressure(queue, warned=True))


def _take_turns(added: dict[str, Load]) -> list[_Turn]:
    # In the order of their names, so that two that take several never wait in a circle.
    return [turn for queue in sorted(added) if (turn := _take_turn(queue, added[queue]))]


def _take_turn(queue: str, added: Load) -> _Turn | None:
    bound = config_of(queue).backpressure
    # Its bound, or that it has none, is the default policy's: from now on it is known.
    is_new = bounds.is_inherited(queue)
    if not is_new and not bounds.is_bounded(bound):
        return None
    try:
        version = bounds.lock_queue(queue)
    except OperationalError as error:
        if not database.dialect().is_contention_error(error) or not bounds.is_bounded(bound):
            raise
        raise _full(queue, bound, None, added) from None
    if version is None:
        if bounds.is_bounded(bound):
            raise _full(queue, bound, None, added)
        return None
    # Somebody may have changed it while we waited.
    bound = config_of(queue).backpressure
    if is_new:
        # Not before the turn: who held the row and waited for the turn would wait in a circle.
        bounds.write(queue, bound)
    if not bounds.is_bounded(bound):
        return None
    before = bounds.load(queue)
    if not before.with_(added.jobs, added.size).fits(bound):
        if not added.with_(0, 0).fits(bound) or bound.strategy != "drop_oldest":
            raise _full(queue, bound, before, added)
        left = drop_oldest(queue, bound, before, added)
        if left is None:
            raise _full(queue, bound, before, added)
        before = left
    return _Turn(
        queue=queue,
        version=version,
        bound=bound,
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
        # Others have added jobs and not committed; what there will be, nobody knows yet.
        busy=found is None,
    )
    if by_size:
        error.details["unit"] = "bytes"
    if not added.fits(bound):
        error.hopeless = True
        error.message = f"queue {queue} never holds so much at once: its bound is {error.bound}"
        error.hint = "Waiting does not help: send fewer or smaller jobs at a time."
    error.needs = added.jobs, added.size
    return error


def retry_after(queue: str, jobs: int = 1) -> int:
    """Return how many seconds it will take until so many jobs are worked off, about."""
    now = time.monotonic()
    asked, rate = _rates.get(queue, (0.0, 0.0))
    if now - asked > 1.0:
        # Refusals come by the thousand, and one look is good for all of a second.
        done = rollup_queries.recent_by_queue(timedelta(minutes=2), [queue]).get(queue)
        rate = done.completed / 120 if done is not None else 0.0
        _rates[queue] = now, rate
    return min(_LONGEST_RETRY_AFTER, max(1, ceil(jobs / rate))) if rate else RETRY_AFTER


def _added(envelopes: Sequence[Envelope]) -> dict[str, Load]:
    waiting = [envelope for envelope in envelopes if not envelope.pending]
    number = Counter(envelope.queue for envelope in waiting)
    size: Counter[str] = Counter()
    for row in rows.build(waiting):
        size[row["queue"]] += rows.size_of(row)
    return {queue: Load(jobs=number[queue], size=size[queue]) for queue in number}

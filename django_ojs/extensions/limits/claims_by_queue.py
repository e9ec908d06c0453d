"""The limits of a queue on running and on starting jobs (ojs-rate-limiting §7.2).

A claim of a queue whose configuration has `concurrency` or `rate_limit` is a transaction that holds
a lock of the queue: it counts the active jobs in their rows, reads when jobs started, claims no
more than there is room for, and adds their starts.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Final, Self

from django_ojs import formatting
from django_ojs.claim_rules import RuledClaim, Waits
from django_ojs.extensions.limits.limit_statements import statements
from django_ojs.extensions.limits.rate_limit import RateLimit, Starts
from django_ojs.spec import json
from django_ojs.storage import database, queue_configs
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import ClaimRequest
from django_ojs.storage.next_starts import next_starts


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """How much of its limits a queue or key uses; times are in milliseconds since 1970."""

    limit: RateLimit
    active: int
    starts: Starts
    now: int
    #: Whether it contains all that was committed before the lock was taken.
    is_exact: bool
    #: Whether stored starts were later than now, because the clock was set back.
    was_ahead: bool = False
    #: Until when a limit key is paused, whatever its limits.
    paused_until: int = 0

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self.now

    @property
    def room(self) -> int:
        """How many jobs may start now."""
        if self.is_paused:
            return 0
        room = self.starts.room(self.limit, self.now)
        if self.limit.concurrency is not None:
            room = min(room, self.limit.concurrency - self.active)
        return max(0, room)

    def claimed_at(self, at: datetime) -> Self:
        """Return the use with the time at which jobs were claimed.

        A process may be suspended after it has read the use and before it claims. Starts that were
        counted too early would leave their window too early.
        """
        return replace(self, now=max(self.now, ceil(at.timestamp() * 1000)))

    def after(self, number: int) -> Self:
        """Return the use after this number of jobs has started."""
        starts = self.starts.after(self.limit, number, self.now)
        return replace(self, active=self.active + number, starts=starts)

    @property
    def next_at(self) -> int:
        """When the rates and a pause allow a start; this is now if they already do."""
        return max(self.starts.next_at(self.limit, self.now), self.paused_until)

    @property
    def seconds_to_rate(self) -> float:
        """Seconds until the rates and a pause allow a start."""
        return (self.next_at - self.now) / 1000

    @property
    def waits_for_end(self) -> bool:
        """Whether no job may start before another one ends."""
        return self.limit.concurrency is not None and self.active >= self.limit.concurrency


def try_lock(queue: str) -> bool:
    """Lock the limits of a queue until the transaction ends.

    Each statement of the transaction has to see what was committed before it. Return False if
    another transaction holds the lock: waiting for a stopped process would stop the other queues of
    the worker as well.
    """
    connection = database.connection()
    dialect = database.dialect_of(connection)
    return dialect.lock_subject(connection, f"limits of {queue}", wait=False)


def use(queue: str) -> Use | None:
    """Return how much of its limits a queue uses, as stored now, or None if it has no limits.

    The result is exact while the limits are locked.
    """
    return uses([queue]).get(queue)


def uses(queues: Collection[str]) -> dict[str, Use]:
    """Return how much of their limits these queues use, without the queues that have none."""
    found: dict[str, Use] = {}
    for row in statements().queues_use(queues):
        config = queue_configs.effective(row.queue, _read(row.config), _read(row.default_config))
        limit = config.part(RateLimit)
        if limit is None:
            continue
        parsed = Starts.parse(_read(row.starts))
        starts_so_far = parsed.until(row.now)
        found[row.queue] = Use(
            limit=limit,
            active=row.active,
            starts=starts_so_far,
            now=row.now,
            is_exact=bool(row.is_exact),
            was_ahead=starts_so_far != parsed,
        )
    return found


def _read(stored: str | None) -> dict[str, json.JSON]:
    found = {} if stored is None else json.loads_stored(stored)
    assert isinstance(found, dict)
    return found


def _note_full(queue: str, used: Use) -> None:
    next_starts.note_full(queue, used.seconds_to_rate, waits_for_end=used.waits_for_end)


def begin(request: ClaimRequest) -> RuledClaim:
    """Begin a claim: lock the limits of the queue, and read how much room they have."""
    queue = request.queue
    if not try_lock(queue):
        next_starts.note_soon(queue)
        return _NO_ROOM
    used = use(queue)
    if used is None:
        return RuledClaim()
    if not used.is_exact:
        # A caller's transaction does not see the claims that were committed since it began.
        return _NO_ROOM
    if not used.room:
        add_starts(queue, used, 0)
        _note_full(queue, used)
        return _NO_ROOM
    next_starts.forget(queue)
    return _Claim(request, used)


def full_among(queues: Collection[str]) -> Collection[str]:
    """Return which of these queues are at their limits.

    It is not exact, because only a claim takes the lock. A queue that gets room in the meantime is
    tried again by the next claim.
    """
    full = {
        queue: used for queue, used in uses(queues).items() if not used.room and not used.was_ahead
    }
    for queue, used in full.items():
        _note_full(queue, used)
    return full


def waits_for(queue: str) -> Waits | None:
    """Return which limit of its queue a job waits for."""
    used = use(queue)
    if used is None:
        return None
    limit, seconds = used.limit, used.seconds_to_rate
    if limit.concurrency is not None and used.active >= limit.concurrency:
        sentence = (
            f"The queue {queue} is at its limit: {formatting.grouped(used.active)} of its jobs "
            f"run, and {formatting.grouped(limit.concurrency)} may."
        )
    elif seconds > 0:
        duration = formatting.duration(seconds)
        sentence = f"The rate limit of the queue {queue} allows the next start in {duration}."
    else:
        return None
    return Waits(kind="limited", sentence=sentence, group="limits")


class _Claim(RuledClaim):
    """A claim under the lock of the queue's limits, which have room."""

    def __init__(self, request: ClaimRequest, used: Use) -> None:
        self._queue, self._wanted, self._used = request.queue, request.limit, used
        self.room = used.room

    def started(self, jobs: Sequence[Claimed]) -> None:
        used = self._used
        if jobs and (started_at := jobs[0].started_at):
            used = used.claimed_at(started_at)
        if used.limit.concurrency is not None:
            next_starts.wait_for_ends.add(self._queue)
        add_starts(self._queue, used, len(jobs))
        if len(jobs) == used.room < self._wanted:
            _note_full(self._queue, used.after(len(jobs)))


_NO_ROOM: Final = RuledClaim()
_NO_ROOM.room = 0


def add_starts(queue: str, used: Use, number: int) -> None:
    """Count the jobs that were claimed, for the rates of their queue."""
    if (number or used.was_ahead) and (used.limit.windows or used.limit.throttles):
        starts = (used.after(number) if number else used).starts.render()
        statements().store_starts(queue, json.dumps(starts))

"""The limits of a queue on running and on starting jobs (ojs-rate-limiting §7.2).

A claim of a queue whose configuration has `concurrency` or `rate_limit` is a transaction that holds
a lock of the queue: it counts the active jobs in their rows, reads when jobs started, claims no
more than there is room for, and adds their starts. A process that does not know of the limits takes
no job of the queue: the statement of the claim reads whether the configuration has any, and says
so (`transitions.LimitsUnknown`). The process reads the configurations, and claims again.
"""

import time
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Final, Self

from django_ojs.conf import settings
from django_ojs.models import LimitedQueue
from django_ojs.spec import json
from django_ojs.spec.queue_config import CLAIM_CHECKS
from django_ojs.spec.rate_limit import RateLimit, Starts
from django_ojs.spec.tenants import TenantFairness
from django_ojs.storage import database, in_memory_state, queue_configs

#: Seconds until a queue is tried again whose lock another transaction holds, or which has as many
#: active jobs as it may have: any process may end one at any time. The latter is doubled each time,
#: up to the largest. A worker is woken by the processes that end jobs of such a queue.
RETRY_AFTER: Final = 0.05
LARGEST_RETRY_AFTER: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Checks:
    """What a claim of a queue checks."""

    #: The turns of its tenants.
    fairness: TenantFairness | None = None
    #: The limits by key of its jobs.
    by_key: bool = False
    #: The claim has the lock of the queue's own limits, if it has any, and has checked them.
    has_lock: bool = False


#: The claim of a queue without limits and turns.
PLAIN: Final = Checks()


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """How much of its limits a queue uses at a time, in milliseconds since 1970."""

    limit: RateLimit
    active: int
    starts: Starts
    now: int
    #: Whether it contains all that was committed before the lock was taken.
    is_exact: bool
    #: Whether stored starts were later than now: the clock was set back.
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

        A process may be suspended between the two statements: starts that counted as earlier than
        they were would leave their window too early.
        """
        return replace(self, now=max(self.now, ceil(at.timestamp() * 1000)))

    def after(self, number: int) -> Self:
        """Return the use after so many jobs have started."""
        starts = self.starts.after(self.limit, number, self.now)
        return replace(self, active=self.active + number, starts=starts)

    @property
    def next_at(self) -> int:
        """When the rates, and a pause, allow a start; now if they do already."""
        return max(self.starts.next_at(self.limit, self.now), self.paused_until)

    @property
    def seconds_to_rate(self) -> float:
        """Seconds until the rates, and a pause, allow a start."""
        return (self.next_at - self.now) / 1000

    @property
    def waits_for_end(self) -> bool:
        """Whether no job may start before another one ends."""
        return self.limit.concurrency is not None and self.active >= self.limit.concurrency


class NextStarts:
    """When the limits of a queue may let the next job start, as this process found last."""

    def __init__(self) -> None:
        self._by_queue: dict[str, float] = {}
        self._full: set[str] = set()
        self._delays: dict[str, float] = {}
        #: Queues with a limit on running jobs, of which this process has claimed some.
        self.concurrency_limited: set[str] = set()
        #: Queues of which the last claim found no job that may start among as many as it may read.
        self.unread: set[str] = set()

    def note_full(self, queue: str, used: Use) -> None:
        """Remember that the limits let no job start now."""
        seconds = max(used.seconds_to_rate, RETRY_AFTER)
        if used.waits_for_end:
            delay = self._delays.get(queue, RETRY_AFTER)
            self._delays[queue] = min(2 * delay, LARGEST_RETRY_AFTER)
            seconds = max(seconds, delay)
        self.note(queue, seconds)

    def note(self, queue: str, seconds: float) -> None:
        """Remember that no job may start for so many seconds."""
        self._full.add(queue)
        self._by_queue[queue] = time.monotonic() + seconds

    def was_full(self, queue: str) -> bool:
        """Whether the last claim found the queue at its limits."""
        return queue in self._full

    def forget(self, queue: str) -> None:
        """Note that the queue has room."""
        self._full.discard(queue)
        self._delays.pop(queue, None)
        self._by_queue.pop(queue, None)

    def seconds(self) -> float | None:
        """Return the seconds until the first of them; each time is returned until it has passed."""
        if not self._by_queue:
            return None
        now = time.monotonic()
        left = min(self._by_queue.values()) - now
        self._by_queue = {queue: at for queue, at in self._by_queue.items() if at > now}
        return max(0.0, left)

    def reset(self) -> None:
        """Forget all of them."""
        self._by_queue = {}
        self._full = set()
        self._delays = {}
        self.concurrency_limited = set()
        self.unread = set()


next_starts: Final = in_memory_state.register(NextStarts())


def are_known(queue: str) -> bool:
    """Whether this process knows of limits or turns of a queue, or of limits by key of its jobs.

    Where the settings limit queues it may take a query: the statement of the claim does not see
    limits that are in no row.
    """
    if queue_configs.is_remembered_as_limited_by_key(queue):
        return True
    in_code = settings().queues
    if in_code and any(not CLAIM_CHECKS.isdisjoint(config) for config in in_code.values()):
        return queue_configs.of(queue).is_checked_by_claims
    return queue_configs.remembered(queue).is_checked_by_claims


def remembered_checks(queue: str) -> Checks:
    """Return what claims of a queue check that has no limits of its own, as this process knows."""
    return Checks(fairness=queue_configs.of(queue).tenant_fairness, by_key=True)


def try_lock(queue: str) -> bool:
    """Lock the limits of a queue until the transaction ends, at the start of the transaction.

    Return False where another transaction holds the lock. A wait for it would stop the other queues
    of the worker as well, for as long as a process that holds it is stopped.
    """
    connection = database.connection()
    dialect = database.dialect_of(connection)
    # The database or the role may have another default, which the connection does not know.
    dialect.read_committed(connection)
    return dialect.try_lock_subject(connection, f"limits of {queue}")


def use(queue: str) -> Use | None:
    """Return how much of its limits a queue uses; None where it has none. Exact under the lock."""
    return use_and_checks(queue)[0]


def use_and_checks(queue: str) -> tuple[Use | None, Checks]:
    """Return what `use` does, and what the holder of the lock checks. As they are stored now."""
    connection = database.connection()
    found = database.dialect_of(connection).limit_use(connection, queue)
    config = queue_configs.effective(queue, _read(found.config), _read(found.default_config))
    checks = Checks(
        fairness=config.tenant_fairness, by_key=bool(found.has_limit_keys), has_lock=True
    )
    if config.rate_limit is None:
        return None, checks
    parsed = Starts.parse(_read(found.starts))
    starts_so_far = parsed.until(found.now)
    used = Use(
        limit=config.rate_limit,
        active=found.active,
        starts=starts_so_far,
        now=found.now,
        is_exact=bool(found.is_exact),
        was_ahead=starts_so_far != parsed,
    )
    return used, checks


def _read(stored: str | None) -> dict[str, json.JSON]:
    found = {} if stored is None else json.loads_stored(stored)
    assert isinstance(found, dict)
    return found


def is_still_full(queue: str) -> bool:
    """Whether a queue that was at its limits still is: one query, without the lock.

    A queue that has room now is claimed from with the lock; one that gets room meanwhile is claimed
    from the next time.
    """
    if not next_starts.was_full(queue):
        return False
    used = use(queue)
    if used is None or used.room or used.was_ahead:
        return False
    next_starts.note_full(queue, used)
    return True


def add_starts(queue: str, used: Use, number: int) -> None:
    """Count the jobs that were claimed, for the rates of their queue."""
    if (number or used.was_ahead) and (used.limit.windows or used.limit.throttles):
        starts = (used.after(number) if number else used).starts.render()
        LimitedQueue.primary.bulk_create(
            [LimitedQueue(queue=queue, starts=starts)],
            update_conflicts=True,
            unique_fields=["queue"],
            update_fields=["starts"],
        )

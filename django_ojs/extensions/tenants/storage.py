"""The tenants of a queue: which jobs have one, and how many jobs of a tenant wait.

The tenant of a job is in its metadata. Only jobs in queues whose configuration names tenants have
the mark of this extension, so that the indexes by tenant have no entry for the jobs of other
queues. Jobs that were stored before the configuration have no mark until `mark` or the maintenance
(`JobMarker`) sets it.

The bound of a tenant is exact, and far from it no producer needs an exclusive lock (as for queues,
see `backpressure.storage`). A transaction that adds jobs to a tenant holds a shared lock until it
ends, and adds no more than a share of the bound: before these transactions end, at most the
committed jobs and one share for each of them can be waiting. Near the bound a producer takes the
lock exclusively, and sees all jobs. Each tenant has its own lock.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID

from django.db.models import F, QuerySet

from django_ojs.extensions.backpressure.storage import lock_timeout
from django_ojs.extensions.tenants.queue_fields import has_tenants
from django_ojs.extensions.tenants.spec import MARK
from django_ojs.extensions.tenants.tenant_statements import statements
from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope, distinct
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database, in_memory_state, queue_configs
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.figures import known_queues

#: The number of changed jobs after which a call of `mark` ends.
_MOST: Final = 10_000

#: Active jobs are included, because a retry, or a return to the queue, lets them wait again.
_UNFINISHED: Final = (State.ACTIVE, *sorted(WAITING))

#: Seconds for which jobs without a mark are expected in a queue: after its configuration begins to
#: name tenants, and after one was found. Processes that do not know the configuration yet, and
#: transactions that commit late, add such jobs.
EXPECTED: Final = 600.0
#: Seconds between two scans of a queue in which no such job is expected.
INTERVAL: Final = 3600.0


def fill_in(envelopes: Sequence[Envelope]) -> None:
    """Mark new jobs of queues that have bounds or turns of tenants, before they are stored."""
    configs = queue_configs.current()
    for envelope in distinct(envelopes):
        is_named = configs is not None and has_tenants(configs.of(envelope.queue))
        envelope.marks = envelope.marks & ~MARK | (MARK if is_named else 0)


def lock(queue: str, tenant: str, *, is_tried_again: bool = False) -> bool:
    """Lock a tenant of a queue until the transaction ends.

    Call it inside a savepoint. Return False when the transaction does not see jobs that were added
    since it began. Raises OperationalError after the lock timeout, or on a deadlock.
    """
    timeout = lock_timeout(is_tried_again=is_tried_again)
    return statements().lock(queue, tenant, timeout)


def mark(queue: str) -> int:
    """Mark the unfinished jobs of a queue, if it has bounds or turns of tenants.

    Return how many jobs were changed, about `_MOST` at most.
    """
    changed = 0
    if has_tenants(queue_configs.config_of(queue)):
        # Each state has an index that begins with the queue.
        for state in _UNFINISHED:
            while changed < _MOST and (done := _mark_batch(queue, state)):
                changed += done
    return changed


@database.write_transaction
def _mark_batch(queue: str, state: str) -> int:
    found = _unmarked(Job.primary.filter(queue=queue, state=state))
    locked = found.select_for_update(skip_locked=True, no_key=True)
    return mark_jobs(locked.values_list("pk", flat=True)[: database.BATCH])


def mark_jobs(keys: Collection[UUID]) -> int:
    """Mark these jobs, unless they have the mark. Return how many were changed.

    The caller has locked them.
    """
    if not keys:
        return 0
    found = _unmarked(Job.primary.filter(OneOf("pk", list(keys))))
    return found.update(marks=F("marks").bitor(MARK))


def _unmarked(jobs: "QuerySet[Job]") -> "QuerySet[Job]":
    return jobs.alias(is_marked=F("marks").bitand(MARK)).filter(is_marked=0)


class JobMarker:
    """Marks the unfinished jobs of all queues that have bounds or turns of tenants.

    No index has jobs without a mark, so a scan reads all unfinished jobs of a queue. It is made at
    each call only while such jobs are expected, and otherwise once an hour.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: For each queue: until when such jobs are expected, and the time of its next scan.
        self._queues: dict[str, tuple[float, float]] = {}

    def reset(self) -> None:
        """Scan all queues the next time."""
        self._queues.clear()

    def mark_all(self) -> int:
        """Scan the queues whose next scan is due. Return how many jobs were changed."""
        configs, now, changed = queue_configs.current(), self._clock(), 0
        known = [] if configs is None else known_queues.by_name().names
        names = {name for name in known if configs and has_tenants(configs.of(name))}
        self._queues = {name: self._queues.get(name, (now + EXPECTED, now)) for name in names}
        for name, (expected_until, scan_at) in sorted(self._queues.items()):
            if now >= scan_at:
                done = mark(name)
                until = now + EXPECTED if done else expected_until
                self._queues[name] = until, now if now < until else now + INTERVAL
                changed += done
        return changed


marker: Final = in_memory_state.register(JobMarker())

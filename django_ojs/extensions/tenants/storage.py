"""The tenants of a queue: which tenant a stored job has, and how many jobs of it wait.

`Job.tenant_id` is set in queues whose configuration names tenants, and nowhere else, so that the
indexes by tenant have no entry for the jobs of other queues. Jobs that were stored before the
configuration have none until `assign` or the maintenance (`Assigner`) sets it.

The bound of a tenant is exact at the bound, and takes no lock alone far from it (as those of
queues, see `storage.bounds`): a transaction that adds jobs to a tenant holds a shared lock until it
ends, and adds no more than a share of the bound; the jobs that are committed, and the share of each
holder, are more than can be waiting before these transactions end. Near the bound a producer holds
the lock alone and sees all jobs. Other tenants have other locks.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID

from django_ojs.extensions.backpressure.storage import lock_timeout
from django_ojs.extensions.tenants.queue_fields import has_tenants
from django_ojs.extensions.tenants.spec import tenant_of
from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope, distinct
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database, in_memory_state, queue_configs
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.figures import known_queues

#: Jobs of a queue that one call of `assign` changes.
_MOST: Final = 10_000

#: Active ones too: a retry, or a return to the queue, lets them wait again.
_UNFINISHED: Final = (State.ACTIVE, *sorted(WAITING))

#: Seconds for which jobs without a tenant are expected in a queue: after its configuration names
#: tenants, and after one was found. Processes that do not know it yet, and transactions that commit
#: late, add some.
EXPECTED: Final = 600.0
#: Seconds between two scans of a queue in which none is expected.
INTERVAL: Final = 3600.0


def fill_in(envelopes: Sequence[Envelope]) -> None:
    """Set the tenants of new jobs, as they are to be stored."""
    configs = queue_configs.current()
    for envelope in distinct(envelopes):
        is_named = configs is not None and has_tenants(configs.of(envelope.queue))
        envelope.tenant_id = tenant_of(envelope.meta) if is_named else None


def has_room(queue: str, tenant: str, jobs: int, bound: int) -> bool:
    """Whether a tenant has room for jobs, far from its bound; False where only a lock can tell."""
    connection = database.connection()
    dialect = database.dialect_of(connection)
    return dialect.admit_tenant(connection, queue, tenant, jobs=jobs, bound=bound)


def lock(queue: str, tenant: str, *, is_tried_again: bool = False) -> bool:
    """Lock a tenant of a queue until the transaction ends. Inside a savepoint.

    Return False when the transaction does not see jobs that were added since it began.
    OperationalError after the lock timeout, or on a deadlock.
    """
    timeout = lock_timeout(is_tried_again=is_tried_again)
    return database.dialect().lock_tenant(database.connection(), queue, tenant, timeout)


def depth(queue: str, tenant: str) -> int:
    """Return how many jobs of a tenant wait in a queue."""
    return database.dialect().tenant_depth(database.connection(), queue, tenant)


def busiest(queue: str, *, limit: int) -> list[tuple[str, int]]:
    """Return the tenants with the most waiting jobs in a queue, and how many each has.

    It counts the waiting jobs of the queue.
    """
    return database.dialect().busiest_tenants(database.connection(), queue, limit)


def assign(queue: str) -> int:
    """Set the tenants of unfinished jobs that have none, in a queue that names tenants.

    Return how many jobs were changed, some thousands at most.
    """
    changed = 0
    if has_tenants(queue_configs.config_of(queue)):
        # Each state has an index that begins with the queue.
        for state in _UNFINISHED:
            while changed < _MOST and (done := _assign_batch(queue, state)):
                changed += done
    return changed


@database.write_transaction
def _assign_batch(queue: str, state: str) -> int:
    found = Job.primary.filter(queue=queue, state=state, tenant_id=None)
    locked = found.select_for_update(skip_locked=True, no_key=True)
    return assign_to(locked.values_list("pk", flat=True)[: database.BATCH])


def assign_to(keys: Collection[UUID]) -> int:
    """Set the tenants of these jobs, which the caller has locked. Return how many jobs."""
    by_tenant: defaultdict[str, list[UUID]] = defaultdict(list)
    if not keys:
        return 0
    for key, meta in Job.primary.filter(OneOf("pk", list(keys))).values_list("pk", "meta"):
        by_tenant[tenant_of(meta)].append(key)
    for tenant, jobs in sorted(by_tenant.items()):
        Job.primary.filter(OneOf("pk", jobs)).update(tenant_id=tenant)
    return sum(map(len, by_tenant.values()))


class Assigner:
    """Sets the tenants of unfinished jobs that have none, in all queues that name tenants.

    No index has these jobs, so each search of them reads the unfinished jobs of a queue: at each
    call only while some are expected, and otherwise once an hour.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: For each queue: until when such jobs are expected, and the time of its next scan.
        self._queues: dict[str, tuple[float, float]] = {}

    def reset(self) -> None:
        """Scan all queues the next time."""
        self._queues.clear()

    def assign_all(self) -> int:
        """Scan the queues whose time it is. Return how many jobs were changed."""
        configs, now, changed = queue_configs.current(), self._clock(), 0
        known = [] if configs is None else known_queues.by_name().names
        names = {name for name in known if configs and has_tenants(configs.of(name))}
        self._queues = {name: self._queues.get(name, (now + EXPECTED, now)) for name in names}
        for name, (expected_until, scan_at) in sorted(self._queues.items()):
            if now >= scan_at:
                done = assign(name)
                until = now + EXPECTED if done else expected_until
                self._queues[name] = until, now if now < until else now + INTERVAL
                changed += done
        return changed


assigner: Final = in_memory_state.register(Assigner())

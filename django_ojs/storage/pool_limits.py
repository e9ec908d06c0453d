"""The limit of a pool on the jobs that all of its workers have in flight (fair-scheduling §6.1).

A claim of a worker whose pool has a `concurrency` is a transaction that holds a lock of the pool:
it counts the active jobs that the pool's workers have of its queues, and claims no more than there
is room for.
"""

from django_ojs.spec.rate_limit import RateLimit, Starts
from django_ojs.spec.scheduling import Pool
from django_ojs.storage import database
from django_ojs.storage.queue_limits import Use


def subject(pool: Pool) -> str:
    """Return the name of the pool's lock; no queue can have it."""
    return f"pool {pool.name}"


def try_lock(pool: Pool) -> bool:
    """Lock the limit of a pool until the transaction ends; as `queue_limits.try_lock`."""
    connection = database.connection()
    dialect = database.dialect_of(connection)
    dialect.read_committed(connection)
    return dialect.try_lock_subject(connection, subject(pool))


def use(pool: Pool) -> Use:
    """Return how many jobs the pool has in flight, and its limit; exact under the lock."""
    connection = database.connection()
    active, is_exact = database.dialect_of(connection).pool_use(connection, pool.name, pool.queues)
    return Use(
        limit=RateLimit(concurrency=pool.concurrency),
        active=active,
        starts=Starts.parse({}),
        now=0,
        is_exact=is_exact,
    )

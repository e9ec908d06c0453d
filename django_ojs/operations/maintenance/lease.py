"""Leases on tasks that one process does for all."""

from datetime import timedelta

from django.db.models.functions import Now

from django_ojs.models import Lease
from django_ojs.storage import database, raw_queries

MAINTENANCE = Lease.MAINTENANCE

#: Long enough for the holder to renew it in time, short enough to replace a dead holder soon.
TERM = timedelta(seconds=2)


@database.retry_contention
def take(holder: str, name: str = MAINTENANCE) -> bool:
    """Take or renew the lease, for two seconds. Return False when another process has it."""
    # This is literal SQL for speed, because each worker that waits for the lease tries it twice a
    # second.
    connection = database.connection()
    dialect = database.dialect_of(connection)
    if dialect.take_lease(connection, name, holder, TERM.total_seconds()):
        return True
    if raw_queries.exists(Lease, "name = %s", [name]):
        return False
    leases = Lease.primary.all()
    made = leases.bulk_create(
        [Lease(name=name, holder=holder, until=Now() + TERM)], ignore_conflicts=True
    )
    return bool(made) and leases.filter(name=name, holder=holder).exists()


def take_from(dead: str, holder: str) -> bool:
    """Take the lease of the maintenance from its holder before it expires.

    Return False if the holder no longer has it.
    """
    held = Lease.primary.filter(name=MAINTENANCE, holder=dead)
    return database.retried(lambda: held.update(holder=holder, until=Now() + TERM)) > 0


def give(holder: str, name: str = MAINTENANCE) -> None:
    """Release the lease, if this holder has it."""
    database.retried(lambda: Lease.primary.filter(name=name, holder=holder).delete())

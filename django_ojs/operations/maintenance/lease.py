"""Leases on tasks that one process does for all."""

from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from django_ojs.models import Lease
from django_ojs.storage import database

MAINTENANCE = Lease.MAINTENANCE

#: Long enough for the holder to renew it in time, short enough to replace a dead holder soon.
TERM = timedelta(seconds=2)


@database.retry_contention
def take(holder: str, name: str = MAINTENANCE) -> bool:
    """Take or renew the lease, for two seconds. Return False when another process has it."""
    leases = Lease.primary.filter(name=name)
    # A lease with more time left than twice its term was taken before the clock was set back.
    is_free = Q(holder=holder) | Q(until__lte=Now()) | Q(until__gt=Now() + 2 * TERM)
    if leases.filter(is_free).update(holder=holder, until=Now() + TERM):
        return True
    if leases.exists():
        return False
    leases.bulk_create([Lease(name=name, holder=holder, until=Now() + TERM)], ignore_conflicts=True)
    return leases.filter(holder=holder).exists()


def take_from(dead: str, holder: str) -> bool:
    """Take the lease of the maintenance from its holder before it expires.

    Return False if the holder no longer has it.
    """
    held = Lease.primary.filter(name=MAINTENANCE, holder=dead)
    return database.retried(lambda: held.update(holder=holder, until=Now() + TERM)) > 0


def give(holder: str, name: str = MAINTENANCE) -> None:
    """Release the lease, if this holder has it."""
    database.retried(lambda: Lease.primary.filter(name=name, holder=holder).delete())

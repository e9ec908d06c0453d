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
    leases = Lease.primary.all()
    # A lease with more time left than the term was taken before the clock was set back.
    ended = Q(until__lte=Now()) | Q(until__gt=Now() + 2 * TERM)
    mine = leases.filter(Q(holder=holder) | ended, name=name)
    if mine.update(holder=holder, until=Now() + TERM):
        return True
    if leases.filter(name=name).exists():
        return False
    made = leases.bulk_create(
        [Lease(name=name, holder=holder, until=Now() + TERM)], ignore_conflicts=True
    )
    return bool(made) and leases.filter(name=name, holder=holder).exists()


def take_from(dead: str, holder: str) -> bool:
    """Take the lease of the maintenance from its holder, which need not expire then.

    Return False when that has it no longer.
    """
    held = Lease.primary.filter(name=MAINTENANCE, holder=dead)
    return database.retried(lambda: held.update(holder=holder, until=Now() + TERM)) > 0


def give(holder: str, name: str = MAINTENANCE) -> None:
    """Release the lease, if this holder has it."""
    database.retried(lambda: Lease.primary.filter(name=name, holder=holder).delete())

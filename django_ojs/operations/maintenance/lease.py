"""Leases on work that one worker does for all."""

from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from django_ojs.models import Lease
from django_ojs.storage import database

MAINTENANCE = "maintenance"

#: Long enough for the holder to come back in time, short enough that nobody misses a dead one.
TERM = timedelta(seconds=2)


@database.retry_contention
def take(holder: str, name: str = MAINTENANCE) -> bool:
    """Take or keep the lease, for two seconds. Return False when another has it."""
    leases = Lease.primary.all()
    # One that would last longer than any is given was taken before the clock was set back.
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


def give(holder: str, name: str = MAINTENANCE) -> None:
    """Give the lease back, if one has it."""
    database.retried(lambda: Lease.primary.filter(name=name, holder=holder).delete())

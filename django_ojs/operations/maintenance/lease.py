"""Leases on tasks that one process does for all."""

from collections.abc import Collection
from datetime import timedelta

from django.db.migrations.recorder import MigrationRecorder
from django.db.models import F
from django.db.models.functions import Now

from django_ojs import not_installed
from django_ojs.models import Lease, Worker
from django_ojs.storage import database, raw_queries
from django_ojs.storage.dialects.expressions import Milliseconds

MAINTENANCE = Lease.MAINTENANCE

#: Long enough for the holder to renew it in time, short enough to replace a dead holder soon.
TERM = timedelta(seconds=2)


@database.retry_contention
def take(holder: str, name: str = MAINTENANCE, *, is_over: str = "1 = 0") -> bool:
    """Take the lease for two seconds. Return False when another process has it.

    `is_over` is an SQL condition on its row under which the lease is free before it expires.
    """
    ago, term = database.dialect().ago, TERM.total_seconds()
    # A lease with more time left than twice its term was taken before the clock was set back.
    is_free = f"holder = %s OR until <= {ago(0)} OR until > {ago(-2 * term)} OR {is_over}"
    # Many processes ask again and again while one has it.
    if raw_queries.exists(Lease, f"name = %s AND NOT ({is_free})", [name, holder]):
        return False
    if raw_queries.change(
        Lease,
        f"holder = %s, until = {ago(-term)}",
        f"name = %s AND ({is_free})",
        [holder, name, holder],
    ):
        return True
    leases = Lease.primary.filter(name=name)
    leases.bulk_create([Lease(name=name, holder=holder, until=Now() + TERM)], ignore_conflicts=True)
    return leases.filter(holder=holder).exists()


def renew(holder: str, name: str = MAINTENANCE) -> bool:
    """Hold the lease for two more seconds. Return False if this holder no longer has it."""
    held = Lease.primary.filter(name=name, holder=holder)
    return database.retried(lambda: held.update(until=Now() + TERM)) > 0


def give(holder: str, name: str = MAINTENANCE) -> None:
    """Release the lease, if this holder has it."""
    database.retried(lambda: Lease.primary.filter(name=name, holder=holder).delete())


def release(holders: Collection[str]) -> None:
    """Release all leases of dead workers, so that others need not wait until they expire."""
    database.retried(lambda: Lease.primary.filter(holder__in=holders).delete())


def left_out() -> list[str]:
    """Return the extensions that the database has, and this process lacks."""
    applied = MigrationRecorder(database.connection()).applied_migrations()
    return not_installed.left_out({label for label, _ in applied})


def others_live(holder: str) -> bool:
    """Whether another worker of the project lives. One in another language takes no lease."""
    others = Worker.primary.filter(
        enforces_timeouts=True, seen_at__gt=Now() - Milliseconds(F("dead_after_ms"))
    )
    return others.exclude(pk=holder).exists()

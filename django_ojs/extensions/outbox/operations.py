"""The outbox: jobs for other servers, stored in the caller's transaction.

See ojs-framework-adapters §6.2.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import Error, connections, router
from django.utils import timezone

from django_ojs.conf import of, settings
from django_ojs.extensions.outbox import storage as stored
from django_ojs.extensions.outbox.destinations import Destination
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome, of_new
from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope, check_size
from django_ojs.spec.envelope.wire import wire
from django_ojs.spec.errors import DuplicateJob
from django_ojs.spec.states import State
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.dialects.job_row import NewRow

#: Rows of each kind that one call of `prune` deletes.
PRUNED_AT_ONCE = 1000


class Tables:
    """The aliases that were seen to have the table of the outbox."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def exists(self, alias: str) -> bool:
        """Whether the table exists; True for an alias that cannot be reached."""
        if alias not in self._found:
            try:
                names = connections[alias].introspection.table_names()
                if OutboxEntry._meta.db_table not in names:
                    return False
                # This may be a replica, whose primary sends the rows.
                if not database.dialect(alias).can_write(connections[alias]):
                    return False
            except Error:
                return True  # A caller that needs the alias gets the error; others continue.
            self._found.add(alias)
        return True

    def reset(self) -> None:
        """Query again the next time."""
        self._found.clear()


_tables: Final = in_memory_state.register(Tables())


def route(envelope: Envelope) -> str | None:
    """Return the name of the destination to which a job is sent, or None for a job of this site."""
    queue, type = envelope.queue, envelope.type
    if isinstance(queue, str) and isinstance(type, str):  # Admission rejects anything else.
        for destination in of(OutboxSettings).outbox:
            if destination.takes(queue, type):
                return destination.name
    return None


def destination(name: str) -> Destination:
    """Return a destination of the settings. Raises LookupError."""
    for each in of(OutboxSettings).outbox:
        if each.name == name:
            return each
    raise LookupError(f"OJS['OUTBOX'] has no destination {name!r}.")


def add(
    envelopes: Sequence[Envelope],
    destinations: Sequence[str],
    *,
    using: str,
    generated_ids: bool,
) -> list[EnqueuedJob]:
    """Store admitted jobs in the outbox of an alias, each for its destination.

    All are stored, or none. Relative times count from now, both in the results and when sent.
    Raises DuplicateJob for an id that is in the outbox, and PayloadTooLarge.
    """
    now = timezone.now()
    rows = [
        _entry(envelope, destination, now)
        for envelope, destination in zip(envelopes, destinations, strict=True)
    ]
    taken = stored.add(rows, using, generated_ids=generated_ids)
    if taken is not None:
        raise DuplicateJob(
            "A job with this id is in the outbox already.",
            details={"existing_job_id": str(taken)},
        )
    return [
        job
        for envelope, destination in zip(envelopes, destinations, strict=True)
        for job in of_new([_new_row(envelope, now)], Outcome.OUTBOX, destination)
    ]


def _new_row(envelope: Envelope, now: datetime) -> NewRow:
    return NewRow(
        envelope,
        state=State.PENDING,
        created_at=now,
        enqueued_at=None,
        due_at=_moment(envelope.scheduled_at, now),
        expires_at=_moment(envelope.expires_at, now),
        size_bytes=0,
    )


def _entry(envelope: Envelope, destination: str, now: datetime) -> OutboxEntry:
    document = wire(envelope, now)
    check_size(document, settings().limits)
    return OutboxEntry(
        job_id=envelope.id,
        destination=destination,
        type=envelope.type,
        queue=envelope.queue,
        tenant_id=_tenant_of(envelope),
        unique_key=envelope.unique_key,
        envelope=json.dumps(document),
    )


def _tenant_of(envelope: Envelope) -> str:
    """Return the tenant that a server would name if it had no room for this job."""
    found = envelope.meta.get("tenant_id")
    # Jobs without a tenant belong to `_default` (multi-tenancy §15.3).
    return found if isinstance(found, str) and 0 < len(found) <= 255 else "_default"


def _moment(when: datetime | timedelta | None, now: datetime) -> datetime | None:
    return now + when if isinstance(when, timedelta) else when


def requeue(keys: Collection[int], *, using: str | None = None) -> int:
    """Send rejected jobs again, after all waiting ones. Return how many."""
    return stored.requeue(keys, using or database.alias())


def kept(keys: Collection[UUID], everywhere: bool) -> dict[UUID, bool]:
    """Return which of these jobs are in an outbox; True for each that was not rejected."""
    found: dict[UUID, bool] = {}
    for alias in aliases() if everywhere else [database.alias()]:
        found |= stored.unsent(keys, alias)
    return found


def is_only_here() -> bool:
    """Whether only the database of the jobs may hold rows to deliver or to prune."""
    return aliases() == [database.alias()]


def old_condition() -> str:
    """Return the SQL condition that `prune` may find any rows."""
    if not is_only_here():
        return "1 = 1"  # The rows of another database can only be queried there.
    return stored.old_condition(
        keep_sent=of(OutboxSettings).keep_sent, keep_rejected=settings().keep_dead_letters
    )


def prune() -> int:
    """Delete sent and rejected entries after their retention times. Return how many."""
    count = 0
    for alias in aliases():
        try:
            count += stored.prune(
                alias,
                keep_sent=of(OutboxSettings).keep_sent,
                keep_rejected=settings().keep_dead_letters,
                limit=PRUNED_AT_ONCE,
            )
        except Error:
            if alias == database.alias():
                raise
            connections[alias].close()  # The database is unreachable; its rows can wait.
    return count


def aliases() -> list[str]:
    """Return the aliases whose outbox may hold jobs, first the alias of the jobs themselves.

    Other aliases have an outbox where `WRONG_DATABASE` is "outbox" and migrations made the table.
    """
    home = database.alias()
    if settings().wrong_database != "outbox":
        return [home]
    others = [
        alias
        for alias in connections
        if alias != home
        and not connections.settings[alias]["TEST"]["MIRROR"]
        and connections.settings[alias]["ENGINE"] != "django.db.backends.dummy"
        and router.allow_migrate_model(alias, OutboxEntry)
        and _tables.exists(alias)
    ]
    return [home, *others]

"""The outbox: jobs for elsewhere, stored in the caller's transaction (framework-adapters §6.2)."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from uuid import UUID

from django.db import Error, connections, router

from django_ojs.conf import settings
from django_ojs.models import Job, OutboxEntry
from django_ojs.operations import push
from django_ojs.operations.enqueue import transaction_check
from django_ojs.spec import json, retry
from django_ojs.spec.destinations import LOCAL, Destination
from django_ojs.spec.envelope import Envelope, check_size, options_of
from django_ojs.spec.envelope.wire import wire
from django_ojs.spec.errors import DuplicateJob
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage import outbox as stored

#: Rows that one call of `prune` deletes of each kind.
PRUNED_AT_ONCE = 1000

#: Aliases that were seen to have an outbox.
_known: set[str] = set()


def route(envelope: Envelope) -> str | None:
    """Return the name of the destination that a job belongs to; None when it is this site."""
    for destination in settings().outbox:
        if destination.takes(envelope.queue, envelope.type):
            return destination.name
    return None


def destination(name: str) -> Destination:
    """Return a destination of the settings. Raises LookupError."""
    for each in settings().outbox:
        if each.name == name:
            return each
    raise LookupError(f"OJS['OUTBOX'] has no destination {name!r}.")


def alias_for_caller() -> str:
    """Return the alias whose outbox commits with the caller.

    Raises WrongDatabase, or warns, as the setting has it.
    """
    if settings().wrong_database == "outbox":
        return transaction_check.foreign_transaction() or database.alias()
    transaction_check.refuse_other_transactions()
    return database.alias()


def put(
    envelope: Envelope,
    destination: str = LOCAL,
    *,
    using: str | None = None,
    generated_id: bool = False,
    accepted: bool = False,
) -> Job | None:
    """Store a job that is to be sent; it is there after the caller's commit, or not at all.

    Return what an enqueue returns: a Job, not stored as one, whose state is `pending` and whose
    `destination` says where it goes; None when an enqueue middleware dropped it. `using` is the
    alias whose outbox takes it, by default that of the jobs. `accepted`: it has passed the
    middleware and the checks. Raises an OJSError that names the field and the rule.
    """
    passed = [envelope] if accepted else push.accept([envelope], place=False)
    return _put(passed, [destination], using, generated_id)[0]


def put_batch(
    envelopes: Sequence[Envelope],
    wanted: Sequence[str],
    *,
    using: str | None = None,
    generated_ids: bool = False,
) -> list[Job | None]:
    """Store jobs that are to be sent, each to the destination in the same place; see `put`.

    All or none; an error about one job carries its `index`.
    """
    return _put(push.accept(envelopes, place=True), wanted, using, generated_ids)


def put_accepted(
    passed: Sequence[Envelope | None], destination: str = LOCAL, *, generated_ids: bool = False
) -> list[Job | None]:
    """Store what came from `accept`, to be sent later; see `put`."""
    return _put(passed, [destination] * len(passed), None, generated_ids)


def _put(
    passed: Sequence[Envelope | None], wanted: Sequence[str], using: str | None, generated: bool
) -> list[Job | None]:
    using = using or alias_for_caller()
    now = datetime.now(UTC)
    jobs: list[Job | None] = []
    rows: list[OutboxEntry] = []
    for envelope, name in zip(passed, wanted, strict=True):
        if envelope is None:
            jobs.append(None)
            continue
        rows.append(_entry(envelope, name, now))
        jobs.append(_job(envelope, name))
    if rows:
        taken = stored.add(rows, using, generated_ids=generated)
        if taken is not None:
            raise DuplicateJob(
                "A job with this id is in the outbox already.",
                details={"existing_job_id": str(taken)},
            )
    return jobs


def _entry(envelope: Envelope, destination: str, now: datetime) -> OutboxEntry:
    document = wire(envelope, now)
    check_size(document, settings().limits)
    return OutboxEntry(
        job_id=envelope.id,
        destination=destination,
        type=envelope.type,
        queue=envelope.queue,
        unique_key=envelope.unique_key,
        envelope=json.dumps(document),
    )


def _job(envelope: Envelope, destination: str) -> Job:
    job = Job(
        id=envelope.id,
        type=envelope.type,
        queue=envelope.queue,
        state=State.PENDING,
        priority=envelope.priority,
        args=list(envelope.args),
        meta=dict(envelope.meta),
        options=options_of(envelope),
        max_attempts=(envelope.retry or retry.DEFAULT).max_attempts,
        timeout_ms=envelope.timeout_ms,
        visibility_timeout_ms=envelope.visibility_timeout_ms,
        unique_key=envelope.unique_key,
    )
    job.destination = destination
    return job


def requeue(keys: Collection[int], *, using: str | None = None) -> int:
    """Send refused jobs again, after all that waits. Return how many were refused."""
    return stored.requeue(keys, using or database.alias())


def waiting(keys: Collection[UUID]) -> set[UUID]:
    """Return which of these jobs are in an outbox and have not left it; refused ones have not."""
    return {key for alias in aliases() for key in stored.unsent(keys, alias)}


def prune() -> int:
    """Delete what was sent, or refused, longer ago than the settings keep it. Return how many."""
    count = 0
    for alias in aliases():
        try:
            count += stored.prune(
                alias,
                keep_sent=settings().keep_sent,
                keep_refused=settings().keep_dead_letters,
                limit=PRUNED_AT_ONCE,
            )
        except Error:
            if alias == database.alias():
                raise
            connections[alias].close()  # It is away; its rows can wait.
    return count


def aliases() -> list[str]:
    """Return the aliases whose outbox may hold jobs: that of the jobs, and those that lend theirs.

    Others have one where `WRONG_DATABASE` is "outbox" and migrations made the table.
    """
    home = database.alias()
    if settings().wrong_database != "outbox":
        return [home]
    others = [
        alias
        for alias in connections
        if alias != home
        and connections.settings[alias]["ENGINE"] != "django.db.backends.dummy"
        and router.allow_migrate_model(alias, OutboxEntry)
        and _has_table(alias)
    ]
    return [home, *others]


def _has_table(alias: str) -> bool:
    if alias not in _known:
        try:
            if OutboxEntry._meta.db_table not in connections[alias].introspection.table_names():
                return False
        except Error:
            return True  # It is away. Whoever needs it finds out, and others are not held up.
        _known.add(alias)
    return True


__all__ = [
    "LOCAL",
    "alias_for_caller",
    "aliases",
    "destination",
    "prune",
    "put",
    "put_accepted",
    "put_batch",
    "requeue",
    "route",
    "waiting",
]

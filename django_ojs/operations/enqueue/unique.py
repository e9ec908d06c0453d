"""Unique jobs (ojs-unique-jobs §5): store jobs with a policy, or find the ones that are there.

The check, what a replacing policy cancels and the insertion are one transaction, under a lock on
each key. A retry, a promotion or an activation never checks again (§9.2).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import transaction

from django_ojs.models import Job
from django_ojs.operations import cancel
from django_ojs.spec.envelope import Envelope, when_text
from django_ojs.spec.errors import BackendError, DuplicateJob, InvalidRequest
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.spec.unique import UniquePolicy
from django_ojs.storage import database, unique
from django_ojs.storage.unique import Holder

#: Different keys in one batch. Each is a lock, and a server's room for locks is for all its
#: sessions: with the defaults of PostgreSQL, some 6,400.
MAX_KEYS = 1000

Insert = Callable[[Sequence[Envelope]], list[Job]]


def store(envelopes: Sequence[Envelope], insert: Insert) -> list[Job]:
    """Store jobs of which some have a policy, by `insert`; return the jobs in order.

    One that a policy ignored is the job that was there, with `deduplicated` set. Raises
    DuplicateJob, with the place in `details["index"]` when there are several; what was stored and
    cancelled before is taken back, and the caller's transaction stays usable.
    """
    keys = {str(item.unique_key) for item in envelopes if item.unique is not None}
    if len(keys) > MAX_KEYS:
        raise InvalidRequest(f"jobs may have at most {MAX_KEYS} different unique keys at once")

    def operation() -> list[Job]:
        fresh = unique.lock(keys)
        done: list[Job] = []
        cancelled: set[UUID] = set()
        for run in _runs(envelopes):
            try:
                settled = _settle(run, fresh, cancelled)
                new = iter(_insert(settled, insert))
            except DuplicateJob as error:
                if len(envelopes) > 1:
                    error.details["index"] = len(done) + error.details.get("index", 0)
                raise
            done += [item if isinstance(item, Job) else next(new) for item in settled]
        if all(job.deduplicated for job in done):
            # Nothing was written. To roll back lets go of the locks, which others wait for, however
            # long the caller's transaction goes on.
            transaction.set_rollback(True, using=database.alias())
        # What a later job of the same batch replaced is not what was stored any more.
        return [Job.primary.get(pk=job.pk) if job.pk in cancelled else job for job in done]

    ours = not database.connection().in_atomic_block
    for _ in range(database.RETRIES if ours else 0):
        with suppress(_OldSnapshot):  # A new transaction sees more.
            return database.in_write_transaction(operation)
    return database.in_write_transaction(operation)


class _OldSnapshot(BackendError):
    """The transaction cannot see, and so cannot cancel, the job it is to replace."""


def _runs(envelopes: Sequence[Envelope]) -> Iterator[list[Envelope]]:
    """Cut a batch where a key comes again: that job must find the one before it."""
    run: list[Envelope] = []
    keys: set[str] = set()
    for item in envelopes:
        if item.unique is not None:
            key = str(item.unique_key)
            if key in keys:
                yield run
                run, keys = [], set()
            keys.add(key)
        run.append(item)
    yield run


def _insert(settled: Sequence[Envelope | Job], insert: Insert) -> list[Job]:
    places = [place for place, item in enumerate(settled) if isinstance(item, Envelope)]
    if not places:
        return []
    try:
        return insert([item for item in settled if isinstance(item, Envelope)])
    except DuplicateJob as error:  # Its index counts what was left to insert.
        error.details["index"] = places[error.details.get("index", 0)]
        raise


def _settle(run: Sequence[Envelope], fresh: bool, cancelled: set[UUID]) -> list[Envelope | Job]:
    """Say for each job what is to be stored, or which one is there; cancel what is replaced."""
    by_policy: dict[UniquePolicy, list[str]] = {}
    for item in run:
        if item.unique is not None:
            by_policy.setdefault(item.unique, []).append(str(item.unique_key))
    found: dict[str, list[Holder]] = {}
    for policy, keys in by_policy.items():
        found |= unique.holders(policy, keys, fresh=fresh)
    replaced: list[Holder] = []
    settled: list[Envelope | Job] = []
    for index, item in enumerate(run):
        holders = found.get(str(item.unique_key), []) if item.unique is not None else []
        if item.unique is None or not holders:
            settled.append(item)
        elif item.unique.on_conflict == "reject":
            raise _duplicate(item, holders[0].job, index)
        elif item.unique.on_conflict == "ignore":
            holders[0].job.deduplicated = True
            settled.append(holders[0].job)
        else:
            replaced += holders
            settled.append(item)
    was = _cancel(replaced)
    cancelled.update(was)
    return [
        _with_schedule(item, was, found)
        if isinstance(item, Envelope) and item.unique is not None and was
        else item
        for item in settled
    ]


def _duplicate(envelope: Envelope, job: Job, index: int) -> DuplicateJob:
    details: dict[str, Any] = {
        "existing_job_id": str(job.pk),
        "existing_job_state": job.state,
        "unique_key": envelope.unique_key,
        "index": index,
    }
    return DuplicateJob("A job with the same unique key exists already.", details=details)


def _cancel(replaced: Sequence[Holder]) -> dict[UUID, Job]:
    """Cancel jobs, and return those that had not ended meanwhile, as they were."""
    if not replaced:
        return {}
    if not all(holder.visible for holder in replaced):
        raise _OldSnapshot(
            "The transaction began before the job it would replace was stored, and cannot change "
            "it. Run the transaction again.",
        )
    # In order, so that two that cancel the same jobs never wait for each other in a circle.
    held = list(
        Job.primary.filter(
            pk__in=[holder.job.pk for holder in replaced],
            state__in=sources(Trigger.CANCEL, State.CANCELLED),
        )
        .select_for_update(no_key=True)
        .order_by("pk")
    )
    if held:
        cancel.stop(held)
    return {job.pk: job for job in held}


def _with_schedule(
    envelope: Envelope, was: dict[UUID, Job], found: dict[str, list[Holder]]
) -> Envelope:
    """Return the job, with the time of the scheduled one it replaces if its policy keeps that."""
    if envelope.unique is None or envelope.unique.on_conflict != "replace_except_schedule":
        return envelope
    mine = [was[h.job.pk] for h in found.get(str(envelope.unique_key), ()) if h.job.pk in was]
    waiting = [(job.due_at, job) for job in mine if job.state == State.SCHEDULED and job.due_at]
    if not waiting:
        return envelope
    due, job = min(waiting, key=lambda pair: pair[0])
    text = job.options.get("scheduled_at") or when_text(None, due)
    return replace(envelope, scheduled_at=due, scheduled_at_text=text)

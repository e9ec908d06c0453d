"""Unique jobs (ojs-unique-jobs §5): store jobs with a policy, or find the existing ones.

The check, the cancellations of a replacing policy and the insert are one transaction, under a lock
on each key. A retry, a promotion or an activation never checks again (§9.2).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import transaction

from django_ojs.models import Job
from django_ojs.operations.cancel_locked import stop
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome, of_row
from django_ojs.spec.envelope import Envelope, when_text
from django_ojs.spec.errors import BackendError, DuplicateJob, InvalidRequest, RowLocked
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database, transitions, unique
from django_ojs.storage.unique import Holder

#: How many different keys a batch may have. Each takes a lock, and all sessions of a server share
#: one lock table, which has some 6,400 entries with the defaults of PostgreSQL.
MAX_KEYS = 1000

#: How often jobs of one batch may replace other jobs of the batch. Each time takes a search and an
#: insert.
MAX_ROUNDS = 1000

#: For each unique key, the policy that ignored the last job of the batch with this key, and its
#: result. The next job with this policy has the same result, because the key is locked.
_Known = dict[str, tuple[UniquePolicy, EnqueuedJob]]
#: Inserts jobs. The second argument holds the earlier results of the same call.
Insert = Callable[[Sequence[Envelope], Sequence[EnqueuedJob]], list[EnqueuedJob]]
#: Inserts one job. Returns [] if another one may hold its key, and None if it did not try.
InsertUnheld = Callable[[], list[EnqueuedJob] | None]


class UniqueKeyLocked(RowLocked):
    """Another transaction, which has not ended, has stored a job with the same unique key."""


def store_one(envelope: Envelope, insert_unheld: InsertUnheld) -> EnqueuedJob | None:
    """Store a job by one statement if its key is free; otherwise find the job that holds its key.

    Return None if the caller must call `store`: to replace a job, or if this transaction does not
    see all jobs. Raises DuplicateJob. A duplicate of a job that is stored already keeps no lock.
    """
    done = insert_unheld()
    if done:
        return done[0]
    policy, key = envelope.unique, str(envelope.unique_key)
    if done is None or policy is None or policy.on_conflict not in ("reject", "ignore"):
        return None
    holders = unique.holders(policy, [key], fresh=True).get(key)
    if not holders:
        return None
    if policy.on_conflict == "reject":
        raise _duplicate(envelope, holders[0].job, 0)
    return of_row(holders[0].job, Outcome.DUPLICATE)


def store(envelopes: Sequence[Envelope], insert: Insert, *, wait: bool = True) -> list[EnqueuedJob]:
    """Store jobs, some of which have a unique policy, with `insert`. Return the results in order.

    Raises DuplicateJob, with the index of the job in its details. What the call stored and
    cancelled is then rolled back, and the caller's transaction stays usable. Without `wait`, it
    also raises UniqueKeyLocked if another transaction has locked one of the keys, or a job that is
    to be replaced.
    """
    keys = {str(item.unique_key) for item in envelopes if item.unique is not None}
    if len(keys) > MAX_KEYS:
        raise InvalidRequest(f"jobs may have at most {MAX_KEYS} different unique keys at once")

    def operation() -> list[EnqueuedJob]:
        if wait or database.passes_by():
            return stored()
        with database.passing_by():
            return stored()

    def stored() -> list[EnqueuedJob]:
        fresh = unique.lock(keys, wait=wait)
        if fresh is None:
            raise UniqueKeyLocked("Another transaction holds the unique key of the job.")
        done: list[EnqueuedJob] = []
        cancelled: set[UUID] = set()
        known: _Known = {}
        for number, run in enumerate(_runs(envelopes, known)):
            if number == MAX_ROUNDS:
                raise InvalidRequest(
                    f"jobs of one batch may replace each other at most {MAX_ROUNDS} times",
                    hint="Send the last job of each unique key only.",
                )
            try:
                resolved = _resolve(run, fresh, cancelled, known)
                found = [job for job in resolved if isinstance(job, EnqueuedJob)]
                # Jobs that this run has replaced are no longer results of the call.
                earlier = [job for job in (*done, *found) if job.id not in cancelled]
                done += _insert(resolved, insert, earlier)
            except DuplicateJob as error:
                error.details["index"] = len(done) + error.details["index"]
                raise
        if all(job.outcome is Outcome.DUPLICATE for job in done):
            # Nothing was written. A rollback releases the locks, which other enqueues wait for,
            # however long the caller's transaction goes on.
            transaction.set_rollback(True, using=database.alias())
        # A later job of the same batch may have replaced one that was just stored.
        return [
            of_row(Job.primary.get(pk=job.id), job.outcome) if job.id in cancelled else job
            for job in done
        ]

    ours = not database.connection().in_atomic_block
    for _attempt in range(database.RETRIES if ours else 0):
        with suppress(_OldSnapshot):  # A new transaction sees what was committed since.
            return database.in_write_transaction(operation)
    return database.in_write_transaction(operation)


class _OldSnapshot(BackendError):
    """The transaction cannot see, and so cannot cancel, the job it is to replace."""


def _runs(envelopes: Sequence[Envelope], known: _Known) -> Iterator[list[Envelope]]:
    """Split a batch where a key repeats, because the second job must find the first.

    The caller adds to `known` after each run. A job that is known to be a duplicate needs no run.
    """
    run: list[Envelope] = []
    keys: set[str] = set()
    for item in envelopes:
        if item.unique is not None:
            key = str(item.unique_key)
            if key in keys:
                yield run
                run, keys = [], set()
            if not _is_known(item, known):
                keys.add(key)
        run.append(item)
    yield run


def _is_known(item: Envelope, known: _Known) -> bool:
    found = known.get(str(item.unique_key))
    return found is not None and found[0] == item.unique


def _insert(
    resolved: Sequence[Envelope | EnqueuedJob], insert: Insert, earlier: Sequence[EnqueuedJob]
) -> list[EnqueuedJob]:
    """Insert the envelopes among these, and return the results of all in order."""
    indexes = [index for index, item in enumerate(resolved) if isinstance(item, Envelope)]
    envelopes = [item for item in resolved if isinstance(item, Envelope)]
    try:
        new = insert(envelopes, earlier) if indexes else []
    except DuplicateJob as error:  # The index counts only the envelopes that were inserted.
        error.details["index"] = indexes[error.details["index"]]
        raise
    remaining = iter(new)
    return [item if isinstance(item, EnqueuedJob) else next(remaining) for item in resolved]


def _resolve(
    run: Sequence[Envelope], fresh: bool, cancelled: set[UUID], known: _Known
) -> list[Envelope | EnqueuedJob]:
    """Return for each job its envelope to store, or its duplicate. Cancel the replaced jobs."""
    by_policy: dict[UniquePolicy, list[str]] = {}
    for item in run:
        if item.unique is not None and not _is_known(item, known):
            by_policy.setdefault(item.unique, []).append(str(item.unique_key))
    found: dict[str, list[Holder]] = {}
    for policy, keys in by_policy.items():
        found |= unique.holders(policy, keys, fresh=fresh)
    replaced: list[Holder] = []
    resolved: list[Envelope | EnqueuedJob] = []
    for index, item in enumerate(run):
        if item.unique is not None and _is_known(item, known):
            resolved.append(known[str(item.unique_key)][1])
            continue
        holders = found.get(str(item.unique_key), []) if item.unique is not None else []
        known.pop(str(item.unique_key), None)
        if item.unique is None or not holders:
            resolved.append(item)
        elif item.unique.on_conflict == "reject":
            raise _duplicate(item, holders[0].job, index)
        elif item.unique.on_conflict == "ignore":
            duplicate = of_row(holders[0].job, Outcome.DUPLICATE)
            known[str(item.unique_key)] = (item.unique, duplicate)
            resolved.append(duplicate)
        else:
            replaced += holders
            resolved.append(item)
    before = _cancel(replaced)
    cancelled.update(before)
    return [
        _with_schedule(item, before, found)
        if isinstance(item, Envelope) and item.unique is not None and before
        else item
        for item in resolved
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
    """Cancel jobs. Return those that had not ended in the meantime, as they were before."""
    if not replaced:
        return {}
    if not all(holder.visible for holder in replaced):
        raise _OldSnapshot(
            "The transaction began before the job it would replace was stored, and cannot change "
            "it. Run the transaction again.",
        )
    try:
        held = transitions.lock_all(
            Job.primary.filter(
                pk__in=[holder.job.pk for holder in replaced],
                state__in=sources(Trigger.CANCEL, State.CANCELLED),
            )
        )
    except RowLocked as error:
        raise UniqueKeyLocked(
            "Another session has locked the job that is to be replaced; try again.",
            details=error.details,
        ) from None
    if held:
        stop(held)
    return {job.pk: job for job in held}


def _with_schedule(
    envelope: Envelope, before: dict[UUID, Job], found: dict[str, list[Holder]]
) -> Envelope:
    """Return the job, with the schedule of the one that it replaces if the policy keeps it."""
    if envelope.unique is None or envelope.unique.on_conflict != "replace_except_schedule":
        return envelope
    holders = found.get(str(envelope.unique_key), ())
    replaced = [before[holder.job.pk] for holder in holders if holder.job.pk in before]
    scheduled = [
        (job.due_at, job) for job in replaced if job.state == State.SCHEDULED and job.due_at
    ]
    if not scheduled:
        return envelope
    due, job = min(scheduled, key=lambda pair: pair[0])
    text = job.options.get("scheduled_at") or when_text(None, due)
    return replace(envelope, scheduled_at=due, scheduled_at_text=text)

"""PUSH (ojs-core §7.1): the only way by which new jobs are stored.

The Python client, the HTTP API and the outbox's local delivery all call it. The steps, in order:
check the caller's transaction, route to the outbox, admit (validate, middleware, offload, unique
key), resolve unique policies, check the bounds, insert, publish.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from django.db import transaction

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.backpressure import bounds, rejections
from django_ojs.operations.backpressure.wait_policy import WaitPolicy, wait_for_room
from django_ojs.operations.enqueue import outbox, result, transaction_check, unique
from django_ojs.operations.enqueue.admission import Offloader, admit
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.events import publish
from django_ojs.spec.destinations import LOCAL
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import DuplicateJob, InvalidRequest, OJSError, QueueFull
from django_ojs.spec.states import State
from django_ojs.storage import database, notify
from django_ojs.storage.figures import rollups


@dataclass(frozen=True, kw_only=True, slots=True)
class PushOptions:
    """How to push jobs."""

    #: The ids were made here and cannot be taken.
    generated_ids: bool = False
    #: The caller sent several: an error about one carries its `index` in `details`.
    batch: bool = False
    #: Keeps large arguments outside the database.
    offloader: Offloader | None = None
    #: Wait while the queue is full, before QueueFull is raised.
    wait: WaitPolicy | None = None
    #: Where the queue is full, store the jobs in the outbox, from where they come back.
    outbox_when_full: bool = False
    #: See a bound that another process has set within the last second, at a tenth of the cost of
    #: an insert.
    exact_bounds: bool = False
    #: The jobs were routed and admitted before: they come from the outbox.
    admitted: bool = False


ONE: Final = PushOptions()
BATCH: Final = PushOptions(batch=True)


def push(envelope: Envelope, options: PushOptions = ONE) -> EnqueuedJob:
    """Store one job.

    It commits with the transaction that is open on the jobs' database, savepoints included. Raises
    an OJSError that names the field and the rule, and QueueFull when the queue is at its bound;
    the caller's transaction stays usable.
    """
    return push_batch([envelope], options)[0]


def push_batch(envelopes: Sequence[Envelope], options: PushOptions = BATCH) -> list[EnqueuedJob]:
    """Store jobs in order, in one statement: all or none. Raises as `push` does."""
    if not envelopes:
        raise InvalidRequest("jobs must hold at least one job.", details={"field": "jobs"})
    if options.admitted:
        transaction_check.refuse_other_transactions()
        return _store(envelopes, options)
    # The alias of the caller's transaction, where the jobs' database is not part of it.
    foreign = transaction_check.alias_for_caller()
    if foreign is None and not settings().outbox:
        return _store(envelopes, options)
    destinations = [outbox.route(envelope) or (foreign and LOCAL) for envelope in envelopes]
    if not any(destinations):
        return _store(envelopes, options)
    return _distribute(envelopes, destinations, foreign or database.alias(), options)


def _distribute(
    envelopes: Sequence[Envelope],
    destinations: Sequence[str | None],
    using: str,
    options: PushOptions,
) -> list[EnqueuedJob]:
    """Store jobs with a destination in the outbox, the others among the jobs; all or none."""
    here = [index for index, name in enumerate(destinations) if name is None]
    elsewhere = [index for index, name in enumerate(destinations) if name is not None]
    results: dict[int, EnqueuedJob] = {}
    with transaction.atomic(using=using):
        if here:
            with _index_of_caller(here):
                stored = _store([envelopes[index] for index in here], options)
            results.update(zip(here, stored, strict=True))
        with _index_of_caller(elsewhere):
            jobs = [envelopes[index] for index in elsewhere]
            names = [str(destinations[index]) for index in elsewhere]
            stored = _store_in_outbox(jobs, names, using, options)
        results.update(zip(elsewhere, stored, strict=True))
    return [results[index] for index in range(len(envelopes))]


def _store_in_outbox(
    envelopes: Sequence[Envelope], destinations: Sequence[str], using: str, options: PushOptions
) -> list[EnqueuedJob]:
    admitted = admit(envelopes, batch=options.batch)
    pairs = [(e, to) for e, to in zip(admitted, destinations, strict=True) if e is not None]
    stored = outbox.add(
        [envelope for envelope, _ in pairs],
        [destination for _, destination in pairs],
        using=using,
        generated_ids=options.generated_ids,
    )
    return _in_order(envelopes, admitted, stored)


def _store(envelopes: Sequence[Envelope], options: PushOptions) -> list[EnqueuedJob]:
    """Admit jobs and store them in this site's database."""
    if options.offloader is None:
        return _admit_and_insert(envelopes, options)
    stored: list[EnqueuedJob] = []
    try:
        stored = _admit_and_insert(envelopes, options)
    finally:
        kept = {job.id for job in stored if job.outcome in (Outcome.STORED, Outcome.OUTBOX)}
        options.offloader.settle(kept)
    return stored


def _admit_and_insert(envelopes: Sequence[Envelope], options: PushOptions) -> list[EnqueuedJob]:
    admitted: Sequence[Envelope | None] = envelopes
    if not options.admitted:
        admitted = admit(envelopes, batch=options.batch, offloader=options.offloader)
    jobs = [envelope for envelope in admitted if envelope is not None]
    if not jobs:
        return _in_order(envelopes, admitted, [])
    try:
        stored = _insert_or_wait(jobs, options)
    except DuplicateJob as error:
        index = error.details.pop("index", None)
        if options.batch and index is not None:
            # It counts the jobs that were not dropped; the caller's index counts all.
            error.details["index"] = [i for i, e in enumerate(admitted) if e is not None][index]
        raise
    return stored if len(stored) == len(envelopes) else _in_order(envelopes, admitted, stored)


def _insert_or_wait(envelopes: Sequence[Envelope], options: PushOptions) -> list[EnqueuedJob]:
    """Insert jobs; where their queue is full, do what the options say."""
    try:
        if options.wait is None:
            return _insert_unique(envelopes, options)
        return wait_for_room(partial(_insert_unique, envelopes, options), options.wait)
    except QueueFull as full:
        rejections.recorder.reject(full, envelopes)
        if not options.outbox_when_full:
            raise
    return outbox.add(
        envelopes,
        [LOCAL] * len(envelopes),
        using=database.alias(),
        generated_ids=options.generated_ids,
    )


def _insert_unique(envelopes: Sequence[Envelope], options: PushOptions) -> list[EnqueuedJob]:
    for envelope in envelopes:
        if envelope.unique is not None:
            return unique.store(envelopes, partial(_insert, options=options))
    if options.generated_ids or len(envelopes) == 1:
        return _insert(envelopes, options)

    # A taken id is found after the others are stored; the savepoint rolls them back and leaves the
    # caller's transaction usable.
    def operation() -> list[EnqueuedJob]:
        with database.atomic():
            return _insert(envelopes, options)

    return database.retried(operation)


def _insert(envelopes: Sequence[Envelope], options: PushOptions) -> list[EnqueuedJob]:
    """Insert jobs in one statement, and publish that."""
    recorded = not settings().keep_events.isdisjoint(publish.ENQUEUED)
    if not recorded and not signals.job_enqueued.has_listeners(Job):
        return _insert_and_notify(envelopes, options)
    with publish.atomic_if_published(*publish.ENQUEUED):
        jobs = _insert_and_notify(envelopes, options)
        publish.enqueued([job.model() for job in jobs])
    return jobs


def _insert_and_notify(envelopes: Sequence[Envelope], options: PushOptions) -> list[EnqueuedJob]:
    stored = bounds.insert(
        envelopes, generated_ids=options.generated_ids, exact=options.exact_bounds
    )
    if len(envelopes) == 1:
        job = result.of_stored(envelopes[0], stored[0])
        queues = (job.queue,) if job.state is State.AVAILABLE else ()
        _after_commit(queues, {(job.queue, job.type): 1})
        return [job]
    by_id = {row.id: row for row in stored}
    jobs = [result.of_stored(envelope, by_id[envelope.id]) for envelope in envelopes]
    available = {job.queue for job in jobs if job.state is State.AVAILABLE}
    _after_commit(available, Counter([(job.queue, job.type) for job in jobs]))
    return jobs


def _after_commit(queues: Collection[str], counts: Mapping[tuple[str, str], int]) -> None:
    """Notify the workers of these queues, and count the jobs of each (queue, type)."""
    alias = database.alias()

    def committed() -> None:
        if queues:
            notify.send(alias, queues)
        rollups.add(rollups.ENQUEUED, counts)

    database.after_commit(committed, using=alias)


def _in_order(
    envelopes: Sequence[Envelope],
    admitted: Sequence[Envelope | None],
    stored: Sequence[EnqueuedJob],
) -> list[EnqueuedJob]:
    """Return the results of all jobs, those that a middleware dropped included."""
    remaining = iter(stored)
    return [
        result.of_dropped(envelope) if passed is None else next(remaining)
        for envelope, passed in zip(envelopes, admitted, strict=True)
    ]


@contextmanager
def _index_of_caller(indexes: Sequence[int]) -> Iterator[None]:
    """Make the `index` of an error count the caller's jobs, of which these are a part."""
    try:
        yield
    except OJSError as error:
        if "index" in error.details:
            error.details["index"] = indexes[error.details["index"]]
        raise


__all__ = ["BATCH", "ONE", "PushOptions", "push", "push_batch"]

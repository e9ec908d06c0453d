"""PUSH (ojs-core §7.1): store jobs, in the caller's transaction."""

from collections.abc import Sequence
from functools import partial

from django_ojs.models import Job
from django_ojs.operations.backpressure import bounds, rejections
from django_ojs.operations.backpressure.bounds import Patience
from django_ojs.operations.enqueue import transaction_check, unique
from django_ojs.operations.enqueue.admission import Aside, accept, settled
from django_ojs.operations.enqueue.stored_job import job_of, maker
from django_ojs.operations.events import publish
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import DuplicateJob, InvalidRequest, QueueFull
from django_ojs.spec.states import State
from django_ojs.storage import database, notify
from django_ojs.storage.figures import rollups


def push(
    envelope: Envelope,
    *,
    generated_id: bool = False,
    aside: Aside | None = None,
    patience: Patience | None = None,
) -> Job | None:
    """Store one job and return it; None when an enqueue middleware dropped it.

    It commits with the transaction that is open on the jobs' database, savepoints included.
    `generated_id` says that the id is ours and cannot be taken. A unique policy that ignores a
    duplicate returns the job that was there, `deduplicated`. Raises an OJSError that names the
    field and the rule, and QueueFull when the queue is at its bound and `patience` is over.
    """
    with settled(aside) as jobs:
        jobs += _push(
            [envelope], generated_ids=generated_id, place=False, aside=aside, patience=patience
        )
    return jobs[0]


def push_batch(
    envelopes: Sequence[Envelope],
    *,
    generated_ids: bool = False,
    aside: Aside | None = None,
    patience: Patience | None = None,
    accepted: bool = False,
) -> list[Job | None]:
    """Store jobs in order, in one statement: all or none.

    What a middleware dropped is None in its place. `accepted`: they come from `accept`.

    An error about one job carries its `index` in `details`. Raises as `push` does.
    """
    if not envelopes:
        raise InvalidRequest("jobs must hold at least one job.", details={"field": "jobs"})
    with settled(aside) as jobs:
        jobs += _push(
            envelopes,
            generated_ids=generated_ids,
            place=True,
            aside=aside,
            patience=patience,
            accepted=accepted,
        )
    return jobs


def _push(
    envelopes: Sequence[Envelope],
    *,
    generated_ids: bool,
    place: bool,
    aside: Aside | None,
    patience: Patience | None,
    accepted: bool = False,
) -> list[Job | None]:
    transaction_check.refuse_other_transactions()
    passed = list(envelopes) if accepted else accept(envelopes, place=place, aside=aside)
    return push_accepted(passed, generated_ids=generated_ids, place=place, patience=patience)


def push_accepted(
    passed: Sequence[Envelope | None],
    *,
    generated_ids: bool,
    place: bool,
    patience: Patience | None = None,
) -> list[Job | None]:
    """Store what came from `accept`; with `place` an error carries the `index`."""
    kept = [envelope for envelope in passed if envelope is not None]
    if not kept:
        return [None] * len(passed)
    attempt = partial(
        _attempt,
        kept,
        generated_ids=generated_ids,
        together=place,
        at_once=patience is not None,
    )
    try:
        jobs = iter(bounds.with_patience(attempt, patience))
    except QueueFull as full:
        rejections.refused(full, kept)
        raise
    except DuplicateJob as error:
        if place:  # Its index counts what was stored, the caller's what was asked for.
            asked = [index for index, envelope in enumerate(passed) if envelope is not None]
            error.details["index"] = asked[error.details.get("index", 0)]
        else:
            error.details.pop("index", None)
        raise
    return [None if envelope is None else next(jobs) for envelope in passed]


def _attempt(
    envelopes: Sequence[Envelope], *, generated_ids: bool, together: bool, at_once: bool
) -> list[Job]:
    store = partial(_store, generated_ids=generated_ids, at_once=at_once)
    if any(envelope.unique is not None for envelope in envelopes):
        return unique.store(envelopes, store)
    if generated_ids or not together:
        return store(envelopes)

    # A taken id shows only once the others are stored; the savepoint takes them back and leaves the
    # caller's transaction usable.
    def atomically() -> list[Job]:
        with database.atomic():
            return store(envelopes)

    return database.retried(atomically)


def _store(envelopes: Sequence[Envelope], *, generated_ids: bool, at_once: bool) -> list[Job]:
    """Store jobs that were accepted, in one statement, and tell of them."""
    with publish.atomic_if_published(*publish.ENQUEUED):
        found = bounds.store(envelopes, generated_ids=generated_ids, at_once=at_once)
        stored = {job.id: job for job in found}
        make = maker()
        jobs = [job_of(envelope, stored[envelope.id], make) for envelope in envelopes]
        database.after_commit(
            notify.callback(job.queue for job in jobs if job.state == State.AVAILABLE),
            rollups.callback(rollups.ENQUEUED, [(job.queue, job.type) for job in jobs]),
        )
        publish.enqueued(jobs)
    return jobs


__all__ = ["Aside", "accept", "push", "push_accepted", "push_batch"]

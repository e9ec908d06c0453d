"""The Python client: enqueue, read, cancel, activate and retry jobs; pause and resume queues.

Every function has an `a…` twin for `async` code.
"""

from collections.abc import Iterable, Sequence
from typing import Unpack
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from django_ojs.async_twins import call_twin, has_twin
from django_ojs.enqueue_options import (
    Duration,
    OnFull,
    OptionArguments,
    Request,
    alike_of,
    envelope_of,
    push_options_of,
    push_options_of_batch,
    read_options,
)
from django_ojs.models import Job, Queue
from django_ojs.operations import activate as _activate
from django_ojs.operations import cancel as _cancel
from django_ojs.operations import info as _info
from django_ojs.operations import queues as _queues
from django_ojs.operations import retry as _retry
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.push import push as _push
from django_ojs.operations.push import push_batch as _push_batch
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.json import JSON

HIGH, NORMAL, LOW = 10, 0, -10


def request(type: str, args: Sequence[JSON] = (), **options: Unpack[OptionArguments]) -> Request:
    """Describe a job for `enqueue_batch`, by the arguments of `enqueue`."""
    return Request(type=type, args=args, options=read_options(options))


def enqueue(
    type: str, args: Sequence[JSON] = (), **options: Unpack[OptionArguments]
) -> EnqueuedJob:
    """Store a job, in the transaction that is open on the jobs' database (ojs-core §7.1).

    Return an EnqueuedJob, whose `outcome` is `stored`; `duplicate`, where a unique policy ignored
    the job (the result is the existing job); `outbox`, where OUTBOX sends it to another server or
    its queue is full (the result has a `destination`); `dropped`, where an enqueue middleware
    dropped it. Its `job()` reads the row.

    A handler for the type need not exist here; where one does, its defaults apply. Raises an
    OJSError that names the field and the rule: InvalidArgs for arguments that JSON cannot carry,
    DuplicateJob for an id that is taken, WrongDatabase inside an `atomic()` of another alias,
    QueueFull for a queue at its bound. With `on_full="block"` it waits for room first, for
    `block_timeout` (30 seconds), where no transaction is open; with "outbox" the job is stored in
    the outbox, in the same transaction, and returns to its queue when there is room.
    """
    item = Request(type=type, args=args, options=read_options(options))
    try:
        return _push(envelope_of(item), push_options_of(item))
    except SynchronousOnlyOperation:
        raise call_twin("enqueue") from None


def enqueue_after_commit(
    type: str, args: Sequence[JSON] = (), **options: Unpack[OptionArguments]
) -> EnqueuedJob:
    """Store a job that runs after the current transaction commits (ojs-framework-adapters §5.1).

    The same as `enqueue`: the row commits or rolls back with the transaction.
    """
    return enqueue(type, args, **options)


@has_twin
def enqueue_batch(
    requests: Iterable[Request],
    *,
    on_full: OnFull | None = None,
    block_timeout: Duration | None = None,
) -> list[EnqueuedJob]:
    """Store many jobs in one statement, all or none, and return them in order.

    `on_full` and `block_timeout` are as for `enqueue`, but for the whole batch. Without them, all
    its jobs must have the same values. Raises as `enqueue` does; `details["index"]` of the error is
    the index of the job.
    """
    wanted = list(requests) if isinstance(requests, Iterable) else []
    if not wanted:
        raise InvalidRequest.of("requests", "must be a list of at least one request.")
    if (alike := alike_of(wanted)) is not None:
        return _push_batch(alike, push_options_of_batch(wanted[:1], on_full, block_timeout))
    envelopes = []
    new_ids = ids.many(len(wanted))
    for index, item in enumerate(wanted):
        if not isinstance(item, Request):
            raise InvalidRequest(
                f"requests[{index}] must be made by ojs.request() or handler.request().",
                details={"index": index},
            )
        try:
            envelopes.append(envelope_of(item, new_ids[index]))
        except OJSError as error:
            error.details.setdefault("index", index)
            raise
    return _push_batch(envelopes, push_options_of_batch(wanted, on_full, block_timeout))


@has_twin
def cancel(job_id: UUID | str) -> Job:
    """Cancel a job that has not ended, and return it (ojs-core §7.6).

    Cancelling a cancelled job succeeds. Raises JobNotFound, and Conflict when it was completed or
    discarded.
    """
    return _cancel.cancel(ids.parse_id(job_id))[0]


@has_twin
def get_job(job_id: UUID | str) -> Job:
    """Return a job as it is now (ojs-core §7.7). Raises JobNotFound."""
    return _info.info(ids.parse_id(job_id))


@has_twin
def activate(job_id: UUID | str) -> Job:
    """Make a pending job available. Raises JobNotFound, and Conflict when it is not pending."""
    return _activate.activate(ids.parse_id(job_id))


@has_twin
def retry(job_id: UUID | str) -> Job:
    """Make a discarded job available again; it may use all its attempts once more.

    Raises JobNotFound, and Conflict when it is not discarded.
    """
    return _retry.retry(ids.parse_id(job_id))


@has_twin
def pause_queue(name: str) -> Queue:
    """Pause a queue, known or not: FETCH returns none of its jobs; PUSH still stores them."""
    return _queues.pause(name)


@has_twin
def drain_queue(name: str) -> Queue:
    """Drain a queue, known or not: PUSH raises QueuePaused, and workers finish the jobs in it.

    In another process, PUSH may still store jobs for up to a second.
    """
    return _queues.drain(name)


@has_twin
def resume_queue(name: str) -> Queue:
    """Resume a queue that is paused or draining: PUSH stores jobs, and FETCH returns them."""
    return _queues.resume(name)


def new_id() -> UUID:
    """Return an id for a job, to enqueue it at most once: a repeated id is rejected."""
    return ids.uuid7()


aenqueue = sync_to_async(enqueue)
aenqueue_after_commit = sync_to_async(enqueue_after_commit)
aenqueue_batch = sync_to_async(enqueue_batch)
acancel = sync_to_async(cancel)
aget_job = sync_to_async(get_job)
aactivate = sync_to_async(activate)
aretry = sync_to_async(retry)
apause_queue = sync_to_async(pause_queue)
adrain_queue = sync_to_async(drain_queue)
aresume_queue = sync_to_async(resume_queue)

"""The Python way in: enqueue jobs, look at them, cancel them.

Every function has an `a…` twin for `async` code.
"""

from collections.abc import Iterable, Sequence
from typing import Unpack
from uuid import UUID

from asgiref.sync import sync_to_async

from django_ojs.models import Job, Queue
from django_ojs.operations import activate as _activate
from django_ojs.operations import cancel as _cancel
from django_ojs.operations import info as _info
from django_ojs.operations import queues as _queues
from django_ojs.operations import retry as _retry
from django_ojs.operations.enqueue import routing as _dispatch
from django_ojs.operations.enqueue.when_full import WhenFull
from django_ojs.options import (
    Duration,
    OnFull,
    OptionArguments,
    Options,
    Request,
    envelope_of,
    read_options,
    when_full_of,
)
from django_ojs.payloads import offload
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.json import JSON

HIGH, NORMAL, LOW = 10, 0, -10


def request(type: str, args: Sequence[JSON] = (), **options: Unpack[OptionArguments]) -> Request:
    """Describe a job for `enqueue_batch`. Arguments are those of `enqueue`."""
    return Request(type=type, args=args, options=read_options(options))


def enqueue(type: str, args: Sequence[JSON] = (), **options: Unpack[OptionArguments]) -> Job | None:
    """Store a job, in the transaction that is open on the jobs' database (ojs-core §7.1).

    Return the stored job, or None when an enqueue middleware dropped it. A handler for the type
    need not exist here; where one does, its defaults apply. Raises an OJSError that names the field
    and the rule: InvalidArgs for arguments that JSON cannot carry, DuplicateJob for an id that is
    taken, WrongDatabase inside an `atomic()` of another alias, QueueFull for a queue at its bound.
    With `on_full="block"` it waits for room first, for `block_timeout` (30 seconds), where no
    transaction is open; with "outbox" the job is kept in the outbox, in the same transaction, and
    comes back when there is room.

    A job that OUTBOX sends elsewhere is stored in the outbox, in the same transaction: what is
    returned then has the id, the state `pending` and a `destination`, and is not a row of this
    site's jobs.
    """
    return send(Request(type=type, args=args, options=read_options(options)))


def enqueue_after_commit(
    type: str, args: Sequence[JSON] = (), **options: Unpack[OptionArguments]
) -> Job | None:
    """Store a job that runs after the current transaction commits, and only then.

    See ojs-framework-adapters §5.1.

    The same as `enqueue`: the row commits with the transaction, or vanishes with it.
    """
    return enqueue(type, args, **options)


def enqueue_batch(
    requests: Iterable[Request],
    *,
    on_full: OnFull | None = None,
    block_timeout: Duration | None = None,
) -> list[Job | None]:
    """Store many jobs in one statement, all or none, and return them in order.

    `on_full` and `block_timeout` are those of `enqueue`, for all of the batch; without them its
    jobs must agree. Raises as `enqueue` does; the error's `details["index"]` says which job it is
    about.
    """
    wanted = list(requests) if isinstance(requests, Iterable) else []
    if not wanted:
        raise InvalidRequest(
            "requests must be a list of at least one request.", details={"field": "requests"}
        )
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
    ours = all(item.options.id is None for item in wanted)
    full = _when_full(wanted, on_full, block_timeout)
    return _dispatch.batch(envelopes, generated_ids=ours, aside=offload.offloader(), full=full)


def _when_full(
    wanted: Sequence[Request], on_full: OnFull | None, block_timeout: Duration | None
) -> WhenFull:
    if on_full is not None or block_timeout is not None:
        options = Options(on_full=on_full, block_timeout=block_timeout)
        return when_full_of(Request(type="", args=(), options=options))
    asked = [when_full_of(item) for item in wanted]
    first = asked[0]
    if any(each is not first and each != first for each in asked):
        raise InvalidRequest(
            "on_full must be the same for all jobs of a batch; enqueue_batch takes it too.",
            details={"field": "on_full"},
        )
    return first


def send(item: Request) -> Job | None:
    """Store one described job; see `enqueue`."""
    return _dispatch.one(
        envelope_of(item),
        generated_id=item.options.id is None,
        aside=offload.offloader(),
        full=when_full_of(item),
    )


def cancel(job_id: UUID | str) -> Job:
    """Cancel a job that has not ended, and return it (ojs-core §7.6).

    Cancelling a cancelled job succeeds. Raises JobNotFound, and Conflict when it was completed or
    discarded.
    """
    return _cancel.cancel(ids.parse_id(job_id))[0]


def get_job(job_id: UUID | str) -> Job:
    """Return a job as it is now (ojs-core §7.7). Raises JobNotFound."""
    return _info.info(ids.parse_id(job_id))


def activate(job_id: UUID | str) -> Job:
    """Make a pending job available. Raises JobNotFound, and Conflict when it is not pending."""
    return _activate.activate(ids.parse_id(job_id))


def retry(job_id: UUID | str) -> Job:
    """Make a discarded job available again, with all its attempts.

    Raises JobNotFound, and Conflict when it is not discarded.
    """
    return _retry.retry(ids.parse_id(job_id))


def pause_queue(name: str) -> Queue:
    """Stop handing out the jobs of a queue, known or not; it still takes jobs in."""
    return _queues.pause(name)


def resume_queue(name: str) -> Queue:
    """Hand out the jobs of a queue again."""
    return _queues.resume(name)


def new_id() -> UUID:
    """Make an id for a job, to enqueue it at most once: a repeated one is refused."""
    return ids.uuid7()


aenqueue = sync_to_async(enqueue)
aenqueue_after_commit = sync_to_async(enqueue_after_commit)
aenqueue_batch = sync_to_async(enqueue_batch)
acancel = sync_to_async(cancel)
aget_job = sync_to_async(get_job)
aactivate = sync_to_async(activate)
aretry = sync_to_async(retry)
apause_queue = sync_to_async(pause_queue)
aresume_queue = sync_to_async(resume_queue)

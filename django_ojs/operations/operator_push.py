"""PUSH by an operator: the job and its entry in the audit trail, in one transaction."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django_ojs.operations.access import operator
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.push import ONE, PushOptions, push
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import OJSError
from django_ojs.storage import database


def push_by_operator(
    envelope: Envelope,
    options: PushOptions = ONE,
    *,
    copy_of: UUID | None = None,
    changed: Collection[str] = (),
) -> EnqueuedJob:
    """Store one job as `push` does. The audit trail names the original of a copy.

    `changed` are the fields in which a copy differs from its original.
    """
    result = _push(envelope, options, copy_of, sorted(changed))
    if isinstance(result, OJSError):
        raise result
    return result


@database.write_transaction
def _push(
    envelope: Envelope, options: PushOptions, copy_of: UUID | None, changed: list[str]
) -> EnqueuedJob | OJSError:
    try:
        result = push(envelope, options)
    except OJSError as error:
        # The caller raises it after the commit, so that a rejection by a full queue stays counted.
        return error
    if result.outcome in (Outcome.STORED, Outcome.OUTBOX):
        old = None if copy_of is None else str(copy_of)
        detail: dict[str, Any] = {"type": result.type, "queue": result.queue, "changed": changed}
        if result.destination is not None:
            detail["destination"] = result.destination
        operator.acted("job.enqueued", result.id, copy_of=old, **detail)
    return result

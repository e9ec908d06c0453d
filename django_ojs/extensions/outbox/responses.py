"""What the response of a server means for the jobs that were sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.spec.retry_after_reader import read_retry_after

#: The relay, the path or a passing state causes these errors, not the job: it is sent again later.
_LATER: Final = frozenset({401, 404, 405, 407, 408, 425, 429})

#: Passing errors whose details name the queue that takes no jobs; other queues may take some.
_OF_ONE_QUEUE: Final = frozenset({"QUEUE_FULL", "queue_paused", "QUEUE_PAUSED"})


class Unreachable(Exception):
    """There was no valid response. The message names the kind of failure, and no address or value.

    `retry_after` is the seconds of a Retry-After header, if there was one.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeliveryOutcome(StrEnum):
    """What happens to the jobs that were sent."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    LATER = "later"
    #: A batch was rejected, perhaps because of one job, so each job is sent by itself.
    ONE_BY_ONE = "one by one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """An outcome, and the code and message of the server if it sent them.

    If `queue` or `tenant` is set, the response concerns only this queue, or only this tenant in it.
    `room` is how many jobs a full queue has room for; 0 if that is not known.
    """

    outcome: DeliveryOutcome
    code: str = ""
    message: str = ""
    retry_after: float | None = None
    room: int = 0
    queue: str | None = None
    tenant: str | None = None

    def concerns(self, entry: OutboxEntry) -> bool:
        """Whether the response concerns this job."""
        return self.queue in (None, entry.queue) and self.tenant in (None, entry.tenant_id)


DELIVERED: Final = Result(outcome=DeliveryOutcome.DELIVERED)


def unreachable(error: Unreachable) -> Result:
    """Return the result of a request without a valid response: the jobs are sent later."""
    return Result(
        outcome=DeliveryOutcome.LATER,
        code="unreachable",
        message=f"No response: {error}.",
        retry_after=error.retry_after,
    )


def read(
    status: int, headers: Mapping[str, str], body: object, job_ids: list[UUID], *, batch: bool
) -> Result:
    """Read a response; `body` is its JSON, None when it has none.

    A 2xx counts only if it has the job, and a 4xx except 413 is a rejection only if it has an OJS
    error: other responses may come from a proxy.
    """
    document: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    if 200 <= status < 300:
        if _confirms(document, job_ids, batch=batch):
            return DELIVERED
        return Result(
            outcome=DeliveryOutcome.LATER,
            code="bad_response",
            message=f"The server responded with {status} and without the job.",
        )
    found = document.get("error")
    error: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    code = error.get("code")
    known = isinstance(code, str) and bool(code)
    queue, tenant = _subject(error)
    result = Result(
        outcome=_outcome(status, error if known else {}, job_ids, batch=batch),
        queue=queue,
        tenant=tenant,
        code=str(code) if known else f"http_{status}",
        message=str(error.get("message") or f"The server responded with {status}."),
        retry_after=read_retry_after(headers),
        room=_room(error) if status == 429 else 0,
    )
    return DELIVERED if result.outcome is DeliveryOutcome.DELIVERED else result


def _outcome(
    status: int, error: Mapping[str, Any], job_ids: list[UUID], *, batch: bool
) -> DeliveryOutcome:
    if batch:
        if _subject(error)[0] is not None:
            return DeliveryOutcome.LATER
        # A server without batches may not know the path.
        split = 400 <= status < 500 and (status not in _LATER or status in (404, 405))
        return DeliveryOutcome.ONE_BY_ONE if split else DeliveryOutcome.LATER
    if status == 409 and error.get("code") in ("duplicate", "DUPLICATE_JOB"):
        details = error.get("details")
        existing = details.get("existing_job_id") if isinstance(details, Mapping) else None
        # If it is the job's own id, an earlier request has arrived. If it is another one, the job's
        # unique policy has rejected it.
        return (
            DeliveryOutcome.DELIVERED
            if existing in (None, str(job_ids[0]))
            else DeliveryOutcome.REJECTED
        )
    if status == 413:
        # It may come from a proxy: the job is too large for the path to the server.
        return DeliveryOutcome.REJECTED
    if error.get("retryable") is True:
        # The rejection is temporary, such as one by a draining queue.
        return DeliveryOutcome.LATER
    if 400 <= status < 500 and error and status not in _LATER:
        return DeliveryOutcome.REJECTED
    if status >= 500 and error.get("retryable") is False:
        return DeliveryOutcome.REJECTED
    return DeliveryOutcome.LATER


def _confirms(document: Mapping[str, Any], job_ids: list[UUID], *, batch: bool) -> bool:
    if batch:
        jobs = document.get("jobs")
        if not isinstance(jobs, list) or len(jobs) != len(job_ids):
            return False
        # Another id belongs to the job that a unique policy kept; null stands for a job that a
        # middleware dropped.
        return all(
            job is None or (isinstance(job, Mapping) and isinstance(job.get("id"), str))
            for job in jobs
        )
    if document.get("deduplicated") is True or document.get("dropped") is True:
        return True
    job = document.get("job", document)
    return isinstance(job, Mapping) and job.get("id") == str(job_ids[0])


def _fields(error: Mapping[str, Any]) -> dict[str, Any]:
    found = error.get("details")
    # The backpressure document has the details in the error itself.
    return {**error, **(found if isinstance(found, Mapping) else {})}


def _subject(error: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the queue that takes no jobs now, and the tenant if only its jobs are rejected."""
    fields = _fields(error)
    queue, tenant, code = fields.get("queue"), fields.get("tenant_id"), error.get("code")
    if not isinstance(code, str) or code not in _OF_ONE_QUEUE or not isinstance(queue, str):
        return None, None
    return queue, tenant if isinstance(tenant, str) else None


def _room(error: Mapping[str, Any]) -> int:
    fields = _fields(error)
    depth, bound = fields.get("depth"), fields.get("bound")
    # A bound in bytes is no number of jobs.
    if error.get("code") != "QUEUE_FULL" or fields.get("unit") is not None:
        return 0
    if type(depth) is not int or type(bound) is not int:
        return 0
    return max(0, bound - depth)

"""OJS-3xxx: what can be wrong with a job that exists, or does not (error-catalog §4.3)."""

from django_ojs.spec.errors.base import OJSError
from django_ojs.spec.errors.client import Conflict


class NotFound(OJSError):
    """There is no such resource."""

    code, canonical, number, status = "not_found", "NOT_FOUND", "OJS-3000", 404


class JobNotFound(NotFound):
    """There is no job with this id."""


class DuplicateJob(OJSError):
    """The id is taken, or a unique policy rejects the job; details: existing_job_id."""

    code, canonical, number, status = "duplicate", "DUPLICATE_JOB", "OJS-3001", 409


# On the wire both are the transition conflict they are; Python may tell them apart.
class JobAlreadyCompleted(Conflict):
    """The job has already completed."""

    canonical, number = "JOB_ALREADY_COMPLETED", "OJS-3002"


class JobAlreadyCancelled(Conflict):
    """The job has already been cancelled."""

    canonical, number = "JOB_ALREADY_CANCELLED", "OJS-3003"


class QueuePaused(OJSError):
    """The queue is paused."""

    code, canonical, number, status = "queue_paused", "QUEUE_PAUSED", "OJS-3004", 422
    retryable = True


class HandlerError(OJSError):
    """The handler raised; the retry policy decides."""

    code, canonical, number = "handler_error", "HANDLER_ERROR", "OJS-3005"
    retryable = True


class HandlerTimeout(OJSError):
    """The handler ran longer than the job's timeout; the retry policy decides."""

    code, canonical, number = "timeout", "HANDLER_TIMEOUT", "OJS-3006"
    retryable = True


class HandlerPanic(OJSError):
    """The handler took its process down; the retry policy decides."""

    code = canonical = "HANDLER_PANIC"
    number, retryable = "OJS-3007", True


class NonRetryableError(OJSError):
    """The error type is one of the policy's `non_retryable_errors`."""

    code = canonical = "NON_RETRYABLE_ERROR"
    number = "OJS-3008"


class JobCancelled(OJSError):
    """The job was cancelled while it ran."""

    code, canonical, number = "cancelled", "JOB_CANCELLED", "OJS-3009"


class NoHandlerRegistered(OJSError):
    """This worker has no handler for the job type."""

    code, number = "NO_HANDLER_REGISTERED", "OJS-3010"

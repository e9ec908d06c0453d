"""Every error that code of this package raises or sends, with its number in error-catalog §4.

Where the documents disagree, the wire contract of this package decides; docs/reference lists the
decisions.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self

#: Seconds to wait before another try, when nothing says how fast the queue is worked.
RETRY_AFTER: Final = 5


class OJSError(Exception):
    """The base class. Messages name the field and the rule, never a value.

    `code` is what HTTP responses carry, `canonical` the SCREAMING_SNAKE_CASE name of the errors
    document (None where it has none), `number` the catalogue's OJS-NNNN ("" for this package's own
    client-side errors), `status` the HTTP status (None: the error is never sent over HTTP), `type`
    the specification's own name for the condition, where it has one. `details` and `hint` belong
    to one occurrence.
    """

    code: ClassVar[str] = "backend_error"
    canonical: ClassVar[str | None] = None
    number: ClassVar[str] = ""
    status: ClassVar[int | None] = None
    #: The class sets it, unless one occurrence says otherwise.
    retryable: bool = False
    type: ClassVar[str | None] = None

    message: str
    details: dict[str, Any]

    def __init__(
        self, message: str, /, *, details: Mapping[str, Any] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details) if details else {}
        self.hint = hint

    @property
    def hint(self) -> str | None:
        """A sentence on what helps; the traceback shows it as a note."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        self._hint = hint
        # There are no other notes when the error is made.
        self.__notes__ = [] if hint is None else [f"Hint: {hint}"]

    @classmethod
    def of(cls, field: str, rule: str, *, hint: str | None = None, **details: Any) -> Self:
        """Return the error of a field that breaks a rule: `of("args", "must be an array")`."""
        text = f"{field} {rule}"
        return cls(text, details={"field": field, **details}, hint=hint)

    def __str__(self) -> str:
        return self.message

    # Exception.__reduce__ calls cls(*args), which would lose the keyword-only arguments.
    def __reduce__(self) -> tuple[Callable[..., "OJSError"], tuple[Any, ...]]:
        return _rebuild, (self.__class__, self.message, self.details, self.hint)

    def with_details(self, **details: Any) -> Self:
        """Add details, such as the `index` in a batch, and return the error."""
        self.details.update(details)
        return self


def size_details(actual: int, limit: int) -> dict[str, Any]:
    """Return the details of a size over its limit, in both spellings that clients know."""
    return {
        "actual_bytes": actual,
        "max_bytes": limit,
        "size_bytes": actual,
        "max_size_bytes": limit,
    }


def _rebuild(
    cls: Callable[..., OJSError], message: str, details: dict[str, Any], hint: str | None
) -> OJSError:
    return cls(message, details=details, hint=hint)


# OJS-1xxx: the request is wrong, or never reached the server (error-catalog §4.1).


class InvalidPayload(OJSError):
    """The body is not strict JSON, which every database and language can represent."""

    code, canonical, number, status = "invalid_payload", "INVALID_PAYLOAD", "OJS-1000", 400


class InvalidRequest(OJSError):
    """A field is missing or ill-formed. The catalogue counts this under OJS-1000 as well."""

    code, number, status = "invalid_request", "OJS-1000", 400


class InvalidJobType(InvalidRequest):
    """`type` breaks the naming rule."""

    canonical, number = "INVALID_JOB_TYPE", "OJS-1001"


class InvalidQueue(InvalidRequest):
    """`queue` breaks the naming rule."""

    canonical, number = "INVALID_QUEUE", "OJS-1002"


class InvalidArgs(InvalidRequest):
    """`args` is not an array, or holds a value that JSON cannot represent."""

    canonical, number = "INVALID_ARGS", "OJS-1003"


class InvalidMetadata(InvalidRequest):
    """`meta` is not an object, or holds a value that JSON cannot represent."""

    canonical, number = "INVALID_METADATA", "OJS-1004"


class Conflict(OJSError):
    """The state machine does not allow the transition.

    Details: job_id, current_state, current_run, expected_state.
    """

    code, canonical, number, status = "conflict", "INVALID_STATE_TRANSITION", "OJS-1005", 409


class ClaimLost(Conflict):
    """The job is active under another claim: this worker may no longer change it."""


class InvalidRetryPolicy(InvalidRequest):
    """A field of `retry` breaks a rule of ojs-retry §11."""

    canonical, number, status = "INVALID_RETRY_POLICY", "OJS-1006", 422
    type = "validation_error"


class InvalidCronExpression(InvalidRequest):
    """The cron expression cannot be parsed."""

    canonical, number = "INVALID_CRON_EXPRESSION", "OJS-1007"


class PayloadTooLarge(OJSError):
    """The envelope is over its limit.

    Details: actual_bytes, max_bytes, field, size_bytes, max_size_bytes.
    """

    code = canonical = "PAYLOAD_TOO_LARGE"
    number, status, type = "OJS-1009", 413, "PayloadTooLarge"


class MetadataTooLarge(OJSError):
    """`meta` is over its limit; details as in PayloadTooLarge."""

    code = canonical = "METADATA_TOO_LARGE"
    number, status, type = "OJS-1010", 413, "MetadataTooLarge"


class ConnectionError(OJSError):  # the catalogue's name, and not the builtin
    """The server could not be reached."""

    code, number, retryable = "CONNECTION_ERROR", "OJS-1011", True


class QueueNameTooLong(InvalidQueue):
    """`queue` is over its limit in bytes."""

    code = canonical = "QUEUE_NAME_TOO_LONG"
    number, type = "OJS-1014", "QueueNameTooLong"


class JobTypeTooLong(InvalidJobType):
    """`type` is over its limit in bytes."""

    code = canonical = "JOB_TYPE_TOO_LONG"
    number, type = "OJS-1015", "JobTypeTooLong"


class ChecksumMismatch(OJSError):
    """An external payload does not match the checksum of its reference (payload-limits: 422)."""

    code = canonical = "CHECKSUM_MISMATCH"
    number, status, type = "OJS-1016", 422, "PayloadChecksumMismatch"
    #: The error type of a job that fails with it (§5.4). Another attempt would fail the same way.
    ojs_type = "PayloadChecksumMismatch"
    ojs_retryable = False


class PayloadRejected(OJSError):
    """A payload reference names a location that is not allowed, or cannot be read."""

    code, ojs_retryable = "PAYLOAD_REJECTED", False


class PayloadUnavailable(OJSError):
    """An external payload cannot be fetched now; the retry policy applies."""

    code, retryable = "PAYLOAD_UNAVAILABLE", True


class UnsupportedCompression(OJSError):
    """The Content-Encoding is not supported."""

    code = canonical = "UNSUPPORTED_COMPRESSION"
    number, status, type = "OJS-1017", 415, "UnsupportedCompression"


class JobTypeNotAllowed(OJSError):
    """The job type is not in the allowlist. The catalogue counts this under OJS-1001."""

    code, number, status = "JOB_TYPE_NOT_ALLOWED", "OJS-1001", 422


class WrongDatabase(OJSError):
    """A job was enqueued inside an `atomic()` of another database and would not commit with it."""

    code = "WRONG_DATABASE"


# OJS-2xxx: the backend failed; a later attempt may succeed (§4.2).


class BackendError(OJSError):
    """The database or the transport failed."""

    code, canonical, number, status = "backend_error", "BACKEND_ERROR", "OJS-2000", 500
    retryable = True


class BackendUnavailable(BackendError):
    """The database cannot be reached."""

    canonical, number, status = "BACKEND_UNAVAILABLE", "OJS-2001", 503


class RowLocked(BackendUnavailable):
    """Another session has locked the row that was to be changed; nothing has changed."""

    @classmethod
    def of_job(cls, job_id: object) -> Self:
        """Return the error for this job."""
        return cls(
            "Another session has locked the job; try again.", details={"job_id": str(job_id)}
        )


class BackendTimeout(BackendError):
    """The database took too long."""

    code = canonical = "BACKEND_TIMEOUT"
    number, status = "OJS-2002", 504


class InternalServerError(BackendError):
    """Anything else that went wrong on the server."""

    canonical, number = "INTERNAL_SERVER_ERROR", "OJS-2004"


# OJS-3xxx: a job that is missing, or that is not in the state the request needs (§4.3).


class NotFound(OJSError):
    """There is no such resource."""

    code, canonical, number, status = "not_found", "NOT_FOUND", "OJS-3000", 404


class JobNotFound(NotFound):
    """There is no job with this id."""

    @classmethod
    def with_id(cls, job_id: object) -> Self:
        """Return the error for this id."""
        key = str(job_id)
        details = {"job_id": key, "resource_type": "job", "resource_id": key}
        return cls("There is no job with this id.", details=details)


class DuplicateJob(OJSError):
    """The id is taken, or a unique policy rejects the job; details: existing_job_id."""

    code, canonical, number, status = "duplicate", "DUPLICATE_JOB", "OJS-3001", 409


class QueuePaused(OJSError):
    """The queue is draining: it accepts no jobs."""

    code, canonical, number, status = "queue_paused", "QUEUE_PAUSED", "OJS-3004", 422
    retryable = True


# OJS-4xxx: chains, groups and batches (§4.4).


class WorkflowNotFound(NotFound):
    """There is no workflow with this id."""

    canonical, number = "WORKFLOW_NOT_FOUND", "OJS-4000"


class DependencyFailed(OJSError):
    """A job that this job depends on failed."""

    code, number, status = "DEPENDENCY_FAILED", "OJS-4003", 422


class CyclicDependency(OJSError):
    """The definition of the workflow has a cycle."""

    code, number, status = "CYCLIC_DEPENDENCY", "OJS-4004", 400


# OJS-5xxx: authentication and permissions (§4.5).


class Unauthenticated(OJSError):
    """The credentials are missing or wrong."""

    code = canonical = "UNAUTHENTICATED"
    number, status = "OJS-5000", 401


class PermissionDenied(OJSError):
    """The caller is authenticated and lacks the permission."""

    code = canonical = "PERMISSION_DENIED"
    number, status = "OJS-5001", 403


class TokenExpired(Unauthenticated):
    """The credentials have expired."""

    code = canonical = "TOKEN_EXPIRED"
    number = "OJS-5002"


# OJS-6xxx: the caller must slow down (§4.6).


class RateLimited(OJSError):
    """The caller sends too many requests."""

    code, canonical, number, status = "rate_limited", "RATE_LIMITED", "OJS-6000", 429
    retryable = True


class QueueFull(OJSError):
    """The queue is at its bound (backpressure §4); details: queue, depth, bound, strategy."""

    code = canonical = "QUEUE_FULL"
    number, status, retryable = "OJS-6001", 429, True

    #: The jobs would not even fit into an empty queue, so waiting does not help.
    can_never_fit: bool = False
    #: The jobs and bytes that did not fit.
    needs: tuple[int, int] = (1, 0)
    #: It is not known whether the queue is full, because open transactions hold its lock.
    is_busy: bool = False
    #: The part of the queue that is full while other jobs have room: its kind, and its id. None
    #: means that the queue itself is full.
    part: tuple[str, str] | None = None
    #: An enqueue that waits calls this with the error, to ask whether there is room by now. None
    #: means that waiting does not help.
    has_room: Callable[[Self], bool] | None = None

    @classmethod
    def at(
        cls,
        queue: str,
        *,
        depth: int,
        bound: int,
        strategy: str,
        busy: bool = False,
        part: tuple[str, str] | None = None,
    ) -> Self:
        """Return the error of a queue that holds `depth` of `bound`, in jobs or in bytes.

        `busy` says that open transactions may fill the queue, and did not end in time. With `part`,
        depth and bound are about this part of the queue.
        """
        what = f"queue {queue}" if part is None else f"queue {queue} for {' '.join(part)}"
        message = f"{what} is full: {depth} of {bound}"
        if busy:
            message = f"{what} may be full: {depth} of {bound}, and transactions are open"
        error = cls(message)
        error.is_busy, error.part = busy, part
        error.details |= {"queue": queue, "depth": depth, "bound": bound, "strategy": strategy}
        error.details |= error.part_details
        return error

    @property
    def part_details(self) -> dict[str, str]:
        """The member of details and events that names the part of the queue."""
        return {} if self.part is None else {f"{self.part[0]}_id": self.part[1]}

    @property
    def queue(self) -> str:
        return str(self.details["queue"])

    @property
    def depth(self) -> int:
        return int(self.details["depth"])

    @property
    def bound(self) -> int:
        return int(self.details["bound"])

    @property
    def retry_after(self) -> int:
        """Seconds after which another try makes sense."""
        return int(self.details.get("retry_after", RETRY_AFTER))


# OJS-7xxx: optional parts of the specification (§4.7).


class UnsupportedFeature(OJSError):
    """The request needs a feature or a version that this server does not support."""

    code, canonical, number, status = "unsupported", "UNSUPPORTED_FEATURE", "OJS-7000", 422


class UniqueKeyInvalid(InvalidRequest):
    """A field of `unique` is ill-formed."""

    canonical, number = None, "OJS-7002"

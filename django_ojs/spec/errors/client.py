"""OJS-1xxx: the request is wrong, or never reached the server (error-catalog §4.1)."""

from django_ojs.spec.errors.base import OJSError


class InvalidPayload(OJSError):
    """The body is not the strict JSON that every database and every language can carry."""

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
    """`args` holds something JSON cannot carry."""

    canonical, number = "INVALID_ARGS", "OJS-1003"


class InvalidMetadata(InvalidRequest):
    """`meta` is not an object, or holds something JSON cannot carry."""

    canonical, number = "INVALID_METADATA", "OJS-1004"


class Conflict(OJSError):
    """The state machine does not allow the transition.

    Details: job_id, current_state, expected_state.
    """

    code, canonical, number, status = "conflict", "INVALID_STATE_TRANSITION", "OJS-1005", 409


InvalidStateTransition = Conflict


class ClaimLost(Conflict):
    """The job is active under another claim: this worker may no longer change it."""


class InvalidRetryPolicy(InvalidRequest):
    """A field of `retry` breaks a rule of ojs-retry §11."""

    canonical, number, status = "INVALID_RETRY_POLICY", "OJS-1006", 422
    type = "validation_error"


class InvalidCronExpression(InvalidRequest):
    """The cron expression cannot be parsed."""

    canonical, number = "INVALID_CRON_EXPRESSION", "OJS-1007"


class SchemaValidationFailed(OJSError):
    """`args` do not conform to the schema that the job names."""

    # http-binding §16.3 has 400, the catalogue 422: the binding comes first.
    code, canonical, number, status = (
        "schema_validation",
        "SCHEMA_VALIDATION_FAILED",
        "OJS-1008",
        400,
    )


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


class RequestTimeout(OJSError):
    """The server did not answer in time."""

    code, number, retryable = "REQUEST_TIMEOUT", "OJS-1012", True


class SerializationError(OJSError):
    """A request could not be written, or an answer not be read."""

    code, number = "SERIALIZATION_ERROR", "OJS-1013"


class QueueNameTooLong(InvalidQueue):
    """`queue` is over its limit in bytes."""

    code = canonical = "QUEUE_NAME_TOO_LONG"
    number, type = "OJS-1014", "QueueNameTooLong"


class JobTypeTooLong(InvalidJobType):
    """`type` is over its limit in bytes."""

    code = canonical = "JOB_TYPE_TOO_LONG"
    number, type = "OJS-1015", "JobTypeTooLong"


class ChecksumMismatch(OJSError):
    """An external payload is not what its reference says (payload-limits: 422)."""

    code = canonical = "CHECKSUM_MISMATCH"
    number, status, type = "OJS-1016", 422, "PayloadChecksumMismatch"
    #: What a job that fails of it says (§5.4), and that another attempt would end the same way.
    ojs_type = "PayloadChecksumMismatch"
    ojs_retryable = False


class PayloadRefused(OJSError):
    """A reference leads where this site does not go, or to what a handler cannot get."""

    code, ojs_retryable = "PAYLOAD_REFUSED", False


class PayloadUnavailable(OJSError):
    """What a reference leads to cannot be had now; the retry policy decides."""

    code, retryable = "PAYLOAD_UNAVAILABLE", True


class UnsupportedCompression(OJSError):
    """The Content-Encoding is not one we read."""

    code = canonical = "UNSUPPORTED_COMPRESSION"
    number, status, type = "OJS-1017", 415, "UnsupportedCompression"


class JobTypeNotAllowed(OJSError):
    """The job type is not in the allowlist. The catalogue counts this under OJS-1001."""

    code, number, status = "JOB_TYPE_NOT_ALLOWED", "OJS-1001", 422


class WrongDatabase(OJSError):
    """A job was enqueued inside an `atomic()` of another database and would not commit with it."""

    code = "WRONG_DATABASE"

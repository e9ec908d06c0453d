"""Every error, one class for each entry of the catalogue (error-catalog §4).

Where the documents disagree, the wire contract of this package decides; docs/reference lists the
decisions.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from django_ojs.spec.errors.access import (
    PermissionDenied,
    TenantAccessDenied,
    TokenExpired,
    Unauthenticated,
)
from django_ojs.spec.errors.base import (
    OJSError,
)
from django_ojs.spec.errors.client import (
    ChecksumMismatch,
    ClaimLost,
    Conflict,
    ConnectionError,
    InvalidArgs,
    InvalidCronExpression,
    InvalidJobType,
    InvalidMetadata,
    InvalidPayload,
    InvalidQueue,
    InvalidRequest,
    InvalidRetryPolicy,
    InvalidStateTransition,
    JobTypeNotAllowed,
    JobTypeTooLong,
    MetadataTooLarge,
    PayloadRefused,
    PayloadTooLarge,
    PayloadUnavailable,
    QueueNameTooLong,
    RequestTimeout,
    SchemaValidationFailed,
    SerializationError,
    UnsupportedCompression,
    WrongDatabase,
)
from django_ojs.spec.errors.extension import (
    CronScheduleConflict,
    ExtensionNotSupported,
    MiddlewareError,
    MiddlewareTimeout,
    UniqueKeyInvalid,
    Unsupported,
    UnsupportedFeature,
)
from django_ojs.spec.errors.lifecycle import (
    DuplicateJob,
    HandlerError,
    HandlerPanic,
    HandlerTimeout,
    JobAlreadyCancelled,
    JobAlreadyCompleted,
    JobCancelled,
    JobNotFound,
    NoHandlerRegistered,
    NonRetryableError,
    NotFound,
    QueuePaused,
)
from django_ojs.spec.errors.limits import (
    BackpressureApplied,
    ConcurrencyLimited,
    QueueFull,
    RateLimited,
)
from django_ojs.spec.errors.server import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    InternalServerError,
    ReplicationLag,
)
from django_ojs.spec.errors.workflow import (
    BatchCallbackFailed,
    ChainStepFailed,
    CyclicDependency,
    DependencyFailed,
    GroupTimeout,
    WorkflowCancelled,
    WorkflowNotFound,
)

_ENTRIES: Final[tuple[type[OJSError], ...]] = (
    InvalidPayload,
    InvalidJobType,
    InvalidQueue,
    InvalidArgs,
    InvalidMetadata,
    Conflict,
    InvalidRetryPolicy,
    InvalidCronExpression,
    SchemaValidationFailed,
    PayloadTooLarge,
    MetadataTooLarge,
    ConnectionError,
    RequestTimeout,
    SerializationError,
    QueueNameTooLong,
    JobTypeTooLong,
    ChecksumMismatch,
    UnsupportedCompression,
    BackendError,
    BackendUnavailable,
    BackendTimeout,
    ReplicationLag,
    InternalServerError,
    JobNotFound,
    DuplicateJob,
    JobAlreadyCompleted,
    JobAlreadyCancelled,
    QueuePaused,
    HandlerError,
    HandlerTimeout,
    HandlerPanic,
    NonRetryableError,
    JobCancelled,
    NoHandlerRegistered,
    WorkflowNotFound,
    ChainStepFailed,
    GroupTimeout,
    DependencyFailed,
    CyclicDependency,
    BatchCallbackFailed,
    WorkflowCancelled,
    Unauthenticated,
    PermissionDenied,
    TokenExpired,
    TenantAccessDenied,
    RateLimited,
    QueueFull,
    ConcurrencyLimited,
    BackpressureApplied,
    UnsupportedFeature,
    CronScheduleConflict,
    UniqueKeyInvalid,
    MiddlewareError,
    MiddlewareTimeout,
)

#: Catalogue number ("OJS-1000") to class.
CATALOGUE: Final[Mapping[str, type[OJSError]]] = MappingProxyType(
    {entry.number: entry for entry in _ENTRIES}
)

# The general class of a wire code comes before those that narrow it: InvalidRequest before
# InvalidQueue.
_BY_CODE: Final[dict[str, type[OJSError]]] = {}
_CLASSES: Final[tuple[type[OJSError], ...]] = (
    InvalidRequest,
    *_ENTRIES,
    JobTypeNotAllowed,
    ExtensionNotSupported,
    WrongDatabase,
    PayloadRefused,
    PayloadUnavailable,
)
for _entry in _CLASSES:
    for _name in (_entry.code, _entry.canonical):
        if _name is not None:
            _BY_CODE.setdefault(_name, _entry)


def by_code(code: str) -> type[OJSError]:
    """Return the class for a wire code, a canonical code or a catalogue number. Raises KeyError."""
    return CATALOGUE.get(code) or _BY_CODE[code]


__all__ = [
    "CATALOGUE",
    "BackendError",
    "BackendTimeout",
    "BackendUnavailable",
    "BackpressureApplied",
    "BatchCallbackFailed",
    "ChainStepFailed",
    "ChecksumMismatch",
    "ClaimLost",
    "ConcurrencyLimited",
    "Conflict",
    "ConnectionError",
    "CronScheduleConflict",
    "CyclicDependency",
    "DependencyFailed",
    "DuplicateJob",
    "ExtensionNotSupported",
    "GroupTimeout",
    "HandlerError",
    "HandlerPanic",
    "HandlerTimeout",
    "InternalServerError",
    "InvalidArgs",
    "InvalidCronExpression",
    "InvalidJobType",
    "InvalidMetadata",
    "InvalidPayload",
    "InvalidQueue",
    "InvalidRequest",
    "InvalidRetryPolicy",
    "InvalidStateTransition",
    "JobAlreadyCancelled",
    "JobAlreadyCompleted",
    "JobCancelled",
    "JobNotFound",
    "JobTypeNotAllowed",
    "JobTypeTooLong",
    "MetadataTooLarge",
    "MiddlewareError",
    "MiddlewareTimeout",
    "NoHandlerRegistered",
    "NonRetryableError",
    "NotFound",
    "OJSError",
    "PayloadRefused",
    "PayloadTooLarge",
    "PayloadUnavailable",
    "PermissionDenied",
    "QueueFull",
    "QueueNameTooLong",
    "QueuePaused",
    "RateLimited",
    "ReplicationLag",
    "RequestTimeout",
    "SchemaValidationFailed",
    "SerializationError",
    "TenantAccessDenied",
    "TokenExpired",
    "Unauthenticated",
    "UniqueKeyInvalid",
    "Unsupported",
    "UnsupportedCompression",
    "UnsupportedFeature",
    "WorkflowCancelled",
    "WorkflowNotFound",
    "WrongDatabase",
    "by_code",
]

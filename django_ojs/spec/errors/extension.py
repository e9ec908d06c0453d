"""OJS-7xxx: optional parts of the specification (error-catalog §4.7)."""

from django_ojs.spec.errors.base import OJSError
from django_ojs.spec.errors.client import InvalidRequest


class UnsupportedFeature(OJSError):
    """The request needs something, or a version, that this server does not have."""

    code, canonical, number, status = "unsupported", "UNSUPPORTED_FEATURE", "OJS-7000", 422


Unsupported = UnsupportedFeature


class ExtensionNotSupported(UnsupportedFeature):
    """The request needs an extension that the manifest does not list."""

    code = canonical = "EXTENSION_NOT_SUPPORTED"


class CronScheduleConflict(OJSError):
    """There is another schedule of this name."""

    code, number, status = "CRON_SCHEDULE_CONFLICT", "OJS-7001", 409


class UniqueKeyInvalid(InvalidRequest):
    """A field of `unique` is ill-formed."""

    canonical, number = None, "OJS-7002"


class MiddlewareError(OJSError):
    """A middleware raised."""

    code, number, status, retryable = "MIDDLEWARE_ERROR", "OJS-7003", 500, True


class MiddlewareTimeout(OJSError):
    """A middleware took too long."""

    code, number, status, retryable = "MIDDLEWARE_TIMEOUT", "OJS-7004", 504, True

"""OJS-2xxx: the backend is at fault, and a later attempt may work (error-catalog §4.2)."""

from django_ojs.spec.errors.base import OJSError


class BackendError(OJSError):
    """The database or the transport failed."""

    code, canonical, number, status = "backend_error", "BACKEND_ERROR", "OJS-2000", 500
    retryable = True


class BackendUnavailable(BackendError):
    """The database cannot be reached."""

    canonical, number, status = "BACKEND_UNAVAILABLE", "OJS-2001", 503


class BackendTimeout(BackendError):
    """The database took too long."""

    code = canonical = "BACKEND_TIMEOUT"
    number, status = "OJS-2002", 504


class ReplicationLag(BackendError):
    """A replica has not seen the write yet."""

    code = canonical = "REPLICATION_LAG"
    number = "OJS-2003"


class InternalServerError(BackendError):
    """Anything else that went wrong on the server."""

    canonical, number = "INTERNAL_SERVER_ERROR", "OJS-2004"

"""OJS-5xxx: who asks, and what they may do (error-catalog §4.5)."""

from django_ojs.spec.errors.base import OJSError


class Unauthenticated(OJSError):
    """There are no credentials, or wrong ones."""

    code = canonical = "UNAUTHENTICATED"
    number, status = "OJS-5000", 401


class PermissionDenied(OJSError):
    """The caller is known and lacks the permission."""

    code = canonical = "PERMISSION_DENIED"
    number, status = "OJS-5001", 403


class TokenExpired(Unauthenticated):
    """The credentials are no longer valid."""

    code = canonical = "TOKEN_EXPIRED"
    number = "OJS-5002"


class TenantAccessDenied(PermissionDenied):
    """The resource belongs to a tenant the caller has no access to."""

    code = canonical = "TENANT_ACCESS_DENIED"
    number = "OJS-5003"

"""Denied requests in the audit log (ojs-security §11.1)."""

from typing import Any

from django_ojs.http.access import access_of
from django_ojs.operations.access import api_keys, audit
from django_ojs.spec.errors import OJSError

UNKNOWN = "unknown"


def record_denial(request: Any, error: OJSError, request_id: str) -> None:
    """Record a 401 or a 403 with the caller, its address, the route and the reason."""
    authenticated = error.status != 401
    match = getattr(request, "resolver_match", None)
    detail = {
        "reason": error.code,
        # The route and not the path, which may contain anything that a client sent as an id.
        "endpoint": f"{request.method} {match.route if match else ''}".strip(),
    }
    token = str(request.META.get("HTTP_AUTHORIZATION", "")).rpartition(" ")[2]
    prefix = None if authenticated else api_keys.prefix_of(token)
    if prefix is not None:
        detail["key_prefix"] = prefix
    audit.note(
        "access.denied" if authenticated else "auth.failure",
        principal=_principal(request) if authenticated else UNKNOWN,
        outcome="failure",
        source_ip=request.META.get("REMOTE_ADDR", ""),
        correlation_id=request_id,
        **detail,
    )


def _principal(request: Any) -> str:
    # A CSRF failure, for one, is raised during authentication: to authenticate again would fail.
    if getattr(request, "_authenticator", None) is None:
        return UNKNOWN
    access = access_of(request)
    return UNKNOWN if access is None else access.name

"""Refusals of the API, for the audit trail (ojs-security §11.1)."""

from typing import Any

from django_ojs.http.access import access_of
from django_ojs.operations.access import api_keys, audit
from django_ojs.spec.errors import OJSError

NOBODY = "unknown"


def refused(request: Any, error: OJSError, request_id: str) -> None:
    """Note a 401 or a 403: who, from where, on which route, and why."""
    known = error.status != 401
    match = getattr(request, "resolver_match", None)
    detail = {
        "reason": error.code,
        # The route, not the path: an id, or whatever was sent in its place, is nobody's business.
        "endpoint": f"{request.method} {match.route if match else ''}".strip(),
    }
    prefix = None if known else api_keys.prefix_of(_token(request))
    if prefix is not None:
        detail["key_prefix"] = prefix
    audit.note(
        "access.denied" if known else "auth.failure",
        principal=_name(request) if known else NOBODY,
        outcome="failure",
        source_ip=request.META.get("REMOTE_ADDR", ""),
        correlation_id=request_id,
        **detail,
    )


def _token(request: Any) -> str:
    return str(request.META.get("HTTP_AUTHORIZATION", "")).rpartition(" ")[2]


def _name(request: Any) -> str:
    # A CSRF failure, say, comes before anybody is known; asking again would fail again.
    if getattr(request, "_authenticator", None) is None:
        return NOBODY
    access = access_of(request)
    return NOBODY if access is None else access.name

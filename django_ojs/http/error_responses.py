"""Error responses: the one place where exceptions become statuses and codes (http-binding §16)."""

import logging
import re
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from rest_framework import exceptions as drf

from django_ojs import hooks
from django_ojs.http.access import access_of, unauthenticated
from django_ojs.http.authentication import CHALLENGE
from django_ojs.http.headers import request_id
from django_ojs.http.responses import json_response
from django_ojs.operations.access import api_keys, operator
from django_ojs.spec.errors import (
    BackendError,
    BackendUnavailable,
    InvalidPayload,
    InvalidRequest,
    NotFound,
    OJSError,
    PermissionDenied,
    QueueFull,
    RateLimited,
    RowLocked,
)
from django_ojs.storage import database, lock_holders

DOCS: Final = "https://openjobspec.org/docs"
#: A 404 repeats a path, or an id in it, only if it has at most this many characters.
MAX_RESOURCE_ID: Final = 255
#: Seconds in Retry-After when the error has no better estimate.
RETRY_AFTER: Final = 1
#: The caller's name in the log if its credentials are not valid.
_UNKNOWN: Final = "unknown"
_IS_PLAIN: Final = re.compile(r"[\w./:@+ -]+").fullmatch

logger = logging.getLogger("django_ojs.http")


def error_response(request: HttpRequest, exception: Exception) -> HttpResponse:
    headers: dict[str, str] = {}
    error = _translate(exception, headers)
    if isinstance(error, NotFound):
        _name_resource(error, request)
    status = error.status or 500
    if isinstance(exception, drf.MethodNotAllowed):
        status = 405
    if isinstance(exception, RowLocked):
        _log_locked(request, exception)
    elif status >= 500:
        _report(request, exception, status)
    for found in hooks.call_served(hooks.registry.error_headers, error):
        headers |= found
    if status in (429, 503) and error.retryable:
        wait = error.details.get("retry_after_seconds", error.details.get("retry_after"))
        headers.setdefault("Retry-After", str(max(RETRY_AFTER, _whole(wait))))
    if status == 415:
        # RFC 7694 asks for the accepted codings.
        headers["Accept-Encoding"] = ", ".join(error.details.get("supported", []))
    if status in (401, 403):
        _log_denial(request, error)
    if status == 401:
        headers.setdefault("WWW-Authenticate", CHALLENGE)
    return json_response({"error": render(error, request_id(request))}, status, headers)


def render(error: OJSError, request: str) -> dict[str, Any]:
    """Return the `error` object of a response (http-binding §16.1)."""
    out: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "details": error.details,
        "request_id": request,
    }
    if error.type is not None:
        out["type"] = error.type
    if isinstance(error, QueueFull):
        # ojs-backpressure §7.1 has these members here, and ojs-errors has them in `details`.
        out |= {name: error.details[name] for name in ("queue", "depth", "bound", "strategy")}
    hint = error.hint
    if error.status == 404:
        hint = hint or "Check the id or the path; the manifest lists what is served here."
        out["docs_url"] = f"{DOCS}/errors"
    if hint is not None:
        out["hint"] = hint
    return out


def _translate(exception: Exception, headers: dict[str, str]) -> OJSError:
    match exception:
        case OJSError() if exception.status is not None:
            return exception
        case drf.MethodNotAllowed():
            return InvalidRequest("This path does not support this method; see the Allow header.")
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            return unauthenticated()
        case drf.PermissionDenied() | DjangoPermissionDenied():
            return PermissionDenied("You may not do this.")
        case drf.NotFound() | Http404():
            return NotFound("There is nothing under this path.")
        case drf.Throttled():
            wait = max(RETRY_AFTER, _whole(getattr(exception, "wait", None)))
            headers["Retry-After"] = str(wait)
            return RateLimited(
                "The caller has sent too many requests.",
                details={"retry_after_seconds": wait},
                hint="Send the request again after the seconds of Retry-After.",
            )
        case drf.ParseError() | UnreadablePostError():
            return InvalidPayload("The body cannot be read.")
        case drf.APIException() if exception.status_code < 500:
            return InvalidRequest("The request cannot be read.")
        case SuspiciousOperation():
            return InvalidRequest("The request cannot be read.")
        case DatabaseError() if database.has_waited_for_lock(exception):
            return BackendUnavailable("Another transaction has locked what this needs; try again.")
        case DatabaseError() | InterfaceError() if database.is_unavailable(exception):
            database.leave_if_read_only(exception)
            return BackendUnavailable("The database cannot be reached or is busy; try again.")
        case _:
            return BackendError("Something went wrong here; it has been logged.")


def _name_resource(error: NotFound, request: HttpRequest) -> None:
    # Every 404 says what is missing (http-binding §9.3). Text of the client is repeated only where
    # it is a plain name or path.
    resource = error.details.setdefault("resource_type", "path")
    if len(str(error.details.get("resource_id", ""))) > MAX_RESOURCE_ID:
        del error.details["resource_id"]
    values = getattr(request.resolver_match, "kwargs", {})
    named = request.path if resource == "path" else next(iter(values.values()), "")
    if len(named) <= MAX_RESOURCE_ID and _IS_PLAIN(named):
        error.details.setdefault("resource_id", named)


def _log_locked(request: HttpRequest, exception: RowLocked) -> None:
    # The server is not at fault, but a traceback or a signal to error trackers would suggest it.
    key = exception.details.get("job_id")
    where = "" if key is None else f" {key}: {lock_holders.holder_of([UUID(key)])}"
    logger.warning(
        "%s %s returned 503 (request %s): %s%s",
        *(request.method, request.path, request_id(request), exception.message, where),
    )


def _report(request: HttpRequest, exception: Exception, status: int) -> None:
    if database.has_waited_for_lock(exception):
        # This request is not at fault. An operator has to find the holder of the lock, and a
        # traceback would not help.
        logger.warning(
            "%s %s returned %d, because another transaction holds a lock (request %s)",
            request.method,
            request.path,
            status,
            request_id(request),
        )
        return
    # The message leaves out the text of the exception, which may contain values. The traceback is
    # logged, as for any 500 of Django.
    logger.error(
        "%s %s returned %d (request %s)",
        request.method,
        request.path,
        status,
        request_id(request),
        exc_info=exception,
    )
    got_request_exception.send(sender=None, request=request)


def _log_denial(request: Any, error: OJSError) -> None:
    """Log a 401 or a 403 with the caller, its address, the route and the reason (security §11.1).

    Neither secrets nor parts of the request are logged.
    """
    authenticated = error.status != 401
    event_type = "access.denied" if authenticated else "auth.failure"
    principal = operator.printable(_principal(request)) if authenticated else _UNKNOWN
    match = getattr(request, "resolver_match", None)
    detail = {
        "reason": error.code,
        # The log has the route and not the path, which may contain anything that a client sent as
        # an id.
        "endpoint": f"{request.method} {match.route if match else ''}".strip(),
    }
    token = str(request.META.get("HTTP_AUTHORIZATION", "")).rpartition(" ")[2]
    prefix = None if authenticated else api_keys.prefix_of(token)
    if prefix is not None:
        detail["key_prefix"] = prefix
    extra = operator.log_fields(
        event_type,
        principal=principal,
        source_ip=request.META.get("REMOTE_ADDR", ""),
        correlation_id=request_id(request),
        outcome="failure",
        detail=detail,
    )
    logger.warning("%s: %s (%s)", event_type, error.code, principal, extra=extra)


def _principal(request: Any) -> str:
    access = access_of(request)
    return _UNKNOWN if access is None else access.name


def _whole(seconds: object) -> int:
    # The time is rounded up, because a client that retries a moment too early is rejected again.
    return -int(-seconds // 1) if isinstance(seconds, int | float) else 0

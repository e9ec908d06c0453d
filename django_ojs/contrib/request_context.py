"""Store the context of a request in the `meta` of its jobs, and restore it around their handlers.

See ojs-framework-adapters §7.1.

`RequestContextMiddleware` goes into Django's `MIDDLEWARE` (after authentication),
`add_request_context` into `OJS["ENQUEUE_MIDDLEWARE"]`, and `restore_locale` into
`OJS["EXECUTION_MIDDLEWARE"]` for handlers that speak the user's language.
"""

import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.functional import LazyObject, empty

from django_ojs.middleware import EnqueueNext
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope

_request: ContextVar[HttpRequest | None] = ContextVar("django_ojs_request", default=None)

#: W3C Trace Context, version 00: any other value of the header is invalid and ignored.
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

Response = HttpResponseBase | Awaitable[HttpResponseBase]


class RequestContextMiddleware:
    """Keep the current request in a context variable, for `add_request_context`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Response]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Response:
        if self.is_async:
            return self._respond(request)
        token = _request.set(request)
        try:
            return self.get_response(request)
        finally:
            _request.reset(token)

    async def _respond(self, request: HttpRequest) -> HttpResponseBase:
        token = _request.set(request)
        try:
            # This is a coroutine, because __call__ comes here only when `get_response` is async.
            return await cast("Awaitable[HttpResponseBase]", self.get_response(request))
        finally:
            _request.reset(token)


def add_request_context(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    """Add user id, request id, trace context and locale to `meta`.

    Values that the caller has set stay.
    """
    request = _request.get()
    if request is not None:
        envelope.meta = {**_context(request), **envelope.meta}
    return proceed(envelope)


def restore_locale(context: Any, proceed: Callable[[], Any]) -> Any:
    """Run the handler in the language of the request that enqueued the job."""
    locale = context.job.meta.get("ojs.context.locale")
    if not isinstance(locale, str) or not translation.check_for_language(locale):
        return proceed()
    if context.is_async:
        return _in_language(locale, proceed)
    with translation.override(locale):
        return proceed()


async def _in_language(locale: str, proceed: Callable[[], Any]) -> Any:
    with translation.override(locale):
        return await proceed()


def _context(request: HttpRequest) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ojs.context.request_id": _request_id(request),
        "ojs.context.locale": translation.get_language(),
    }
    user = _loaded_user(request)
    if user is not None and user.is_authenticated:
        found["ojs.context.user_id"] = str(user.pk)
    trace = request.headers.get("traceparent", "")
    if _TRACEPARENT.fullmatch(trace):
        found["traceparent"] = trace
    return {key: value for key, value in found.items() if value is not None}


def _loaded_user(request: HttpRequest) -> Any:
    # Only a user that is loaded already is read: an enqueue must not cost a query, and an async
    # view cannot make one here.
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject) and user._wrapped is empty:
        # `await request.auser()` keeps the user here.
        return getattr(request, "_acached_user", None)
    return user


def _request_id(request: HttpRequest) -> str:
    given = request.headers.get("X-Request-ID", "")
    if _REQUEST_ID.fullmatch(given):
        return given
    if not hasattr(request, "_ojs_request_id"):
        # All jobs of the request get the same request id.
        request._ojs_request_id = f"req_{ids.uuid7()}"  # type: ignore[attr-defined]  # ours, on the request it belongs to
    return request._ojs_request_id  # type: ignore[attr-defined,no-any-return]  # set above

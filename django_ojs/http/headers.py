"""The headers of every response (http-binding §3.2, §6.5, §19).

The headers of a request are read from `META`, here and wherever a body is read, because making
`request.headers` takes longer than all uses of it.
"""

import re
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from django_ojs.http import throttling
from django_ojs.spec import ids
from django_ojs.spec.errors import UnsupportedFeature

VERSION: Final = "1.0"
#: The values of OJS-Version that mean this version.
VERSIONS: Final = frozenset({"1", VERSION, "1.0.0", "1.0.0-rc.1"})

# A client chooses the id, and headers, logs and bodies repeat it. So it must be visible ASCII of
# bounded length.
_REQUEST_ID: Final = re.compile(r"[!-~]{1,200}").fullmatch


def request_id(request: HttpRequest) -> str:
    """Return the client's id of the request, or a generated one; the same in each call."""
    known: str | None = getattr(request, "ojs_request_id", None)
    if known is None:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        known = given if _REQUEST_ID(given) else f"req_{ids.uuid7()}"
        request.ojs_request_id = known  # type: ignore[attr-defined]  # kept for the next call
    return known


def check_version(request: HttpRequest) -> None:
    """Reject a request for another version of the specification. Raises UnsupportedFeature."""
    version = request.META.get("HTTP_OJS_VERSION")
    if version is not None and version.strip() not in VERSIONS:
        raise UnsupportedFeature(
            f"OJS-Version must be {VERSION}, or left out", details={"supported": [VERSION]}
        )


def add_standard_headers(request: HttpRequest, response: HttpResponseBase) -> None:
    response["OJS-Version"] = VERSION
    response["X-Request-Id"] = request_id(request)
    # No response may be repeated for a later request, which wants the present state. In its early
    # versions, the cache of Django 5.2 for a whole site knows `private` only.
    directive = response.get("Cache-Control", "no-store")
    response["Cache-Control"] = f"{directive}, private"
    throttling.add_headers(request, response)


def remove_body(response: HttpResponseBase) -> None:
    """Turn the response to GET into the response to HEAD (RFC 9110 §9.3.2).

    Servers would remove the body as well, but gunicorn then logs a warning for each health check.
    """
    content: bytes = getattr(response, "content", b"")
    response["Content-Length"] = str(len(content))
    response.content = b""  # type: ignore[attr-defined]  # every response here has content

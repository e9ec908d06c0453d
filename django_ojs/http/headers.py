"""The headers of every response (http-binding §3.2, §6.5, §19)."""

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

#: Of a response that was read from the replica: how many seconds that is behind.
REPLICA_LAG: Final = "X-OJS-Replica-Lag"

# A client chooses it, and it goes into headers, logs and bodies: visible ASCII of bounded length.
_REQUEST_ID: Final = re.compile(r"[!-~]{1,200}").fullmatch


def request_id(request: HttpRequest) -> str:
    """Return the client's id of the request, or a generated one; the same in each call."""
    known: str | None = getattr(request, "ojs_request_id", None)
    if known is None:
        given = request.headers.get("X-Request-Id", "")
        known = given if _REQUEST_ID(given) else f"req_{ids.uuid7()}"
        request.ojs_request_id = known  # type: ignore[attr-defined]  # ours, for the next call
    return known


def check_version(request: HttpRequest) -> None:
    """Reject a request for another version of the specification. Raises UnsupportedFeature."""
    version = request.headers.get("OJS-Version")
    if version is not None and version.strip() not in VERSIONS:
        raise UnsupportedFeature(
            f"OJS-Version must be {VERSION}, or left out", details={"supported": [VERSION]}
        )


def add_standard_headers(request: HttpRequest, response: HttpResponseBase) -> None:
    response["OJS-Version"] = VERSION
    response["X-Request-Id"] = request_id(request)
    throttling.add_headers(request, response)
    source = getattr(request, "ojs_source", None)
    if source is not None and source.lag is not None:
        response[REPLICA_LAG] = f"{source.lag.total_seconds():.3f}"


def remove_body(response: HttpResponseBase) -> None:
    """Make the response to HEAD of the response to GET (RFC 9110 §9.3.2).

    Servers would remove the body as well, but gunicorn then logs a warning for each health check.
    """
    content: bytes = getattr(response, "content", b"")
    response["Content-Length"] = str(len(content))
    response.content = b""  # type: ignore[attr-defined]  # every response here has content

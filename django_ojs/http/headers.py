"""The headers of every answer (http-binding §3.2, §6.5, §19)."""

import re
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from django_ojs.http.renderers import MEDIA_TYPE
from django_ojs.spec import ids
from django_ojs.spec.errors import UnsupportedFeature

VERSION: Final = "1.0"
#: What a client may ask for and mean this version.
VERSIONS: Final = frozenset({"1", VERSION, "1.0.0", "1.0.0-rc.1"})

# What a client may choose goes into headers, logs and bodies: visible ASCII, and not a book.
_REQUEST_ID: Final = re.compile(r"[!-~]{1,200}").fullmatch


def request_id(request: HttpRequest) -> str:
    """Return the client's id of the request, or one made for it; the same each time."""
    known: str | None = getattr(request, "ojs_request_id", None)
    if known is None:
        given = request.headers.get("X-Request-Id", "")
        known = given if _REQUEST_ID(given) else f"req_{ids.uuid7()}"
        request.ojs_request_id = known  # type: ignore[attr-defined]  # ours, for the next question
    return known


def check_version(request: HttpRequest) -> None:
    """Reject a request for another version of the specification. Raises UnsupportedFeature."""
    asked = request.headers.get("OJS-Version")
    if asked is not None and asked.strip() not in VERSIONS:
        raise UnsupportedFeature(
            f"OJS-Version must be {VERSION}, or left out", details={"supported": [VERSION]}
        )


def stamp(request: HttpRequest, response: HttpResponseBase) -> None:
    """Put on an answer what every answer carries."""
    response["OJS-Version"] = VERSION
    response["X-Request-Id"] = request_id(request)
    response["Content-Type"] = MEDIA_TYPE


def leave_out_body(response: HttpResponseBase) -> None:
    """Answer HEAD: the headers of the answer to GET, and nothing after them (RFC 9110 §9.3.2).

    Servers would leave it out as well, and gunicorn logs a warning for each health check.
    """
    content: bytes = getattr(response, "content", b"")
    response["Content-Length"] = str(len(content))
    response.content = b""  # type: ignore[attr-defined]  # every answer here has content

"""The body of a request: strict JSON, an object, of a bounded size (http-binding §4, §6.1)."""

from typing import Any, Final

from django.http import HttpRequest, UnreadablePostError
from rest_framework.parsers import BaseParser

from django_ojs.conf import settings
from django_ojs.http import compression
from django_ojs.http.renderers import MEDIA_TYPE
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload, InvalidRequest, PayloadTooLarge

MEDIA_TYPES: Final = frozenset({MEDIA_TYPE, "application/json"})

#: More of a Content-Length need not be read to see that it is too much.
_DIGITS: Final = 19
_ENDED: Final = "the body ended before its Content-Length"
_BROKEN: Final = "the body ended before its last chunk, or its chunks are ill-formed"
_CHUNKED: Final = "the body came in chunks, which are not read here: send a Content-Length"


class OJSParser(BaseParser):
    """Names the media types of requests; bodies are read by `read_object`, which knows when one is
    needed.
    """

    media_type = MEDIA_TYPE


def read_object(request: HttpRequest, *, required: bool) -> dict[str, Any]:
    """Return the JSON object of a body; an empty one where none is required is `{}`.

    Raises InvalidPayload (empty, not JSON), InvalidRequest (another content type, no object),
    UnsupportedCompression, PayloadTooLarge.
    """
    data = _read(request)
    if not data and not required:
        return {}
    if data and request.content_type not in MEDIA_TYPES:
        raise InvalidRequest(
            "Content-Type must be application/openjobspec+json or application/json",
            details={"field": "Content-Type"},
        )
    if not data.strip():
        raise InvalidPayload("the body is empty: send a JSON object")
    value = json.loads(data, exact_integers=settings().exact_integers, max_depth=json.BODY_DEPTH)
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value


def _read(request: HttpRequest) -> bytes:
    coding = compression.coding_of(request)
    limit = settings().http_max_body_bytes
    length = _length(request)
    if length > limit:
        _refuse(length, limit)
    body = _Body(request)
    if coding is None:
        data = body.read(limit + 1)
    else:
        data = compression.decompress(coding, body.read, limit)
    if len(data) > limit:
        _refuse(len(data), limit)
    if body.taken < length:
        # What came may look complete. The client meant to say more, and did not.
        raise InvalidPayload(_ENDED)
    return data


def _length(request: HttpRequest) -> int:
    given = request.headers.get("Content-Length", "")
    if not (given.isascii() and given.isdigit()):
        return 0  # as Django reads it
    # Nobody has that much to say; int() would take its time, or refuse.
    return int(given[:_DIGITS])


class _Body:
    """The bytes of a request as they come, and how many were taken.

    Not `request.body`: Django's own limit for uploads is made for forms, and smaller than a job
    may be.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._stream = _chunks(request)
        self.taken = 0

    def read(self, size: int) -> bytes:
        data = self._read(size) if self._stream is None else self._read_chunks(size)
        self.taken += len(data)
        return data

    def _read(self, size: int) -> bytes:
        try:
            return self._request.read(size)
        except UnreadablePostError:
            raise InvalidPayload(_ENDED) from None

    def _read_chunks(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except Exception:
            # Every server has errors of its own for chunks that cannot be read.
            raise InvalidPayload(_BROKEN) from None
        return data


def _chunks(request: HttpRequest) -> Any:
    """Return the stream of a body in chunks (RFC 9112 §7.1), None for one with a Content-Length.

    Who sends what it is still writing, or packing, knows no length: Go and Node then send chunks.
    Under WSGI Django takes a body without a length for an empty one. Whether the server ends the
    stream where the body ends is for the server to say. Raises InvalidPayload where it does not.
    """
    coding = request.headers.get("Transfer-Encoding", "").lower().rpartition(",")[2].strip()
    environ = getattr(request, "environ", None)
    if coding != "chunked" or environ is None or "Content-Length" in request.headers:
        return None
    if not environ.get("wsgi.input_terminated"):
        raise InvalidPayload(_CHUNKED)
    return environ["wsgi.input"]


def _refuse(actual: int, limit: int) -> None:
    raise PayloadTooLarge(
        f"the body must be at most {limit} bytes",
        details={
            "field": "body",
            "actual_bytes": actual,
            "max_bytes": limit,
            "size_bytes": actual,
            "max_size_bytes": limit,
        },
    )

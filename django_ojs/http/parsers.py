"""The body of a request: strict JSON, an object, of a bounded size (http-binding §4, §6.1)."""

import re
import time
from typing import Any, Final

from django.http import HttpRequest, UnreadablePostError

from django_ojs.conf import settings
from django_ojs.http import compression
from django_ojs.http.responses import MEDIA_TYPE
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload, InvalidRequest, PayloadTooLarge, size_details

MEDIA_TYPES: Final = frozenset({MEDIA_TYPE, "application/json"})

#: The most arrays, objects and members of objects in a body. A job of a mebibyte, which each server
#: accepts (ojs-payload-limits §3), cannot have more.
MAX_PARTS: Final = 2**20
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

#: Digits of a Content-Length that are read: a number of more digits is too large anyway.
_MAX_DIGITS: Final = 19
#: How many bytes of the body of a rejected request are read, and for how many seconds.
_DISCARD_BYTES: Final = 64 * 1024 * 1024
_DISCARD_SECONDS: Final = 10.0
_DISCARD_CHUNK: Final = 64 * 1024
_INCOMPLETE: Final = "the body ended before its Content-Length"
_BAD_CHUNKS: Final = "the body ended before its last chunk, or its chunks are ill-formed"
_NO_CHUNKS: Final = "the body came in chunks, which are not read here: send a Content-Length"


def read_object(request: HttpRequest, *, required: bool) -> tuple[dict[str, Any], int]:
    """Return the JSON object of a body, and its size in bytes; `{}` if an optional body is empty.

    Raises InvalidPayload (empty, not JSON), InvalidRequest (another content type, no object),
    UnsupportedCompression, PayloadTooLarge.
    """
    data = _read(request)
    if not data and not required:
        return {}, 0
    if data and request.content_type not in MEDIA_TYPES:
        raise InvalidRequest.of(
            "Content-Type", "must be application/openjobspec+json or application/json"
        )
    if not data.strip():
        raise InvalidPayload("the body is empty: send a JSON object")
    _check_parts(data)
    value = json.loads(data, exact_integers=settings().exact_integers, max_depth=json.BODY_DEPTH)
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value, len(data)


def _check_parts(data: bytes) -> None:
    """Reject a body whose values would take many times its own size in memory.

    Each part takes some 64 to 230 bytes in memory, but may have only two in the body, such as `[]`.
    """
    if _parts(data) <= MAX_PARTS or _parts(_STRING.sub(b"", data)) <= MAX_PARTS:
        return
    raise InvalidPayload(
        f"the body must have at most {MAX_PARTS} arrays, objects and members of objects",
        hint="Keep large data elsewhere, and send a reference to it.",
    )


def _parts(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{") + data.count(b":")


def discard_rest(request: HttpRequest) -> None:
    """Read what is left of the body of a request that is rejected, up to a bound.

    Most clients send a body to its end before they read the response. If the server closes the
    connection earlier, they get an error of the connection and never see the response.
    """
    end, left = time.monotonic() + _DISCARD_SECONDS, _DISCARD_BYTES
    try:
        body = _Body(request)
        while left > 0 and time.monotonic() < end:
            data = body.read(_DISCARD_CHUNK)
            if not data:
                return
            left -= len(data)
    except Exception:
        # The body ended early, or is malformed: there is nothing more to discard.
        return


def _read(request: HttpRequest) -> bytes:
    coding = compression.coding_of(request)
    limit = settings().http_max_body_bytes
    length = _length(request)
    if length > limit:
        raise _too_large(length, limit)
    body = _Body(request)
    if coding is None:
        data = body.read(limit + 1)
    else:
        data = compression.decompress(coding, body.read, limit)
    if len(data) > limit:
        raise _too_large(len(data), limit)
    if body.taken < length:
        # The data may still be valid JSON, but the client announced more.
        raise InvalidPayload(_INCOMPLETE)
    return data


def _length(request: HttpRequest) -> int:
    given = request.META.get("CONTENT_LENGTH", "")
    if not (given.isascii() and given.isdigit()):
        return 0  # as Django reads it
    # int() of thousands of digits is slow, or raises.
    return int(given[:_MAX_DIGITS])


class _Body:
    """The stream of a request, with the number of bytes that were read.

    `request.body` is not used, because Django's limit for uploads is meant for forms, and is
    smaller than the largest job.
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
            raise InvalidPayload(_INCOMPLETE) from None

    def _read_chunks(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except Exception:
            # Each server raises its own exception for malformed chunks.
            raise InvalidPayload(_BAD_CHUNKS) from None
        return data


def _chunks(request: HttpRequest) -> Any:
    """Return the stream of a chunked body (RFC 9112 §7.1), None for one with a Content-Length.

    Clients in Go and Node send chunks when they do not know the length in advance. Under WSGI,
    Django reads a body without a length as an empty one. Raises InvalidPayload unless the server
    declares that its stream ends with the body.
    """
    coding = request.META.get("HTTP_TRANSFER_ENCODING", "").lower().rpartition(",")[2].strip()
    environ = getattr(request, "environ", None)
    # Some servers set an empty length where the client has sent none.
    if coding != "chunked" or environ is None or request.META.get("CONTENT_LENGTH"):
        return None
    if not environ.get("wsgi.input_terminated"):
        raise InvalidPayload(_NO_CHUNKS)
    return environ["wsgi.input"]


def _too_large(actual: int, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the body must be at most {limit} bytes",
        details={"field": "body", **size_details(actual, limit)},
    )

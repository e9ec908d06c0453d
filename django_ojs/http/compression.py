"""Compressed requests and responses (payload-limits §6): gzip, and zstd where there is a library.

A request is decompressed as a stream that stops at the limit: a decompression bomb takes no more
memory, and hardly more time, than a body of the largest size.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.text import compress_string

from django_ojs.http.zstd import zstd
from django_ojs.spec.errors import InvalidPayload, UnsupportedCompression

#: Shorter responses are not worth the time of compressing them.
MINIMUM: Final = 1024

_CHUNK: Final = 64 * 1024
# Four bytes of zstd can decompress to 128 KiB, and the decompressor has no limit for its output:
# with steps of this size the limit is exceeded by 8 MiB at most.
_ZSTD_STEP: Final = 256
# The most members of gzip data, or frames of zstd data. An empty one takes as much time as a
# kilobyte of data.
_MAX_PARTS: Final = 1_000
# As in Django's GZipMiddleware: a file name of random length in the gzip header, so that the length
# of a response reveals nothing about its secrets (BREACH).
_RANDOM_BYTES: Final = 100


def supported() -> list[str]:
    return ["gzip", "zstd"] if zstd() else ["gzip"]


def coding_of(request: HttpRequest) -> str | None:
    """Return the content coding of a request's body, or None if it is not encoded.

    Raises UnsupportedCompression for an unknown coding, and for more than one.
    """
    coding: str = request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in supported():
        known = supported()
        raise UnsupportedCompression.of(
            "Content-Encoding", f"must be {' or '.join(known)}, or left out", supported=known
        )
    return coding


def decompress(coding: str, read: Callable[[int], bytes], limit: int) -> bytes:
    """Return the decompressed body, or a beginning of it that is longer than `limit`.

    `read` returns the next chunk, an empty one at the end. Raises InvalidPayload for a body that is
    malformed or incomplete.
    """
    data = bytearray()
    pieces = _gunzip if coding == "gzip" else _unzstd
    for piece in pieces(iter(lambda: read(_CHUNK), b"")):
        data += piece
        if len(data) > limit:
            break
    return bytes(data)


def compress(request: HttpRequest, response: HttpResponseBase) -> None:
    """Compress a long response with the coding that the client prefers, if it accepts one."""
    patch_vary_headers(response, ["Accept-Encoding"])
    content: bytes = getattr(response, "content", b"")
    if len(content) < MINIMUM or response.has_header("Content-Encoding"):
        return
    coding = _preferred(request)
    if coding is None:
        return
    library = zstd()
    if coding == "zstd" and library is not None:
        compressed = library.compress(content)
    else:
        compressed = compress_string(content, max_random_bytes=_RANDOM_BYTES)
    if len(compressed) < len(content):
        response.content = compressed  # type: ignore[attr-defined]  # it had content above
        response["Content-Encoding"] = coding
        response["Content-Length"] = str(len(compressed))


def _preferred(request: HttpRequest) -> str | None:
    qualities: dict[str, float] = {}
    for item in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, parameters = item.partition(";")
        qualities[name.strip()] = quality_of(parameters)
    # With a session of a browser BREACH is possible, and only gzip is padded against it.
    known = ["gzip"] if request.headers.get("Cookie") else supported()[::-1]
    ranked = [(qualities.get(name, qualities.get("*", 0.0)), name) for name in known]
    quality, best = max(ranked, key=lambda pair: pair[0])
    return best if quality > 0 else None


def quality_of(parameters: str) -> float:
    """Return the `q` in the parameters of an accepted type or coding; 0 means not accepted."""
    pairs = (each.partition("=") for each in parameters.split(";"))
    try:
        return next((float(value) for name, _, value in pairs if name.strip() == "q"), 1.0)
    except ValueError:
        return 0.0


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    began, parts = False, 0
    for chunk in chunks:
        while chunk:
            began = True
            yield _inflate(member, chunk)
            chunk = member.unconsumed_tail
            if member.eof:
                # gzip data may have several members (RFC 1952 §2.2).
                chunk, member, began = member.unused_data, zlib.decompressobj(wbits=31), False
                parts = _count_part(parts)
    # At the end of the input, the decompressor may still have output, and unread bits of the last
    # byte, which may be malformed.
    while began and not member.eof:
        piece = _inflate(member, b"")
        if not piece:
            raise _incomplete("gzip")
        yield piece


def _inflate(member: Any, data: bytes) -> bytes:
    try:
        return member.decompress(data, _CHUNK)  # type: ignore[no-any-return]  # zlib's class has no public name
    except zlib.error:
        raise _malformed("gzip") from None


def _unzstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    library = zstd()
    assert library is not None, "zstd is not among the supported codings without it"
    frame = library.decompressor()
    began, parts = False, 0
    for chunk in chunks:
        for start in range(0, len(chunk), _ZSTD_STEP):
            rest = chunk[start : start + _ZSTD_STEP]
            while rest:
                began = True
                try:
                    yield frame.decompress(rest)
                except library.error:
                    raise _malformed("zstd") from None
                rest = b""
                if frame.eof:
                    rest, frame, began = frame.unused_data, library.decompressor(), False
                    parts = _count_part(parts)
    if began:
        raise _incomplete("zstd")


def _count_part(parts: int) -> int:
    if parts >= _MAX_PARTS:
        raise InvalidPayload(f"the body must have at most {_MAX_PARTS} compressed parts")
    return parts + 1


def _malformed(coding: str) -> InvalidPayload:
    also = ", or needs a window over 8 MiB" if coding == "zstd" else ""
    return InvalidPayload(f"the body is not the {coding} that Content-Encoding says{also}")


def _incomplete(coding: str) -> InvalidPayload:
    return InvalidPayload(f"the body ends in the middle of its {coding}")

"""Compressed bodies, in and out (payload-limits §6): gzip, and zstd where zstandard is installed.

What comes in is unpacked as a stream that ends at the limit: a bomb costs no more memory, and
hardly more time, than a body of the longest length that is allowed.
"""

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.text import compress_string

from django_ojs.spec.errors import InvalidPayload, UnsupportedCompression

#: Answers shorter than this gain nothing.
MINIMUM: Final = 1024

_CHUNK: Final = 64 * 1024
# Four bytes of zstd can stand for 128 KiB, and its decompressor has no bound for what it returns:
# in steps of this size the limit is passed by 8 MiB at most.
_ZSTD_STEP: Final = 256
# What a decoder of this content coding has to offer (RFC 9659), and all that this one does.
_ZSTD_WINDOW: Final = 8 * 1024 * 1024
_ZSTD_LEVEL: Final = 3
# Members of a gzip file, frames of zstd: each costs what a kilobyte does, and may hold nothing.
_PARTS: Final = 1_000
# As Django's own GZipMiddleware: a name of random length in the header hides what the length of an
# answer would tell about its secrets (BREACH).
_RANDOM_BYTES: Final = 100


@lru_cache(maxsize=1)
def zstandard() -> ModuleType | None:
    """Return the library for zstd, or None where it is not installed."""
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        return None


def supported() -> list[str]:
    """Return the content codings that are read and written here."""
    return ["gzip", "zstd"] if zstandard() else ["gzip"]


def coding_of(request: HttpRequest) -> str | None:
    """Return the content coding of a request's body, None for a plain one.

    Raises UnsupportedCompression for any other, and for several on top of each other.
    """
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in supported():
        known = supported()
        raise UnsupportedCompression(
            f"Content-Encoding must be {' or '.join(known)}, or left out",
            details={"field": "Content-Encoding", "supported": known},
        )
    return coding


def decompress(coding: str, read: Callable[[int], bytes], limit: int) -> bytes:
    """Return what a body unpacks to: all of it, or its beginning, which is longer than `limit`.

    `read` is asked for chunks until it has none. Raises InvalidPayload for what is broken, or ends
    in the middle.
    """
    unpacked = bytearray()
    unpack = _gunzip if coding == "gzip" else _unzstd
    for piece in unpack(iter(lambda: read(_CHUNK), b"")):
        unpacked += piece
        if len(unpacked) > limit:
            break
    return bytes(unpacked)


def compress(request: HttpRequest, response: HttpResponseBase) -> None:
    """Pack a long answer for a client that asks for it, the way it likes best."""
    patch_vary_headers(response, ["Accept-Encoding"])
    content: bytes = getattr(response, "content", b"")
    if len(content) < MINIMUM or response.has_header("Content-Encoding"):
        return
    coding = _preferred(request)
    if coding is None:
        return
    library = zstandard()
    if coding == "zstd" and library is not None:
        packed = library.ZstdCompressor(level=_ZSTD_LEVEL).compress(content)
    else:
        packed = compress_string(content, max_random_bytes=_RANDOM_BYTES)
    if len(packed) < len(content):
        response.content = packed  # type: ignore[attr-defined]  # it had content above
        response["Content-Encoding"] = coding
        response["Content-Length"] = str(len(packed))


def _preferred(request: HttpRequest) -> str | None:
    wishes: dict[str, float] = {}
    for item in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, parameters = item.partition(";")
        wishes[name.strip()] = _quality(parameters)
    # A browser's session: its answers hold what others must not guess, and only gzip is padded.
    known = ["gzip"] if request.headers.get("Cookie") else supported()[::-1]
    ranked = [(wishes.get(name, wishes.get("*", 0.0)), name) for name in known]
    quality, best = max(ranked, key=lambda pair: pair[0])
    return best if quality > 0 else None


def _quality(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
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
                # A file of gzip may have several members (RFC 1952 §2.2).
                chunk, member, began = member.unused_data, zlib.decompressobj(wbits=31), False
                parts = _counted(parts)
    # What is left when the input has ended: the last bytes of output may still be in there.
    while began and not member.eof:
        # Bits of the last byte are in there too, and may be wrong.
        piece = _inflate(member, b"")
        if not piece:
            raise _ended("gzip")
        yield piece


def _inflate(member: Any, data: bytes) -> bytes:
    try:
        return member.decompress(data, _CHUNK)  # type: ignore[no-any-return]  # zlib's class has no public name
    except zlib.error:
        raise _broken("gzip") from None


def _unzstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    library: Any = zstandard()
    decompressor = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame = decompressor.decompressobj()
    began, parts = False, 0
    for chunk in chunks:
        for start in range(0, len(chunk), _ZSTD_STEP):
            rest = chunk[start : start + _ZSTD_STEP]
            while rest:
                began = True
                try:
                    yield frame.decompress(rest)
                except library.ZstdError:
                    raise _broken("zstd") from None
                rest = b""
                if frame.eof:
                    rest, frame, began = frame.unused_data, decompressor.decompressobj(), False
                    parts = _counted(parts)
    if began:
        raise _ended("zstd")


def _counted(parts: int) -> int:
    if parts >= _PARTS:
        raise InvalidPayload(f"the body must be packed in at most {_PARTS} parts")
    return parts + 1


def _broken(coding: str) -> InvalidPayload:
    also = ", or needs a window over 8 MiB" if coding == "zstd" else ""
    return InvalidPayload(f"the body is not the {coding} that Content-Encoding says{also}")


def _ended(coding: str) -> InvalidPayload:
    return InvalidPayload(f"the body ends in the middle of its {coding}")

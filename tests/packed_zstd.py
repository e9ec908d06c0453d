"""zstd for tests, not by what they test: of Python from 3.14 on, else of zstandard."""

from __future__ import annotations

import importlib
import sys
from typing import Any

_OF_PYTHON = sys.version_info >= (3, 14)
_library: Any = importlib.import_module("compression.zstd" if _OF_PYTHON else "zstandard")


def compress(data: bytes) -> bytes:
    packed: bytes = (_library if _OF_PYTHON else _library.ZstdCompressor()).compress(data)
    return packed


def decompress(data: bytes) -> bytes:
    plain: bytes = _library.decompress(data)
    return plain


def compressor(window_log: int | None = None) -> Any:
    """Return an object with `compress` and `flush`, for data that come in parts."""
    if _OF_PYTHON:
        window = {_library.CompressionParameter.window_log: window_log} if window_log else None
        return _library.ZstdCompressor(options=window)
    parameters = _library.ZstdCompressionParameters.from_level(3, window_log=window_log or 0)
    return _library.ZstdCompressor(compression_params=parameters).compressobj()

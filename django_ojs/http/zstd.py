"""zstd: from Python itself (3.14 and later), else from the library zstandard if it is installed."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

_LEVEL: Final = 3
# The window that every decoder of this coding supports (RFC 9659), 8 MiB; a larger one is rejected.
_WINDOW_LOG: Final = 23


@dataclass(frozen=True, kw_only=True)
class Zstd:
    """The functions of either library, under the same names."""

    compress: Callable[[bytes], bytes]
    #: Returns an object for one frame: `decompress(data)`, and then `eof` and `unused_data`.
    decompressor: Callable[[], Any]
    #: What `decompress` raises for data that are not zstd, or need a larger window.
    error: type[Exception]


@lru_cache(maxsize=1)
def zstd() -> Zstd | None:
    """Return the library that is available. If there is none, zstd is not offered."""
    # Python can also be built without its module.
    for module, adapt in (("compression.zstd", _of_python), ("zstandard", _of_zstandard)):
        try:
            return adapt(importlib.import_module(module))
        except ImportError:
            continue
    return None


def _of_python(library: Any) -> Zstd:
    options = {library.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return Zstd(
        compress=lambda data: library.compress(data, level=_LEVEL),
        decompressor=lambda: library.ZstdDecompressor(options=options),
        error=library.ZstdError,
    )


def _of_zstandard(library: Any) -> Zstd:
    # Each frame has its own ZstdDecompressor: frames that share one corrupt each other if they are
    # read in turns.
    return Zstd(
        compress=lambda data: library.ZstdCompressor(level=_LEVEL).compress(data),
        decompressor=lambda: library.ZstdDecompressor(
            max_window_size=1 << _WINDOW_LOG
        ).decompressobj(),
        error=library.ZstdError,
    )

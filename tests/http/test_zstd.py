"""Which library packs and unpacks zstd."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from django_ojs.http.zstd import zstd
from tests import packed_zstd


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    zstd.cache_clear()
    yield
    zstd.cache_clear()


class OfPythonError(Exception):
    """What Python's own library raises here."""


def test_pythons_own_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(
        DecompressionParameter=SimpleNamespace(window_log_max=100),
        ZstdDecompressor=lambda options: options,
        ZstdError=OfPythonError,
        compress=lambda data, level: (data, level),
    )
    monkeypatch.setitem(sys.modules, "compression", ModuleType("compression"))
    monkeypatch.setitem(sys.modules, "compression.zstd", own)  # type: ignore[arg-type]
    library = zstd()
    assert library is not None
    assert library.error is OfPythonError
    assert library.decompressor() == {100: 23}
    assert library.compress(b"x") == (b"x", 3)


def test_a_python_without_its_own_takes_zstandard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    zstandard = pytest.importorskip("zstandard")
    library = zstd()
    assert library is not None
    assert library.error is zstandard.ZstdError


def test_frames_that_are_read_in_turns_do_not_break_each_other() -> None:
    library = zstd()
    assert library is not None
    packed = packed_zstd.compress(b"abc" * 1_000)
    first, second = library.decompressor(), library.decompressor()
    begun = first.decompress(packed[:10])
    assert second.decompress(packed) == b"abc" * 1_000
    assert begun + first.decompress(packed[10:]) == b"abc" * 1_000


def test_without_any_library_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    assert zstd() is None
    assert importlib.import_module("django_ojs.http.compression").supported() == ["gzip"]

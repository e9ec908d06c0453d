"""The watch over the code of a worker in development."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import autoreload

from django_ojs.worker import code_watch
from django_ojs.worker.code_watch import CodeWatch


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "watched_by_a_test.py"
    path.write_text("answer = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("watched_by_a_test")
    # Django remembers the list for a set of modules; another test may have asked before.
    autoreload.iter_modules_and_files.cache_clear()
    yield path
    del sys.modules["watched_by_a_test"]


@pytest.fixture
def watch(module: Path, monkeypatch: pytest.MonkeyPatch) -> CodeWatch:
    monkeypatch.setattr(code_watch, "INTERVAL", 0.0)
    return CodeWatch()


def touch(path: Path) -> None:
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 10))


def test_a_changed_module_is_reported_once(watch: CodeWatch, module: Path) -> None:
    assert not watch()
    touch(module)
    assert watch()
    assert not watch()


def test_a_module_that_came_later_is_watched_from_then_on(watch: CodeWatch, tmp_path: Path) -> None:
    later = tmp_path / "watched_later_by_a_test.py"
    later.write_text("")
    importlib.import_module("watched_later_by_a_test")
    try:
        assert not watch()
        touch(later)
        assert watch()
    finally:
        del sys.modules["watched_later_by_a_test"]


def test_a_file_that_is_gone_for_a_moment_is_no_error(watch: CodeWatch, module: Path) -> None:
    text, modified = module.read_text(), module.stat().st_mtime
    module.unlink()
    assert not watch()
    module.write_text(text)
    os.utime(module, (modified + 10, modified + 10))
    assert watch()


def test_it_does_not_look_more_often_than_it_should(
    watch: CodeWatch, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_watch, "INTERVAL", 3600.0)
    touch(module)
    assert not watch()
    monkeypatch.setattr(code_watch, "INTERVAL", 0.0)
    assert watch()

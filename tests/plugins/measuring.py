"""Which tests coverage measures: enough to run each branch once, because tracing is slow.

Tracing makes Python 3.11 two to six times as slow. The thirtieth case of a parametrized test seldom
runs a line that the first two do not, and tests that start processes or are `sized` run what short
tests of the same code run: of those that start processes, the ones marked `smoke` are measured. So
the figure can be too low, never too high.

Nor are those marked `repeats`, which ask every page or route on behalf of everybody: each of these
has tests of its own.

Tests marked `interrupts` are never measured, nor the processes that they start: Python 3.11 loops
for ever when code is traced while an exception waits for a thread that waits in C.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

import django_ojs
from tests.databases import KIND
from tests.plugins import tiers

#: So many cases of a parametrized test are measured.
CASES = {"postgresql": 2, "sqlite": 1, "mariadb": 1}[KIND]
#: What differs between the databases is run by these; the rest is measured on PostgreSQL.
FOLDERS = {
    "postgresql": ("",),
    "sqlite": ("tests/operations/", "tests/storage/"),
    "mariadb": ("tests/operations/", "tests/storage/"),
}[KIND]

_MEASURED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    coverage = _running()
    if coverage is not None and config.getoption("numprocesses", None):
        coverage.stop()  # Others run the tests: this process only reports their results.


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Measure the imports of the package, and nothing else of the collection."""
    coverage = _running()
    if coverage is None:
        return (yield)
    for module in pkgutil.walk_packages(django_ojs.__path__, "django_ojs."):
        # Some need a library that is not installed.
        with suppress(ImportError):
            importlib.import_module(module.name)
    coverage.stop()
    try:
        return (yield)
    finally:
        coverage.start()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        cases[name] += 1
        item.stash[_MEASURED] = cases[name] <= CASES and _is_measured(item)


def _is_measured(item: pytest.Item) -> bool:
    if not item.nodeid.startswith(FOLDERS):
        return False
    if any(item.get_closest_marker(name) for name in ("interrupts", "repeats", "sized")):
        return False
    return not tiers.is_about_processes(item) or bool(item.get_closest_marker("smoke"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    coverage = None if item.stash.get(_MEASURED, True) else _running()
    if coverage is None:
        return (yield)
    from coverage import multiproc

    # By these and by the patch, the processes that it starts would be measured.
    kept = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("COVERAGE_")}
    patched, BaseProcess._bootstrap = BaseProcess._bootstrap, multiproc.original_bootstrap
    coverage.stop()
    try:
        return (yield)
    finally:
        coverage.start()
        BaseProcess._bootstrap = patched
        os.environ.update(kept)


@contextmanager
def unmeasured(number: int) -> Iterator[None]:
    """Measure nothing in the block, of a case with this number in a test of many (from 0)."""
    coverage = _running() if number >= CASES else None
    # A test that is not measured has stopped it.
    if coverage is None or not coverage._started:
        yield
        return
    coverage.stop()
    try:
        yield
    finally:
        coverage.start()


def _running() -> Any:
    try:
        from coverage import Coverage
    except ImportError:
        return None
    return Coverage.current()

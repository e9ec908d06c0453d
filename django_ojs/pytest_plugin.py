"""The pytest plugin: the fixtures `ojs`, `ojs_fake`, `ojs_inline`, and the marker `ojs`.

It is loaded in every project of an environment, also in one without Django, so it imports nothing
of Django before a fixture is used.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from django_ojs.testing.context import TestContext

_MODES: Final = ("real", "fake", "inline")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "ojs(mode): enqueue jobs in the mode 'real' (the default), 'fake' or 'inline', which is "
        "the mode of the fixture `ojs` too.",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a marked test use the fixture `ojs`, and a test that stores jobs the fixture `db`.

    pytest-django creates the test databases of the fixtures that are known once tests are
    collected. Without `db` among them, the test would run on the project's own database.
    """
    if not isinstance(item, pytest.Function):
        return
    if item.get_closest_marker("ojs") is not None:
        _add_ojs(item)
    has_rows = "ojs_inline" in item.fixturenames or (
        "ojs" in item.fixturenames and _mode_of(item) != "fake"
    )
    if has_rows and item.config.pluginmanager.has_plugin("django"):
        # Tests of one function with several parameters share the list, and may differ in mode.
        item.fixturenames = [*item.fixturenames, "db"]


def _add_ojs(item: pytest.Function) -> None:
    _mode_of(item)
    if item.cls is not None and issubclass(item.cls, unittest.TestCase):
        raise pytest.UsageError(
            f"{item.nodeid}: the marker ojs is for test functions; {item.cls.__name__} is a "
            "TestCase, for which there is django_ojs.testing.OJSTestMixin."
        )
    if "ojs" not in item.fixturenames:
        item.fixturenames.append("ojs")


@pytest.fixture
def ojs(request: pytest.FixtureRequest) -> Iterator[TestContext]:
    """The jobs of this test, as rows of its database; or in the mode of the marker `ojs`."""
    mode = _mode_of(request.node)
    if mode != "fake":
        _need_database(request)
    yield from _opened(mode)


@pytest.fixture
def ojs_fake() -> Iterator[TestContext]:
    """The jobs of this test, recorded in memory: no database, and no handler runs."""
    yield from _opened("fake")


@pytest.fixture
def ojs_inline(request: pytest.FixtureRequest) -> Iterator[TestContext]:
    """The jobs of this test, each of which runs inside its enqueue; exceptions are raised there."""
    _need_database(request)
    yield from _opened("inline")


def _need_database(request: pytest.FixtureRequest) -> None:
    if not request.config.pluginmanager.has_plugin("django"):
        pytest.fail(
            f"The fixture {request.fixturename} needs pytest-django, unless its mode is fake."
        )
    request.getfixturevalue("db")


def _opened(mode: str) -> Iterator[TestContext]:
    from django_ojs.testing import context

    with {"real": context.real, "fake": context.fake, "inline": context.inline}[mode]() as opened:
        yield opened


def _mode_of(node: pytest.Item) -> str:
    marker = node.get_closest_marker("ojs")
    if marker is None:
        return "real"
    mode = marker.kwargs.get("mode") or (marker.args[0] if marker.args else "real")
    if mode not in _MODES:
        raise pytest.UsageError(
            f"{node.nodeid}: the marker ojs takes one of {', '.join(_MODES)}, not {mode!r}."
        )
    return str(mode)

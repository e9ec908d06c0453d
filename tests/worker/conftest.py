"""What the tests of the worker's parts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker.parts import Outcomes, threads
from tests.worker.waiting import eventually


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Let no thread of a worker outlive its test: it would hold connections, and log.

    That of a test that failed before is waited for there, and not in each test after it.
    """
    before = set(threads())
    yield
    eventually(lambda: not set(threads()) - before, "the worker's threads end")


@pytest.fixture
def outcomes() -> Outcomes:
    """Return a collector of the outcomes of an executor."""
    return Outcomes()

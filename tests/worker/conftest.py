"""What the tests of the worker's parts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker.parts import Outcomes, threads
from tests.worker.waiting import eventually


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Let no thread of a worker outlive its test: it would hold connections, and log."""
    yield
    eventually(lambda: not threads(), "the worker's threads end")


@pytest.fixture
def outcomes() -> Outcomes:
    """Return a collector of the outcomes of an executor."""
    return Outcomes()

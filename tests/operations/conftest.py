"""Fixtures of the tests of operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_ojs.operations import push as pushing
from tests.factories import ROAD


@pytest.fixture(params=[pushing.ONE, pushing.PLAIN], ids=["sent id", "generated id"])
def either_road(request: pytest.FixtureRequest) -> Iterator[None]:
    """Push with an id that a client sent, and with a generated one.

    On PostgreSQL, a unique job with a generated id takes one statement.
    """
    ROAD[:] = [request.param]
    yield
    ROAD[:] = [pushing.ONE]

"""Handlers that a test declares are forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_ojs import handlers


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    known = set(handlers.job_types())
    yield
    for type_ in set(handlers.job_types()) - known:
        handlers.registry.remove(type_)

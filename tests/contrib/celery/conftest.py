"""The tasks of the project, registered for one test at a time."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from django_ojs import testing
from django_ojs.contrib.celery import app, registration
from django_ojs.contrib.celery.configuration import configuration
from django_ojs.handler_registry import registry


@pytest.fixture
def shop() -> Iterator[ModuleType]:
    before = dict(registry.handlers)
    # The apps of other tests, such as those of the documentation, wait for their configuration.
    app._configured.clear()
    from tests.contrib.celery import tasks

    for task in registration.tasks.values():
        registry.add(task.handler)
    tasks.calls.clear()
    yield tasks
    configuration.clear()
    registry.handlers.clear()
    registry.handlers.update(before)


@pytest.fixture
def ojs(db: None, shop: ModuleType) -> Iterator[testing.TestContext]:
    with testing.real() as context:
        yield context

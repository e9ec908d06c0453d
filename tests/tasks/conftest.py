"""A project whose TASKS are ours, for one test at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from django_ojs.handler_registry import registry

BACKEND = "django_ojs.tasks.OJSBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "email"]},
    "second": {"BACKEND": BACKEND, "QUEUES": ["default", "slow"]},
}


@pytest.fixture
def tasks(settings: Any) -> Iterator[ModuleType]:
    """Return the module of the tasks, which are registered for this test alone."""
    settings.TASKS = TASKS
    before = dict(registry.handlers)
    from django_ojs.tasks import discovery
    from django_ojs.tasks.handler import TaskHandler

    module = import_module("tests.tasks.tasks")
    # Only the first import registers them.
    if not hasattr(module, "HANDLERS"):
        module.HANDLERS = {
            name: each for name, each in registry.handlers.items() if isinstance(each, TaskHandler)
        }
    registry.handlers.update(module.HANDLERS)
    discovery.connect()
    yield module
    discovery.disconnect()
    registry.handlers.clear()
    registry.handlers.update(before)

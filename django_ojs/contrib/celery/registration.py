"""The tasks of this process, and the registration of their handlers."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps

#: The tasks by name. The values are `task.Task`, which imports this module.
tasks: Final[dict[str, Any]] = {}
_waiting: Final[list[Any]] = []


def add(task: Any) -> None:
    """Add a task. It gets its handler at once, or when the models of the apps are loaded."""
    tasks[task.name] = task
    if apps.models_ready:
        _register(task)
    else:
        _waiting.append(task)


def register_waiting() -> None:
    """Make handlers of the tasks that were declared before the models were loaded."""
    while _waiting:
        _register(_waiting.pop(0))


def _register(task: Any) -> None:
    from django_ojs.handler_registry import registry

    registry.add(task.handler)

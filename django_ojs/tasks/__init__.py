"""A backend of `django.tasks`: it stores tasks as jobs, which commit with the caller's rows.

TASKS = {"default": {"BACKEND": "django_ojs.tasks.OJSBackend"}}
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_ojs.tasks.backend import OJSBackend, OJSTask
    from django_ojs.tasks.declaration import options
    from django_ojs.tasks.exceptions import TaskCancelled, TaskDiscarded, TaskFailed

__all__ = ["OJSBackend", "OJSTask", "TaskCancelled", "TaskDiscarded", "TaskFailed", "options"]

# These modules need Django 6.0 or the backport. Other task queues import the module `tasks` of
# every installed app, so this one is imported even if there is neither.
_MODULES = {
    "OJSBackend": "backend",
    "OJSTask": "backend",
    "TaskCancelled": "exceptions",
    "TaskDiscarded": "exceptions",
    "TaskFailed": "exceptions",
    "options": "declaration",
}

if not TYPE_CHECKING:  # A type checker would otherwise accept every name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

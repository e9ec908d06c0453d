"""The names of `django.tasks`, or of the backport `django_tasks` where Django has none."""

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    try:
        import django_tasks  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "django_ojs.tasks needs Django 6.0, or the backport: pip install django-ojs[tasks], "
            'and "django_tasks" in INSTALLED_APPS.'
        ) from error
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

P = ParamSpec("P")
R = TypeVar("R")

# The classes are generic in Django's stubs, but not in Django itself.
if TYPE_CHECKING:
    GenericTask = Task
    AnyTask = Task[..., Any]
    AnyResult = TaskResult[..., Any]
else:

    class GenericTask(Task, Generic[P, R]):
        """`Task`, with parameters for type checkers."""

    AnyTask = Task
    AnyResult = TaskResult

__all__ = [
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "GenericTask",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

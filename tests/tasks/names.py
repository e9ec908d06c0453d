"""The names of Django, or of the backport on Django 5.2, that a project imports, and ours.

Where neither is installed, the test module that imports them is skipped.
"""

from __future__ import annotations

from importlib.util import find_spec

import django

if django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResultStatus, task, task_backends
    from django.tasks.exceptions import (
        InvalidTask,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
elif find_spec("django_tasks") is None:
    import pytest

    pytest.skip("django-tasks is not installed", allow_module_level=True)
else:
    from django_tasks import TaskContext, TaskResultStatus, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

from django_ojs.job_type import job_type_of
from django_ojs.tasks import OJSBackend, OJSTask, TaskDiscarded, options

__all__ = [
    "InvalidTask",
    "OJSBackend",
    "OJSTask",
    "TaskContext",
    "TaskDiscarded",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "job_type_of",
    "options",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

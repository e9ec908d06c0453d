"""A backend of `django.tasks`: tasks are jobs, and commit with the caller's rows.

TASKS = {"default": {"BACKEND": "django_ojs.tasks.OJSBackend"}}
"""

from django_ojs.tasks.backend import OJSBackend, OJSTask
from django_ojs.tasks.declaration import options
from django_ojs.tasks.exceptions import TaskCancelled, TaskDiscarded, TaskFailed

__all__ = ["OJSBackend", "OJSTask", "TaskCancelled", "TaskDiscarded", "TaskFailed", "options"]

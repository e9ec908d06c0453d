"""The interface of Celery over jobs, so that a project can move its tasks one import at a time.

Add "django_ojs.contrib.celery" to INSTALLED_APPS, and write `from django_ojs.contrib.celery import
shared_task` where it was `from celery import shared_task`.
"""

from django_ojs.contrib.celery import states
from django_ojs.contrib.celery.app import Celery, current_app
from django_ojs.contrib.celery.canvas import Signature, chain, chord, group, signature
from django_ojs.contrib.celery.install import install_as_celery
from django_ojs.contrib.celery.request import current_task
from django_ojs.contrib.celery.task import Task, shared_task
from django_ojs.contrib.celery.utils import uuid

__all__ = [
    "Celery",
    "Signature",
    "Task",
    "chain",
    "chord",
    "current_app",
    "current_task",
    "group",
    "install_as_celery",
    "shared_task",
    "signature",
    "states",
    "uuid",
]

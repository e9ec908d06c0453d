"""Settings of a worker that finds the tasks of a Celery project."""

from __future__ import annotations

from tests.worker.settings import *  # noqa: F403 - those of any worker in the tests

INSTALLED_APPS += ["tests.contrib.celery", "django_ojs.contrib.celery"]  # noqa: F405 - the star
CELERY_TASK_ROUTES = {"tests.contrib.celery.tasks.work": {"queue": "Slow_Work"}}

"""Settings of a worker that finds the tasks of these tests."""

from __future__ import annotations

import django

from tests.worker.settings import *  # noqa: F403 - those of any worker in the tests

INSTALLED_APPS += ["tests.tasks"]  # noqa: F405 - from the star
if django.VERSION < (6, 0):
    INSTALLED_APPS += ["django_tasks"]

BACKEND = "django_ojs.tasks.OJSBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "email"]},
    "second": {"BACKEND": BACKEND, "QUEUES": ["default", "slow"]},
}
# Receivers of Django log each signal of a task.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {
        name: {"handlers": ["console"], "level": "INFO", "propagate": False}
        for name in ("django.tasks", "django_tasks")
    },
}

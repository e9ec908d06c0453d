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

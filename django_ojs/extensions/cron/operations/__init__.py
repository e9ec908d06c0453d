"""Cron jobs (ojs-cron): register them, list them, and enqueue a job at each occurrence."""

from django_ojs.extensions.cron.operations.queries import get, last_jobs, page, runs
from django_ojs.extensions.cron.operations.registration import (
    Definition,
    check,
    register,
    remove,
    set_enabled,
    warning_of,
)
from django_ojs.extensions.cron.operations.tick import fire_due
from django_ojs.extensions.cron.operations.trigger import trigger

__all__ = [
    "Definition",
    "check",
    "fire_due",
    "get",
    "last_jobs",
    "page",
    "register",
    "remove",
    "runs",
    "set_enabled",
    "trigger",
    "warning_of",
]

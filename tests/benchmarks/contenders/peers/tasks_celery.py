"""The Celery app and its handler."""

from __future__ import annotations

from celery import Celery

from tests.benchmarks.starts import record_start

app = Celery("bench")
app.config_from_object("django.conf:settings", namespace="CELERY")


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
    record_start(number)

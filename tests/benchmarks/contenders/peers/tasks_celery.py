"""The Celery app and its handler."""

from __future__ import annotations

from celery import Celery

from tests.benchmarks.marks import mark

app = Celery("bench")
app.config_from_object("django.conf:settings", namespace="CELERY")


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
    mark(number)

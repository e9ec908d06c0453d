"""The Celery app and its handlers."""

from __future__ import annotations

from celery import Celery

from tests.benchmarks.starts import record_start

app = Celery("bench")
app.config_from_object("django.conf:settings", namespace="CELERY")


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
    record_start(number)


@app.task(name="member", ignore_result=False)
def member(number: int) -> None:
    """Do nothing, as a member of a chord, which counts its results."""
    record_start(number)


@app.task(name="ended")
def ended() -> None:
    """Follow the last member of a chord."""

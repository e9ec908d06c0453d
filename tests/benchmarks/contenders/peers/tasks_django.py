"""The handler of the backends of `django.tasks`."""

from __future__ import annotations

from django.tasks import task

from tests.benchmarks.starts import record_start


@task()
def noop(number: int) -> None:
    """Do nothing."""
    record_start(number)

"""The handler of the backends of `django.tasks`."""

from __future__ import annotations

from django.tasks import task

from tests.benchmarks.marks import mark


@task()
def noop(number: int) -> None:
    """Do nothing."""
    mark(number)

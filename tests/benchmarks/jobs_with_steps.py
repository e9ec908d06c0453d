"""The handlers of django_ojs that run in durable steps."""

from __future__ import annotations

import django_ojs as ojs
from django_ojs.extensions import steps as durable
from tests.benchmarks.starts import record_start


@ojs.job("bench.steps")
def steps(number: int, count: int) -> None:
    """Take steps."""
    record_start(number)
    for step in range(count):
        durable.run("noop", int, step)


@ojs.job("bench.wait")
def wait(number: int, count: int) -> None:
    """Wait for a signal."""
    durable.wait("go", str(number))
    record_start(number)

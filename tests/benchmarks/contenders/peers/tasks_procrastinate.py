"""The handler of procrastinate."""

from __future__ import annotations

from procrastinate.contrib.django import app

from tests.benchmarks.starts import record_start


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
    record_start(number)

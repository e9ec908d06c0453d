"""The handler of procrastinate."""

from __future__ import annotations

from procrastinate.contrib.django import app

from tests.benchmarks.marks import mark


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
    mark(number)

"""The handlers of django_ojs."""

from __future__ import annotations

import time

import django_ojs as ojs
from tests.benchmarks.marks import NAP, mark


@ojs.job("bench.noop")
def noop(number: int) -> None:
    """Do nothing."""
    mark(number)


@ojs.job("bench.async_noop")
async def async_noop(number: int) -> None:
    """Do nothing, on the event loop."""
    mark(number)


@ojs.job("bench.nap")
def nap(number: int) -> None:
    """Wait like for a short request."""
    mark(number)
    time.sleep(NAP)

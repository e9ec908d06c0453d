"""The handlers of django_ojs."""

from __future__ import annotations

import os
import time

from django.apps import apps

import django_ojs as ojs
from tests.benchmarks import guesses_off
from tests.benchmarks.starts import NAP, record_start


@ojs.job("bench.noop")
def noop(number: int) -> None:
    """Do nothing."""
    record_start(number)


@ojs.job("bench.async_noop")
async def async_noop(number: int) -> None:
    """Do nothing, on the event loop."""
    record_start(number)


@ojs.job("bench.poison")
def poison(number: int) -> None:
    """Kill the process."""
    record_start(number)
    os._exit(1)


@ojs.job("bench.failing")
def failing(number: int) -> None:
    """Fail, as when a service is away."""
    record_start(number)
    raise ConnectionError("The service is away.")


@ojs.job("bench.nap")
def nap(number: int) -> None:
    """Wait like for a short request."""
    record_start(number)
    time.sleep(NAP)


if apps.is_installed("django_ojs.extensions.steps"):
    from tests.benchmarks import jobs_with_steps  # noqa: F401  It registers them.

guesses_off.switch_off()

"""The handlers of the day: 400 types in 60 queues. Every twentieth calls a partner."""

from __future__ import annotations

import os
import time
from pathlib import Path

import django_ojs as ojs
from tests.benchmarks.day import HOUR_VARIABLE, ledger

TYPES, QUEUES, PARTNER = 400, 60, 20

_hour = float(os.environ.get(HOUR_VARIABLE, "10"))
#: The third attempt comes three quarters of an hour after the first: a job that meets the partner
#: down for an hour is dead only if it came in the first quarter.
_RETRY = ojs.RetryPolicy(
    max_attempts=3, initial_interval=_hour / 4, max_interval=_hour, jitter=False
)


def name(number: int) -> str:
    """Return the name of a type."""
    return f"day.{'partner' if number % PARTNER == 0 else 'work'}_{number}"


def queue(number: int) -> str:
    """Return the queue of a type."""
    return f"day-{number % QUEUES}"


def work(ctx: ojs.JobContext, seconds: float) -> None:
    """Wait like for a short request."""
    ledger.note(ctx, is_done=False)
    time.sleep(seconds)
    ledger.note(ctx, is_done=True)


def call_partner(ctx: ojs.JobContext, seconds: float) -> None:
    """Do the same, and fail while the partner is down."""
    ledger.note(ctx, is_done=False)
    if Path(os.environ[ledger.PARTNER_VARIABLE]).exists():
        raise ConnectionError("The partner is down.")
    time.sleep(seconds)
    ledger.note(ctx, is_done=True)


for _number in range(TYPES):
    _handler = call_partner if _number % PARTNER == 0 else work
    ojs.job(name(_number), queue=queue(_number), retry=_RETRY)(_handler)

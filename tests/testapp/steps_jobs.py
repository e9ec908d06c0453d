"""A handler for the tests of steps: what it does is a function of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import django_ojs as ojs


def _none(ctx: ojs.JobContext) -> Any:
    raise LookupError("The test has set no program.")


#: Set by a test, in its process.
program: Callable[[ojs.JobContext], Any] = _none
aprogram: Callable[[ojs.JobContext], Awaitable[Any]] = _none

#: A test lets the next attempt run before it is due.
LATER = ojs.RetryPolicy(max_attempts=5, initial_interval="PT1H", max_interval="PT1H")


@ojs.job("steps.program", retry=LATER)
def run_program(ctx: ojs.JobContext) -> Any:
    """Do what the test says."""
    return program(ctx)


@ojs.job("steps.aprogram", retry=LATER)
async def run_aprogram(ctx: ojs.JobContext) -> Any:
    """Do what the test says."""
    return await aprogram(ctx)


@ojs.job("steps.atomic", atomic=True, retry=ojs.RetryPolicy(max_attempts=1))
def run_atomic(ctx: ojs.JobContext) -> Any:
    """Do what the test says, in a transaction."""
    return program(ctx)

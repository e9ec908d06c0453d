"""A few small handlers, found by autodiscovery."""

from __future__ import annotations

from typing import Any

import django_ojs as ojs
from tests.testapp import fault_jobs as fault_jobs
from tests.testapp import steps_jobs as steps_jobs
from tests.testapp import testing_jobs as testing_jobs
from tests.testapp import worker_jobs as worker_jobs
from tests.testapp.models import Thing


@ojs.job("testapp.echo")
def echo(*values: Any) -> list[Any]:
    """Return what it was given."""
    return list(values)


@ojs.job("testapp.add")
def add(a: int, b: int = 10, c: int = 100) -> int:
    """Add up; two of the three have defaults."""
    return a + b + c


@ojs.job("testapp.create_thing", atomic=True)
def create_thing(name: str) -> int:
    """Store a row, in the transaction that completes the job."""
    return Thing.objects.create(name=name).pk


@ojs.job("testapp.describe")
def describe(ctx: ojs.JobContext, greeting: str) -> str:
    """Return the number of the attempt."""
    return f"{greeting}, attempt {ctx.attempt}"


@ojs.job("testapp.shout")
async def shout(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()


@ojs.job(
    "testapp.labelled",
    queue="labels",
    priority=ojs.HIGH,
    timeout=30,
    visibility_timeout=60,
    retry=ojs.RetryPolicy(max_attempts=7),
    tags=["default"],
    meta={"team": "growth", "tier": 1},
)
def labelled(value: str) -> None:
    """Do nothing, with a default for each option."""

"""Handlers for the tests of `django_ojs.testing`."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

import django_ojs as ojs
from tests.testapp.models import Thing


@ojs.job("testing.send", queue="email", retry=ojs.RetryPolicy(max_attempts=2))
def send(to: str, template: str = "welcome", options: dict[str, Any] | None = None) -> str:
    """Return the receiver."""
    return to


@ojs.job("testing.save")
def save(name: str) -> int:
    """Store a row and then fail, if the name says so."""
    thing = Thing.objects.create(name=name)
    if name == "broken":
        raise ValueError("the row was stored before")
    return thing.pk


@ojs.job("testing.save_and_return")
def save_and_return(name: str) -> Any:
    """Store a row and return what JSON cannot represent."""
    return {"thing": Thing.objects.create(name=name)}


@ojs.job("testing.save_atomically", atomic=True)
def save_atomically(name: str) -> int:
    """Do the same in one transaction with the completion."""
    return save.function(name)


@ojs.job("testing.break", retry=ojs.RetryPolicy(max_attempts=1))
def break_transaction() -> None:
    """Store a row, and break the transaction."""
    Thing.objects.create(name="lost")
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column")


@ojs.job("testing.asave")
async def asave(ctx: ojs.JobContext, name: str) -> str:
    """Store a row on an event loop."""
    await ctx.aprogress(0.5)
    thing = await Thing.objects.acreate(name=name)
    return f"{thing.name}, attempt {ctx.attempt}"


@ojs.job("testing.chain")
def chain(left: int) -> None:
    """Enqueue the next job after the commit of a transaction of its own."""
    with transaction.atomic(durable=True):
        if left:
            transaction.on_commit(partial(chain.enqueue, left - 1))


@ojs.job("testing.forever")
def forever() -> None:
    """Enqueue itself."""
    forever.enqueue()


@ojs.job("testing.now")
def now() -> str:
    """Return the time."""
    return timezone.now().isoformat()


@ojs.job("testing.collect")
def collect(ctx: ojs.JobContext, name: str = "") -> dict[str, Any]:
    """Return what the steps before it returned."""
    return {"parent_results": ctx.parent_results}


@ojs.job("testing.import", retry=ojs.RetryPolicy(max_attempts=2))
def import_rows(ctx: ojs.JobContext, rows: int) -> int:
    """Fail in the middle of the first run; return the row at which this one began."""
    first: int = ctx.last_checkpoint or 0
    for row in range(first, rows):
        ctx.progress((row + 1) / rows, f"row {row + 1} of {rows}")
        ctx.checkpoint(row + 1)
        if ctx.attempt == 1 and row == rows // 2:
            raise ValueError("the connection is lost")
    return first


@ojs.job("testing.family")
def family() -> None:
    chain.enqueue(1)
    ojs.enqueue_batch([send.s("ada"), send.s("eve")])
    ojs.chain(save.s("first"), collect.s("second")).enqueue()


@ojs.job("testing.afamily")
async def afamily() -> None:
    await send.aenqueue("ada")

"""Handlers that leave their lines in the ledger of the fault tests."""

from __future__ import annotations

import os
import time

from django.db import OperationalError, connection

import django_ojs as ojs
from django_ojs.extensions import steps
from tests.faults import ledger
from tests.testapp.models import Thing

#: Each kill spends an attempt, and no job is to run out of them.
PATIENT = ojs.RetryPolicy(
    max_attempts=100, initial_interval="PT0.05S", max_interval="PT0.5S", jitter=False
)


@ojs.job("faults.effect", retry=PATIENT)
def effect(ctx: ojs.JobContext, milliseconds: float = 0) -> str:
    """Have an effect, after some time, and return which run it was."""
    ledger.note(ctx, "start")
    time.sleep(milliseconds / 1000)
    ledger.note(ctx, "done")
    return f"run {ctx.job.run}"


@ojs.job("faults.atomic", retry=PATIENT, atomic=True)
def atomic(ctx: ojs.JobContext, milliseconds: float = 0) -> str:
    """Store a row in the transaction that completes the job."""
    ledger.note(ctx, "start")
    Thing.objects.create(name=f"effect {ctx.job.id}")
    time.sleep(milliseconds / 1000)
    ledger.note(ctx, "done")
    return f"run {ctx.job.run}"


@ojs.job("faults.steps", retry=PATIENT)
def stepped(ctx: ojs.JobContext, milliseconds: float = 0) -> list[int]:
    """Take a step of each kind, and return in which runs they were done."""

    def effect(event: str) -> int:
        ledger.note(ctx, event)
        time.sleep(milliseconds / 1000)
        return ctx.job.run

    ledger.note(ctx, "start")
    charged = steps.run("charge", effect, "charge")
    with steps.atomic("reserve") as reserve:
        if reserve.pending:
            Thing.objects.create(name=f"effect {ctx.job.id}")
            steps.signal("reserved", str(ctx.job.id), ctx.job.run)
            reserve.result = ctx.job.run
    steps.sleep("nap", 0.05)
    signalled = steps.wait("reserved", str(ctx.job.id))
    shipped = steps.run("ship", effect, "ship")
    ledger.note(ctx, "done")
    return [charged, reserve.result, signalled, shipped]


@ojs.job("faults.waits", retry=PATIENT)
def waits(ctx: ojs.JobContext, key: str) -> float:
    """Wait for a signal, and return how many seconds before it came here it was sent."""
    ledger.note(ctx, "start")
    sent: float = steps.wait("go", key)
    return time.monotonic() - sent


@ojs.job("faults.poison", retry=ojs.RetryPolicy(max_attempts=3))
def poison(ctx: ojs.JobContext) -> None:
    """End the process."""
    ledger.note(ctx, "start")
    os._exit(1)


@ojs.job("faults.now")
def now() -> float:
    """Return the time by the clock of the application."""
    return time.time()


@ojs.job("faults.rejected", retry=ojs.RetryPolicy(max_attempts=1))
def rejected(ctx: ojs.JobContext) -> None:
    """Fail for good."""
    ledger.note(ctx, "start")
    raise ojs.Discard


@ojs.job("faults.fails_large", retry=ojs.RetryPolicy(max_attempts=1))
def fails_large(megabytes: int) -> None:
    """Read much, and fail."""
    large = bytearray(megabytes << 20)
    try:
        raise ValueError("what was read is wrong")
    except ValueError as raised:
        error = raised
    # As in a loop that tries again: the variable and the traceback are a cycle.
    raise error from RuntimeError(len(large))


@ojs.job("faults.fails_large_async", retry=ojs.RetryPolicy(max_attempts=1))
async def fails_large_async(megabytes: int) -> None:
    """Read much on the event loop, and fail."""
    fails_large(megabytes)


@ojs.job("faults.own_row", retry=ojs.RetryPolicy(max_attempts=1), atomic=True)
def own_row(ctx: ojs.JobContext, key: int | None = None) -> None:
    """Change a row that no other job has, or store one."""
    name = f"effect {ctx.job.id}"
    if key is None:
        Thing.objects.create(name=name)
    else:
        Thing.objects.filter(pk=key).update(name=name)


@ojs.job("faults.conflicts_once", retry=ojs.RetryPolicy(max_attempts=1), atomic=True)
def conflicts_once(ctx: ojs.JobContext, sqlstate: str, way: str) -> None:
    """Conflict with another transaction in the first run: in a statement, or at the commit."""
    if ctx.job.run > 1:
        return
    Thing.objects.create(name="of a run that conflicts")
    raising = f"RAISE EXCEPTION 'a conflict' USING ERRCODE = '{sqlstate}';"
    with connection.cursor() as cursor:
        if way == "at the commit":
            cursor.execute(
                "CREATE FUNCTION pg_temp.conflict() RETURNS trigger LANGUAGE plpgsql AS"
                f" $$ BEGIN {raising} END $$;"
                "CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON testapp_thing"
                " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.conflict()"
            )
            Thing.objects.create(name="of a commit that conflicts")
            return
        try:
            cursor.execute(f"DO $$ BEGIN {raising} END $$")
        except OperationalError as error:
            if way == "chained":
                raise ValueError("the order could not be changed") from error
            if way == "after it":
                Thing.objects.create(name="in a transaction that has ended")
            raise

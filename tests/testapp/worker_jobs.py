"""Handlers that the tests of the worker run."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import getpass
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

import django_ojs as ojs
from django_ojs.models import Attempt
from django_ojs.spec import ids
from django_ojs.worker import heartbeat
from tests.testapp.models import Mark, Thing

# Ten seconds are long in a test.
heartbeat.STUCK_AFTER = float(os.environ.get("OJS_TEST_STUCK_AFTER", heartbeat.STUCK_AFTER))

#: A handler that nobody stops ends by itself after this: no test leaves one behind for long.
LONGEST = 240.0
ONCE = ojs.RetryPolicy(max_attempts=1)
AGAIN_SOON = ojs.RetryPolicy(max_attempts=3, initial_interval="PT0.1S", jitter=False)


def mark(ctx: ojs.JobContext, event: str) -> None:
    """Note what a run did."""
    Mark.objects.using("other").create(
        job_id=ctx.job.id, attempt=ctx.attempt, run=ctx.job.run, event=event
    )


def released(job_id: UUID, event: str) -> bool:
    """Return whether the test has released the job."""
    return Mark.objects.using("other").filter(job_id=job_id, event=event, run=0).exists()


@ojs.job("worker.note")
def note(ctx: ojs.JobContext, event: str = "ran") -> str:
    """Leave a mark."""
    mark(ctx, event)
    return event


@ojs.job("worker.quick")
def quick(number: int) -> int:
    """Do next to nothing."""
    return number


@ojs.job("worker.collected")
def collected() -> list[int]:
    """Return how many objects garbage collections leave out, and how many they walk through."""
    return [gc.get_freeze_count(), len(gc.get_objects())]


@ojs.job("worker.rows", retry=AGAIN_SOON)
def rows(ctx: ojs.JobContext, number: int) -> int:
    """Mark each row once, with the checkpoint in the same transaction; wait before the last."""
    first = ctx.last_checkpoint or 0
    end = time.monotonic() + LONGEST
    for row in range(first, number):
        with transaction.atomic():
            Thing.objects.create(name=f"row {row}")
            ctx.checkpoint(row + 1)
        if row == number - 2:
            mark(ctx, "started")
            while not released(ctx.job.id, "go") and time.monotonic() < end:
                time.sleep(0.02)
    return first


@ojs.job("worker.wait", retry=AGAIN_SOON)
def wait(ctx: ojs.JobContext) -> str:
    """Run until the test says "go". It can be interrupted."""
    mark(ctx, "started")
    end = time.monotonic() + LONGEST
    try:
        while not released(ctx.job.id, "go") and time.monotonic() < end:
            time.sleep(0.02)
    except BaseException as error:
        connections["other"].close()  # The exception may have come in the middle of a query.
        mark(ctx, f"stopped by {type(error).__name__}, cancelled={ctx.cancelled}")
        raise
    mark(ctx, "done")
    return "done"


@ojs.job("worker.await", retry=AGAIN_SOON)
async def wait_async(ctx: ojs.JobContext) -> str:
    """Run until the test says "go", as a coroutine."""
    await sync_to_async(mark)(ctx, "started")
    end = time.monotonic() + LONGEST
    try:
        while not await sync_to_async(released)(ctx.job.id, "go") and time.monotonic() < end:
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        await sync_to_async(mark)(ctx, f"stopped, cancelled={ctx.cancelled}")
        raise
    await sync_to_async(mark)(ctx, "done")
    return "done"


@ojs.job("worker.await_deaf")
async def deaf_async(ctx: ojs.JobContext) -> None:
    """Run until the test says "go", as a coroutine that ignores its cancellation."""
    while True:
        with suppress(asyncio.CancelledError):
            if await sync_to_async(released)(ctx.job.id, "go"):
                return
            await asyncio.sleep(0.02)


def fork_and_end(ending: str, waits: bool) -> int | None:
    """Fork, and let the child go on to the end of the handler: "return", "raise" or "exit".

    Return the child's exit code if the parent waits for it.
    """
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if waits else None
    if ending == "raise":
        raise LookupError("of the child")
    if ending == "exit":
        sys.exit(3)
    return None


@ojs.job("worker.fork", retry=ONCE)
def fork(ctx: ojs.JobContext, ending: str, waits: bool) -> int | None:
    """Go on in two processes."""
    mark(ctx, "started")
    return fork_and_end(ending, waits)


@ojs.job("worker.fork_atomic", atomic=True, retry=ONCE)
def fork_atomic(ctx: ojs.JobContext, ending: str, waits: bool) -> int | None:
    """Go on in two processes, inside a transaction."""
    mark(ctx, "started")
    Thing.objects.create(name=f"forked by {ctx.job.id}")
    return fork_and_end(ending, waits)


@ojs.job("worker.fork_async", retry=ONCE)
async def fork_async(ctx: ojs.JobContext, ending: str, waits: bool) -> int | None:
    """Go on in two processes, each with the event loop."""
    await sync_to_async(mark)(ctx, "started")
    return fork_and_end(ending, waits)


@ojs.job("worker.fork_in_thread", retry=ONCE)
async def fork_in_thread(ctx: ojs.JobContext, ending: str, waits: bool) -> int | None:
    """Go on in two processes, in the thread for the synchronous parts."""
    await sync_to_async(mark)(ctx, "started")
    return await sync_to_async(fork_and_end)(ending, waits)


@ojs.job("worker.deaf", retry=AGAIN_SOON)
def deaf(ctx: ojs.JobContext, seconds: float) -> None:
    """Sleep in C, where no exception arrives; the second run does not sleep."""
    mark(ctx, "started")
    if ctx.attempt == 1:
        time.sleep(seconds)
    mark(ctx, "done")


@ojs.job("worker.rest", retry=AGAIN_SOON)
def rest(ctx: ojs.JobContext, seconds: float) -> list[float]:
    """Sleep in every run, and need no memory meanwhile.

    Return from when till when, by a clock that all processes share and nobody sets.
    """
    began = time.monotonic()
    mark(ctx, "started")
    time.sleep(seconds)
    return [began, time.monotonic()]


@ojs.job("worker.watch")
def watch(ctx: ojs.JobContext) -> None:
    """Look at `ctx.cancelled`, and take no notice of an exception."""
    mark(ctx, "started")
    end = time.monotonic() + LONGEST
    while not ctx.cancelled and time.monotonic() < end:
        try:
            time.sleep(0.02)
        except BaseException:
            mark(ctx, "interrupted")
    mark(ctx, "saw that it was cancelled")


@ojs.job("worker.transfer", atomic=True, retry=AGAIN_SOON)
def transfer(ctx: ojs.JobContext, name: str, ending: str = "") -> str:
    """Write a row that commits with the job; before that, end as the test says, in the first run.

    "raise", "broken reference" (rejected at the commit), "die", "wait" or nothing.
    """
    Thing.objects.create(name=name)
    mark(ctx, "wrote")
    if ctx.attempt > 1:
        return name
    if ending == "raise":
        raise ValueError("the transfer failed")
    if ending == "broken reference":
        Attempt.objects.create(
            job_id=ids.uuid7(), attempt=1, run=1, outcome="failed", finished_at=ctx.job.created_at
        )
    elif ending == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif ending == "wait":
        while not released(ctx.job.id, "go"):
            time.sleep(0.02)
    return name


@ojs.job("worker.transfer_async", retry=AGAIN_SOON)
async def transfer_async(name: str, ending: str = "") -> str:
    """Return the name, or raise."""
    if ending == "raise":
        raise ValueError("the transfer failed")
    return name


@ojs.job("worker.kill_worker", retry=AGAIN_SOON)
def kill_worker(ctx: ojs.JobContext, until: int) -> None:
    """Kill the process it runs in, until the attempt that is given."""
    mark(ctx, "started")
    if ctx.attempt < until:
        os.kill(os.getpid(), signal.SIGKILL)


@ojs.job("worker.leave", retry=AGAIN_SOON)
def leave(ctx: ojs.JobContext, code: int) -> None:
    """End the process on the spot, in the first run."""
    mark(ctx, "started")
    if ctx.attempt == 1:
        os._exit(code)


@ojs.job("worker.stop_process")
def stop_process(number: int) -> None:
    """Send its process a signal, as a library does that ends what it has started."""
    os.kill(os.getpid(), number)


@ojs.job("worker.throw", retry=ojs.RetryPolicy(max_attempts=1))
def throw(kind: str) -> None:
    """Raise what no handler should."""
    if kind == "SystemExit":
        sys.exit("a secret")
    raise {"KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[kind]("a secret")


@ojs.job("worker.throw_async", retry=ojs.RetryPolicy(max_attempts=1))
async def throw_async(kind: str) -> None:
    """Raise what no coroutine should, in a task of its own."""

    async def inner() -> None:
        sys.exit("a secret")

    if kind == "in a task":
        await asyncio.gather(inner())
    await inner()


@ojs.job("worker.session")
def session() -> int:
    """Return the database session that it uses (PostgreSQL)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _read_terminal() -> None:
    with open("/dev/tty") as terminal:
        terminal.read()


@ojs.job("worker.ask", retry=ONCE)
def ask(how: str) -> None:
    """Wait for what somebody types."""
    ways: dict[str, Any] = {
        "input": input,
        "breakpoint": breakpoint,
        "getpass": getpass.getpass,
        "read": _read_terminal,
    }
    ways[how]()


@ojs.job("worker.poison", retry=AGAIN_SOON)
def poison(ctx: ojs.JobContext, how: str) -> Any:
    """Take the process down, or return what no database stores."""
    mark(ctx, "started")
    while not released(ctx.job.id, "go"):
        time.sleep(0.02)
    return POISONS[how]()


def _allocate(*, is_stubborn: bool) -> None:
    """Allocate until nothing is left, in a process that may have 64 MB more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    hoard = []
    size = 1 << 20
    while True:
        try:
            hoard.append(bytearray(size))
        except MemoryError:
            if not is_stubborn:
                raise
            # Down to the smallest: nothing is left for the others either.
            size = max(size // 2, 1 << 10)


POISONS: dict[str, Callable[[], Any]] = {
    "exit": lambda: os._exit(1),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    # A call of C code that keeps the interpreter's lock.
    "hold the GIL": lambda: ctypes.PyDLL(None).sleep(int(LONGEST * 10)),
    "catastrophic regular expression": lambda: re.match("(a+)+b", "a" * 64),
    "allocate": lambda: _allocate(is_stubborn=False),
    "allocate all": lambda: _allocate(is_stubborn=True),
    "NUL": lambda: "a\0b",
    "lone surrogate": lambda: ["\ud800"],
    "NaN": lambda: {"value": float("nan")},
    "too deep": lambda: functools.reduce(lambda inner, _: [inner], range(100), []),
    "very deep": lambda: functools.reduce(lambda inner, _: [inner], range(100_000), []),
    "no JSON": object,
    "huge integer": lambda: 10**5000,
}

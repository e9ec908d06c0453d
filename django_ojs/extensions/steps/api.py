"""What handlers call. Each function is about the job that runs here."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from django_ojs.extensions.steps import taken
from django_ojs.extensions.steps.errors import StepError
from django_ojs.extensions.steps.extension import current
from django_ojs.spec.times import parse_seconds

R = TypeVar("R")


def run(name: str, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    """Call a function once, and remember its result, which is JSON.

    A later run of the job gets the result without the call. If the process dies after the effect
    of the function and before its result is stored, it is called again: give the service that it
    calls `idempotency_key()`. In an `async def` handler, call `await arun(...)`.
    """
    result: R = current().run(name, function, args, kwargs)
    return result


async def arun(name: str, function: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any) -> R:
    """Await a function once, and remember its result; see `run`."""
    result: R = await current().arun(name, function, args, kwargs)
    return result


def atomic(name: str) -> AbstractContextManager[taken.AtomicStep]:
    """Commit rows and the step together, exactly once.

    with steps.atomic("reserve") as reserve:
        if reserve.pending:
            reserve.result = Stock.objects.reserve(order_id)
    """
    return current().atomic(name)


def sleep(name: str, until: timedelta | datetime | str | float) -> None:
    """Go on after some time, or at a time; meanwhile the job is scheduled, and holds nothing.

    `until` is a timedelta, a number of seconds, "PT5M" or "5m", or a datetime.
    """
    current().sleep(name, _until(until))


async def asleep(name: str, until: timedelta | datetime | str | float) -> None:
    """Go on after some time, or at a time; see `sleep`."""
    await sync_to_async(sleep)(name, until)


def wait(signal: str, key: str, *, timeout: timedelta | str | float | None = None) -> Any:
    """Return the payload of a signal, when it comes; the signal may have been sent before.

    Meanwhile the job is scheduled, and holds nothing. Raises WaitTimedOut, in each run.
    """
    return current().wait(
        signal, key, None if timeout is None else parse_seconds(timeout, "timeout")
    )


async def await_signal(
    signal: str, key: str, *, timeout: timedelta | str | float | None = None
) -> Any:
    """Return the payload of a signal, when it comes; see `wait`."""
    return await sync_to_async(wait)(signal, key, timeout=timeout)


def idempotency_key() -> str:
    """Return the key of the step whose function runs here, the same in each run of the job."""
    key = taken.current_key.get()
    if key is None:
        raise StepError("idempotency_key() is for the function of a step.")
    return key


def _until(value: timedelta | datetime | str | float) -> timedelta | datetime:
    return value if isinstance(value, datetime) else parse_seconds(value, "until")

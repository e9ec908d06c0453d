"""What handlers call. Each function is about the job that runs in the calling context."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from django_ojs.enqueue_options import Request
from django_ojs.extensions.steps import run_steps
from django_ojs.extensions.steps.errors import StepError
from django_ojs.extensions.steps.extension import current
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.times import parse_seconds

R = TypeVar("R")


def run(
    name: str,
    function: Callable[..., R],
    /,
    *args: Any,
    retry: RetryPolicy | None = None,
    **kwargs: Any,
) -> R:
    """Call a function once, and remember its result, which is JSON.

    A later run of the job gets the result without the call. If the process dies after the effect of
    the function and before its result is stored, it is called again: pass `idempotency_key()` to
    the service that it calls. In an `async def` handler, call `await arun(...)`.

    An exception of the function fails the job, whose retry policy decides what follows. With
    `retry`, the step has attempts of its own. Between them the job is scheduled, and spends none of
    its own. When the step has none left, the job fails for good with StepFailed, which is also an
    instance of the class of the last error.
    """
    result: R = current().run(name, function, args, kwargs, retry)
    return result


async def arun(
    name: str,
    function: Callable[..., Awaitable[R]],
    /,
    *args: Any,
    retry: RetryPolicy | None = None,
    **kwargs: Any,
) -> R:
    """Await a function once, and remember its result; see `run`."""
    result: R = await current().arun(name, function, args, kwargs, retry)
    return result


def atomic(name: str) -> AbstractContextManager[run_steps.AtomicStep]:
    """Commit rows and the step together, exactly once.

    with steps.atomic("reserve") as reserve:
        if reserve.pending:
            reserve.result = Stock.objects.reserve(order_id)
    """
    return current().atomic(name)


def sleep(name: str, until: timedelta | datetime | str | float) -> None:
    """Go on after some time, or at a time; meanwhile the job is scheduled, and uses no worker.

    `until` is a timedelta, a number of seconds, "PT5M" or "5m", or a datetime.
    """
    current().sleep(name, _until(until))


async def asleep(name: str, until: timedelta | datetime | str | float) -> None:
    """Go on after some time, or at a time; see `sleep`."""
    await sync_to_async(sleep)(name, until)


def wait(signal: str, key: str, *, timeout: timedelta | str | float | None = None) -> Any:
    """Return the payload of a signal, when it comes; the signal may have been sent before.

    Meanwhile the job is scheduled, and uses no worker. Raises WaitTimedOut, also in later runs.
    """
    return current().wait(
        signal, key, None if timeout is None else parse_seconds(timeout, "timeout")
    )


async def await_signal(
    signal: str, key: str, *, timeout: timedelta | str | float | None = None
) -> Any:
    """Return the payload of a signal, when it comes; see `wait`."""
    return await sync_to_async(wait)(signal, key, timeout=timeout)


def gather(name: str, jobs: Iterable[Request], /) -> list[Any]:
    """Start jobs, and return their results, in order, when all have ended.

    `steps.gather("labels", [label.s(part) for part in parts])`. Meanwhile the job is scheduled, and
    uses no worker. Raises StepFailed if a job did not complete, and WaitTimedOut.
    """
    return current().gather(name, list(jobs))


async def agather(name: str, jobs: Iterable[Request], /) -> list[Any]:
    """Start jobs, and return their results; see `gather`."""
    return await sync_to_async(gather)(name, jobs)


def version(name: str, latest: int = 1, /) -> int:
    """Return the version of a part of the program with which this job began the part.

    if steps.version("tax"):
        steps.run("tax", compute_tax, order_id)  # new: jobs that had passed this line have 0

    It is `latest` for a job that comes here for the first time, and is stored for its later runs.
    """
    return current().version(name, latest)


async def aversion(name: str, latest: int = 1, /) -> int:
    """Return the version of a part of the program; see `version`."""
    return await sync_to_async(version)(name, latest)


def idempotency_key() -> str:
    """Return the key of the step whose function runs here, the same in each run of the job."""
    key = run_steps.current_key.get()
    if key is None:
        raise StepError("Call idempotency_key() in the function of a step.")
    return key


def _until(value: timedelta | datetime | str | float) -> timedelta | datetime:
    return value if isinstance(value, datetime) else parse_seconds(value, "until")

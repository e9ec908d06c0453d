"""Tasks, as a project declares them."""

from __future__ import annotations

from typing import Any

import django_ojs as ojs
from tests.tasks.names import TaskContext, options, task
from tests.testapp.models import Thing


@task
def add(a: int, b: int = 10) -> int:
    return a + b


@task(queue_name="email", priority=5)
def describe(name: str, *rest: int, tone: str = "kind", **extra: Any) -> list[Any]:
    return [name, list(rest), tone, extra]


@task(takes_context=True)
def attempt(context: TaskContext, text: str) -> list[Any]:
    result = context.task_result
    return [text, context.attempt, str(result.status), result.id, result.worker_ids]


@task(takes_context=True)
async def shout(context: TaskContext, text: str) -> str:
    return f"{text.upper()} {context.attempt}"


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
def give(value: str) -> Any:
    return {"bytes": b"abc", "tuple": (1, 2), "object": object()}[value]


@task
def sendReceipt() -> None: ...


@options(
    retry=ojs.RetryPolicy(max_attempts=2, initial_interval="PT0.001S", jitter=False),
    unique=ojs.UniquePolicy(args_keys=["order"], on_conflict="ignore"),
    timeout=30,
    atomic=True,
)
@task(queue_name="email")
def book(order: int, *, note: str = "") -> int:
    return Thing.objects.create(name=f"order {order}").pk


@task(backend="second")
def elsewhere() -> None: ...

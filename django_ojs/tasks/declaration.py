"""`@options`: the options of a job, over Django's `@task`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from django_ojs.tasks.backend import OJSTask, read_options
from django_ojs.tasks.compat import Task

if TYPE_CHECKING:
    from django_ojs.enqueue_options import OptionArguments

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class OptionsDecorator(Protocol):
    """The type of `@options(...)`, which keeps the type of the task."""

    @overload
    def __call__(self, task: Task[P, R], /) -> OJSTask[P, R]: ...

    @overload  # For a task of the backport.
    def __call__(self, task: T, /) -> T: ...


def options(*, atomic: bool = False, **options: Unpack[OptionArguments]) -> OptionsDecorator:
    """Give a task the options of `@ojs.job` that `@task` does not know.

    @options(retry=ojs.RetryPolicy(max_attempts=5), timeout=30)
    @task
    def send_receipt(order_id): ...

    A task that was declared for another backend, such as Django's own in tests, stays as it is.
    Raises as `@ojs.job` does.
    """
    from django_ojs.tasks.handler import register

    given = read_options(options)

    def decorate(task: Any) -> Any:
        if not isinstance(task, Task):
            raise TypeError("@options(...) stands above @task.")
        if not isinstance(task, OJSTask):
            return task
        declared: OJSTask[..., Any] = replace(task, options=given)
        register(declared, given, atomic=atomic)
        return declared

    return cast("OptionsDecorator", decorate)

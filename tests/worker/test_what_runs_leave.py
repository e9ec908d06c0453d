"""What a run leaves behind in its process: nothing, once its outcome is stored."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from django_ojs.context import JobContext
from django_ojs.worker.executor import Executor
from django_ojs.worker.handler_call import interrupt
from django_ojs.worker.in_flight import Phase
from tests.cases import together
from tests.worker.parts import Gate, Outcomes, run_of
from tests.worker.waiting import eventually


class Large:
    """Stands for what a handler has read."""


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    # It comes late in a worker, and not because a container is nearly full.
    gc.disable()
    yield
    gc.enable()


def plain(large: Large) -> None:
    raise ValueError("no")


def kept_in_a_variable(large: Large) -> None:
    try:
        raise ValueError("no")
    except ValueError as raised:
        error = raised
    raise error


def while_handling_another(large: Large) -> None:
    try:
        plain(large)
    except ValueError as raised:
        first = raised
        del large
        raise KeyError("no") from first


def of_a_group(large: Large) -> None:
    errors = []
    with suppress(ValueError):
        plain(large)
    for _ in range(2):
        try:
            plain(large)
        except ValueError as raised:
            errors.append(raised)
    raise ExceptionGroup("no", errors)


KEPT: list[BaseException] = []


def kept_by_the_project(large: Large) -> None:
    try:
        plain(large)
    except ValueError as raised:
        KEPT.append(raised)
        raise


def in_a_cycle_of_exceptions(large: Large) -> None:
    error, other = ValueError("no"), ValueError("neither")
    error.__cause__, other.__cause__ = other, error
    raise error


RAISES = [
    plain,
    kept_in_a_variable,
    while_handling_another,
    of_a_group,
    kept_by_the_project,
    in_a_cycle_of_exceptions,
]


def sync_handler(
    raises: Callable[[Large], None], seen: list[weakref.ref[Large]]
) -> Callable[[], Any]:
    def handler() -> None:
        large = Large()
        seen.append(weakref.ref(large))
        raises(large)

    return handler


def async_handler(
    raises: Callable[[Large], None], seen: list[weakref.ref[Large]]
) -> Callable[[], Any]:
    async def handler() -> None:
        large = Large()
        seen.append(weakref.ref(large))
        await asyncio.sleep(0)
        raises(large)

    return handler


@together("raises", RAISES, ids=lambda each: each.__name__)
@together("make", [sync_handler, async_handler], ids=lambda each: each.__name__)
def test_a_failed_run_frees_what_its_handler_had(make: Any, raises: Any) -> None:
    seen: list[weakref.ref[Large]] = []
    outcomes = Outcomes()
    executor = Executor(1, outcomes)
    try:
        executor.submit([run_of(make(raises, seen))])
        outcome = outcomes.next()
        assert outcome.error is not None
        # Also while the failure is not stored yet: the database may be away.
        assert seen[0]() is None
        # The log has the lines of the traceback all the same.
        assert outcome.error.__traceback__ is not None
    finally:
        executor.close()
        KEPT.clear()


class Argument(list[int]):
    """An argument; a list has no weak references."""


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "event loop"])
@pytest.mark.parametrize("fails", [False, True], ids=["completed", "failed"])
def test_an_idle_thread_keeps_neither_arguments_nor_result(
    outcomes: Outcomes, is_async: bool, fails: bool
) -> None:
    seen: list[weakref.ref[Any]] = []

    class Result(dict[str, int]):
        pass

    def work(ctx: JobContext) -> Any:
        argument = Argument([1])
        ctx.metadata["kept with the context"] = argument
        result = Result(a=1)
        seen.extend([weakref.ref(argument), weakref.ref(result), weakref.ref(ctx)])
        if fails:
            raise ValueError("no")
        return result

    async def work_async(ctx: JobContext) -> Any:
        return work(ctx)

    executor = Executor(1, outcomes)
    try:
        executor.submit([run_of(work_async if is_async else work)])
        outcomes.next()
        # The last reference of the thread goes after the outcome was given.
        for each in seen:
            eventually(lambda each=each: each() is None, "the run is freed")  # type: ignore[misc]
    finally:
        executor.close()


@pytest.mark.interrupts
@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "event loop"])
def test_an_interrupted_run_frees_what_its_handler_had(outcomes: Outcomes, is_async: bool) -> None:
    seen: list[weakref.ref[Large]] = []
    gate = Gate()

    def work() -> None:
        large = Large()
        seen.append(weakref.ref(large))
        try:
            gate()
        except BaseException as raised:
            error = raised
            raise error from None

    async def work_async(ctx: JobContext) -> None:
        large = Large()
        seen.append(weakref.ref(large))
        try:
            await asyncio.sleep(60)
        except BaseException as raised:
            error = raised
            raise error from None

    executor = Executor(1, outcomes)
    try:
        run = run_of(work_async if is_async else work)
        executor.submit([run])
        if is_async:
            eventually(lambda: bool(seen), "the coroutine has started")
        else:
            gate.has_started()
        assert run.revoke(Phase.RUNNING, interrupt)
        gate.open()
        eventually(lambda: seen[0]() is None, "what the handler had is freed")
    finally:
        executor.close()

"""Execution middleware: wrappers round the run of a handler, the first the outermost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_ojs.middleware import ExecutionChain
from tests.middleware.samples import Inner, Outer

Next = Callable[[], Any]


def run(runs: Next, *middleware: Any, is_async: bool = False) -> Any:
    """Run a handler in a chain of these; await what an `async def` one gives."""
    chain = ExecutionChain("EXECUTION_MIDDLEWARE")
    for each in middleware:
        chain.add(each)
    context = SimpleNamespace(is_async=is_async, metadata={})
    if not is_async:
        return chain.run(context, lambda _: runs())

    async def awaited() -> Any:
        return await chain.run(context, lambda _: runs())

    return async_to_sync(awaited)()


def handler() -> str:
    Outer.calls.append("handler")
    return "result"


def boom() -> None:
    raise ValueError("it broke")


def test_without_middleware_the_handler_runs_as_it_is() -> None:
    assert run(lambda: "result") == "result"


def test_the_first_is_the_outermost() -> None:
    Outer.calls.clear()
    assert run(handler, Outer, Inner) == "result"
    assert Outer.calls == [
        "outer before",
        "inner before",
        "handler",
        "inner after",
        "outer after",
    ]


def test_an_error_passes_through_every_wrapper() -> None:
    Outer.calls.clear()
    with pytest.raises(ValueError, match="it broke"):
        run(boom, Outer, Inner)
    assert Outer.calls == ["outer before", "inner before", "inner after", "outer after"]


def test_a_wrapper_may_return_for_a_failed_handler_or_change_its_error() -> None:
    def rescue(context: Any, proceed: Next) -> Any:
        try:
            return proceed()
        except ValueError:
            return "rescued"

    def translate(context: Any, proceed: Next) -> Any:
        try:
            return proceed()
        except ValueError as error:
            raise KeyError("translated") from error

    assert run(boom, rescue) == "rescued"
    with pytest.raises(KeyError, match="translated"):
        run(boom, translate)
    assert run(boom, rescue, Outer) == "rescued"


def test_an_error_of_a_middleware_reaches_the_outer_ones() -> None:
    def broken(context: Any, proceed: Next) -> Any:
        raise ConnectionError("metrics are away")

    Outer.calls.clear()
    with pytest.raises(ConnectionError):
        run(handler, Outer, broken, Inner)
    assert Outer.calls == ["outer before", "outer after"]


def test_without_proceed_the_handler_does_not_run() -> None:
    def skip(context: Any, proceed: Next) -> Any:
        return "skipped"

    assert run(boom, skip, Outer) == "skipped"


def test_the_result_can_be_changed() -> None:
    def double(context: Any, proceed: Next) -> Any:
        return proceed() * 2

    assert run(lambda: 21, double) == 42
    assert run(lambda: 3, double, double) == 12


def test_calling_proceed_twice_is_an_error_and_the_handler_ran_once() -> None:
    ran: list[int] = []

    def twice(context: Any, proceed: Next) -> Any:
        proceed()
        return proceed()

    with pytest.raises(RuntimeError, match=r"called proceed\(\) twice"):
        run(lambda: ran.append(1), Outer, twice)
    assert ran == [1]


def test_middleware_can_leave_each_other_notes() -> None:
    def leave(context: Any, proceed: Next) -> Any:
        context.metadata["span"] = "abc"
        return proceed()

    def find(context: Any, proceed: Next) -> Any:
        return context.metadata["span"] + proceed()

    assert run(lambda: "!", leave, find) == "abc!"


def test_an_instance_is_shared_between_runs_and_a_chain_frozen_by_the_first() -> None:
    chain = ExecutionChain("EXECUTION_MIDDLEWARE", ("tests.middleware.samples.Outer",))
    context = SimpleNamespace(is_async=False)
    (middleware,) = chain
    assert chain.run(context, lambda _: 1) == chain.run(context, lambda _: 1)
    assert list(chain) == [middleware]
    with pytest.raises(RuntimeError, match="in use"):
        chain.add(Inner)


async def response() -> str:
    return "result"


async def wrap(context: Any, proceed: Next) -> Any:
    Outer.calls.append("async before")
    try:
        return await proceed()
    finally:
        Outer.calls.append("async after")


def hand_on(context: Any, proceed: Next) -> Any:
    Outer.calls.append("plain")
    return proceed()


def test_async_handlers_are_wrapped_by_async_and_plain_middleware() -> None:
    Outer.calls.clear()
    assert run(response, wrap, is_async=True) == "result"
    assert Outer.calls == ["async before", "async after"]
    Outer.calls.clear()
    assert run(response, hand_on, wrap, hand_on, is_async=True) == "result"
    assert Outer.calls == ["plain", "async before", "plain", "async after"]


def test_an_error_of_an_async_handler_passes_through_async_middleware() -> None:
    async def fail() -> None:
        boom()

    Outer.calls.clear()
    with pytest.raises(ValueError, match="it broke"):
        run(fail, wrap, is_async=True)
    assert Outer.calls == ["async before", "async after"]


def test_calling_proceed_twice_is_an_error_round_async_handlers_too() -> None:
    async def twice(context: Any, proceed: Next) -> Any:
        await proceed()
        return await proceed()

    with pytest.raises(RuntimeError, match=r"called proceed\(\) twice"):
        run(response, twice, is_async=True)


def forget(context: Any, proceed: Next) -> None:
    proceed()


async def forget_to_await(context: Any, proceed: Next) -> None:
    proceed()


@pytest.mark.parametrize(
    ("chain", "name"),
    [
        ([forget], "forget"),
        ([hand_on, forget, hand_on], "forget"),
        ([forget, wrap], "forget"),
        ([wrap, forget_to_await], "forget_to_await"),
    ],
)
def test_a_middleware_that_drops_what_proceed_returned_fails_the_run(
    chain: list[Any], name: str
) -> None:
    # A coroutine that nobody awaits would warn, which is an error in this suite.
    with pytest.raises(RuntimeError, match=rf"execution\.{name}' called proceed\(\) and dropped"):
        run(response, *chain, is_async=True)


def test_an_error_goes_before_what_was_dropped() -> None:
    def drop(context: Any, proceed: Next) -> None:
        proceed()
        raise LookupError("for another reason")

    async def adrop(context: Any, proceed: Next) -> None:
        drop(context, proceed)

    for chain in ([drop], [adrop], [wrap, drop]):
        with pytest.raises(LookupError, match="another reason"):
            run(response, *chain, is_async=True)


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_middleware_may_decide_that_an_async_handler_does_not_run(is_plain: bool) -> None:
    def skip(context: Any, proceed: Next) -> Any:
        proceed().close()
        return "skipped" if is_plain else asyncio.sleep(0, "skipped")

    chain = ExecutionChain("EXECUTION_MIDDLEWARE")
    chain.add(skip)

    async def result() -> Any:
        returned = chain.run(SimpleNamespace(is_async=True), lambda _: response())
        return returned if is_plain else await returned

    assert async_to_sync(result)() == "skipped"


def test_a_wrapper_may_run_an_async_handler_as_a_task() -> None:
    def in_a_task(context: Any, proceed: Next) -> Any:
        return asyncio.ensure_future(proceed())

    assert run(response, in_a_task, wrap, is_async=True) == "result"


@pytest.mark.parametrize("chain", [[wrap], [Outer, wrap], [wrap, Inner]])
def test_async_middleware_round_a_plain_handler_says_so_and_the_handler_does_not_run(
    chain: list[Any],
) -> None:
    ran: list[int] = []
    with pytest.raises(TypeError, match="wraps async def handlers only"):
        run(lambda: ran.append(1), *chain)
    assert ran == []

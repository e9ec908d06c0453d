"""The executor: what becomes of a handler that is a coroutine function."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from django_ojs.context import JobContext, current_context
from django_ojs.middleware import execution_chain
from django_ojs.spec.failure import ResultRejected
from django_ojs.worker.event_loop import EventLoop
from django_ojs.worker.executor import Executor
from django_ojs.worker.handler_call import interrupt
from django_ojs.worker.in_flight import Phase, Run
from tests.testapp.models import Thing
from tests.worker.parts import Outcomes, run_of
from tests.worker.waiting import BOUND, eventually


@contextmanager
def executing(slots: int, outcomes: Outcomes) -> Iterator[Executor]:
    executor = Executor(slots, outcomes)
    try:
        yield executor
    finally:
        executor.close()


async def forever(ctx: JobContext) -> None:
    ctx.metadata["started"] = True
    await asyncio.sleep(60)


def has_started(run: Run) -> None:
    eventually(lambda: "started" in run.context.metadata, "the coroutine has started")


def test_a_coroutine_gets_its_arguments_and_its_context(outcomes: Outcomes) -> None:
    async def function(ctx: JobContext, name: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"name": name, "mine": current_context() is ctx}

    with executing(1, outcomes) as executor:
        executor.submit([run_of(function, "ä")])
        assert outcomes.next().result == {"name": "ä", "mine": True}


def test_coroutines_run_side_by_side_up_to_the_slots(outcomes: Outcomes) -> None:
    running, most, both = 0, 0, threading.Event()

    async def function() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            both.set()
        while not both.is_set():
            await asyncio.sleep(0.01)
        running -= 1

    with executing(2, outcomes) as executor:
        executor.submit([run_of(function) for _ in range(6)])
        assert [outcomes.next().error for _ in range(6)] == [None] * 6
    assert most == 2


def test_what_a_coroutine_raises_or_json_rejects_is_the_outcome(outcomes: Outcomes) -> None:
    async def broken() -> None:
        raise LookupError

    async def odd() -> object:
        return object()

    with executing(1, outcomes) as executor:
        executor.submit([run_of(broken)])
        assert isinstance(outcomes.next().error, LookupError)
        executor.submit([run_of(odd)])
        assert isinstance(outcomes.next().error, ResultRejected)


async def leave() -> None:
    sys.exit(1)


async def leave_in_a_task() -> None:
    await asyncio.gather(leave())


@pytest.mark.parametrize("function", [leave, leave_in_a_task])
def test_a_coroutine_that_exits_ends_its_own_job_only(
    outcomes: Outcomes, function: Callable[[], Awaitable[None]]
) -> None:
    with executing(2, outcomes) as executor:
        executor.submit([run_of(function)])
        assert isinstance(outcomes.next().error, SystemExit)
        executor.submit([run_of(asyncio.sleep, 0)])
        assert outcomes.next().error is None


def test_an_interrupted_coroutine_is_cancelled_and_its_result_is_discarded(
    outcomes: Outcomes,
) -> None:
    run = run_of(forever)
    with executing(1, outcomes) as executor:
        executor.submit([run])
        has_started(run)
        assert run.revoke(Phase.RUNNING, interrupt)
        executor.submit([run_of(asyncio.sleep, 0)])
        outcome = outcomes.next()
    assert outcome.run is not run
    assert run.context.cancelled


def test_an_interruption_at_its_very_start_leaves_the_loop_alive(outcomes: Outcomes) -> None:
    # It is taken as soon as it says it runs, at each of many moments round its start.
    with executing(2, outcomes) as executor:
        for _ in range(200):
            run = run_of(asyncio.sleep, 60)
            executor.submit([run])
            while not run.revoke(Phase.RUNNING, interrupt):
                pass
        executor.submit([run_of(asyncio.sleep, 0)])
        assert outcomes.next().error is None


def test_an_interruption_while_the_outcome_is_reported_costs_no_slot(outcomes: Outcomes) -> None:
    # A job with synchronous parts tidies its connections on the way out; cancelled there, it must
    # not take its helper thread along.
    leaving, taken = threading.Event(), threading.Event()

    async def function() -> None:
        await sync_to_async(threading.get_ident)()

    async def stubborn() -> None:
        await sync_to_async(threading.get_ident)()
        leaving.set()
        while not taken.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                break

    with executing(1, outcomes) as executor:
        run = run_of(stubborn)
        executor.submit([run])
        assert leaving.wait(BOUND)
        assert run.revoke(Phase.RUNNING, interrupt)
        for _ in range(3):
            run.cancel_task()
        taken.set()
        for _ in range(2):
            executor.submit([run_of(function)])
            assert outcomes.next().error is None


def test_a_coroutine_that_cancels_all_tasks_takes_no_waiting_job_along(outcomes: Outcomes) -> None:
    async def cancels() -> None:
        await asyncio.sleep(0)  # The other job waits for the slot now.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with executing(1, outcomes) as executor:
        executor.submit([run_of(cancels), run_of(asyncio.sleep, 0)])
        assert [outcomes.next().error for _ in range(2)] == [None, None]


def test_a_coroutine_that_cancels_all_tasks_does_not_change_the_number_of_slots(
    outcomes: Outcomes,
) -> None:
    running, most = 0, 0

    async def cancels() -> None:
        executor.resize(1)
        await turns()  # The task that takes a slot is made, and waits for one.
        for task in asyncio.all_tasks() - {asyncio.current_task(), *busy}:
            task.cancel()
        await turns()

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def counts() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async def keeps() -> None:
        busy.append(asyncio.current_task())
        await going.wait()

    busy, going = list[Any](), asyncio.Event()
    executor = Executor(2, outcomes)
    try:
        executor.submit([run_of(keeps), run_of(cancels)])
        assert outcomes.next().error is None
        executor.submit([run_of(counts) for _ in range(4)])
        executor._loop._loop.call_soon_threadsafe(going.set)
        assert [outcomes.next().error for _ in range(5)] == [None] * 5
        assert most == 1
    finally:
        executor.close()


def test_a_middleware_that_is_a_plain_function_may_hand_the_awaitable_on(
    outcomes: Outcomes,
) -> None:
    seen: list[str] = []

    def middleware(context: JobContext, proceed: Callable[[], Any]) -> Any:
        seen.append(context.job.type)
        return proceed()

    execution_chain.cache_clear()
    execution_chain().add(middleware)
    try:
        with executing(1, outcomes) as executor:
            executor.submit([run_of(asyncio.sleep, 0)])
            assert outcomes.next().error is None
    finally:
        execution_chain.cache_clear()
    assert seen == ["test.job"]


def test_a_fork_of_the_process_starts_no_run(
    outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(asyncio.sleep, 0)
    loop = EventLoop(1, outcomes)
    monkeypatch.setattr(loop, "_forks", -1)
    loop.submit([run])
    passed = threading.Event()
    # After the first step of its task.
    loop._loop.call_soon_threadsafe(lambda: loop._loop.call_soon(passed.set))
    assert passed.wait(BOUND)
    loop.close()
    assert run.phase is Phase.WAITING


def test_a_middleware_that_drops_the_awaitable_fails_the_run(outcomes: Outcomes) -> None:
    def middleware(context: JobContext, proceed: Callable[[], Any]) -> None:
        proceed()

    execution_chain.cache_clear()
    execution_chain().add(middleware)
    try:
        with executing(1, outcomes) as executor:
            executor.submit([run_of(asyncio.sleep, 0)])
            assert "so the async def handler has not run" in str(outcomes.next().error)
    finally:
        execution_chain.cache_clear()


@pytest.mark.django_db(transaction=True)
def test_the_orm_works_in_a_coroutine_and_its_connection_is_kept_and_closed(
    outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)
    links: list[Any] = []

    async def function(name: str) -> None:
        await Thing.objects.acreate(name=name)
        links.append(await sync_to_async(lambda: connection.connection)())

    with executing(1, outcomes) as executor:
        for name in ("one", "two"):
            executor.submit([run_of(function, name)])
            assert outcomes.next().error is None
    assert Thing.objects.count() == 2
    assert links[0] is links[1]
    # What the event loop has opened it closes, or the server would keep it.
    eventually(lambda: is_closed(links[0]), "the connection is closed")


def is_closed(link: Any) -> bool:
    if hasattr(link, "closed"):
        return bool(link.closed)
    try:
        link.total_changes  # noqa: B018 - sqlite3 has no other way to ask
    except Exception as error:
        return "closed" in str(error)
    return False


def test_the_number_of_coroutines_side_by_side_can_change(outcomes: Outcomes) -> None:
    running, most, enough = 0, 0, threading.Event()

    async def function() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            enough.set()
        while not enough.is_set():
            await asyncio.sleep(0.01)
        running -= 1

    executor = Executor(1, outcomes, 2)
    try:
        executor.submit([run_of(function) for _ in range(4)])
        executor.resize(2)
        assert [outcomes.next().error for _ in range(4)] == [None] * 4
        executor.resize(1)
        most = 0
        executor.submit([run_of(function) for _ in range(4)])
        assert [outcomes.next().error for _ in range(4)] == [None] * 4
        assert most == 1
    finally:
        executor.close()

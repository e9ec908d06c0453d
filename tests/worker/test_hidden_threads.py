"""Threads that a handler uses without knowing it, after the server ended one of their sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import Error, connection, connections

from django_ojs.storage import database
from tests.testapp.models import Thing
from tests.worker.parts import Outcomes, run_of
from tests.worker.test_executor_async import executing
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def none_is_left_to_the_garbage_collector() -> Iterator[None]:
    """Close the connections of threads that nobody closes, which would be a warning."""
    yield
    for link in database.watched():
        driver: Any = link.connection
        if link is not connections[link.alias] and driver is not None:
            driver.close()


def session() -> int:
    """Return the number of the session of this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def session_and_close() -> int:
    """Do the same on a thread that ends soon."""
    try:
        return session()
    finally:
        connections.close_all()


async def orm() -> int:
    await Thing.objects.acount()
    return await sync_to_async(session)()


def in_a_loop_of_its_own() -> int:
    return asyncio.run(orm())


def by_async_to_sync() -> int:
    return async_to_sync(orm)()


def in_a_thread_of_that_loop() -> int:
    async def main() -> int:
        return await asyncio.to_thread(session_and_close)

    return asyncio.run(main())


async def by_to_thread() -> int:
    return await asyncio.to_thread(session)


async def by_an_insensitive_call() -> int:
    return await sync_to_async(session, thread_sensitive=False)()


async def by_the_orm() -> int:
    return await orm()


class Kept:
    """A loop and an executor of the project's own, which live as long as the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.executor = ThreadPoolExecutor(1)
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def in_its_executor(self) -> int:
        return self.executor.submit(session).result()

    def in_its_loop(self) -> int:
        return asyncio.run_coroutine_threadsafe(orm(), self.loop).result()

    def in_a_thread_of_its_loop(self) -> int:
        return asyncio.run_coroutine_threadsafe(by_to_thread(), self.loop).result()

    def close(self) -> None:
        self.executor.submit(connections.close_all).result()
        self.executor.shutdown()
        ended = self.loop.run_in_executor
        asyncio.run_coroutine_threadsafe(self._end(ended), self.loop).result(BOUND)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end(self, run: Callable[..., Any]) -> None:
        await run(None, connections.close_all)
        await self.loop.shutdown_default_executor()


@pytest.fixture
def kept() -> Iterator[Kept]:
    with closing(Kept()) as made:
        yield made


@pytest.fixture
def as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep connections from job to job, as `ojs_worker` does."""
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)


@contextmanager
def two_slots(outcomes: Outcomes) -> Iterator[Callable[[Callable[..., Any]], Any]]:
    with executing(1, outcomes) as executor:

        def run(function: Callable[..., Any]) -> Any:
            executor.submit([run_of(function)])
            outcome = outcomes.next()
            return outcome.result if outcome.error is None else outcome.error

        yield run


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "way",
    [
        in_a_loop_of_its_own,
        by_async_to_sync,
        in_a_thread_of_that_loop,
        by_to_thread,
        by_an_insensitive_call,
        by_the_orm,
        "in_its_executor",
        "in_its_loop",
        "in_a_thread_of_its_loop",
    ],
    ids=lambda way: way if isinstance(way, str) else way.__name__,
)
@pytest.mark.parametrize("catches", [False, True])
def test_after_the_server_ended_a_session_the_next_jobs_run(
    way: Callable[[], Any] | str,
    catches: bool,
    kept: Kept,
    outcomes: Outcomes,
    as_in_a_worker: None,
) -> None:
    function: Any = getattr(kept, way) if isinstance(way, str) else way

    def caught() -> int | None:
        try:
            return int(function())
        except Error:
            return None

    is_caught = catches and not asyncio.iscoroutinefunction(function)
    handler = caught if is_caught else (lambda: function())
    if asyncio.iscoroutinefunction(function):
        handler = function
    with two_slots(outcomes) as run:
        ended = run(handler)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [ended])
        run(handler)  # It may fail.
        if is_caught:
            # The worker does not see the error, and looks at the connections twice a second.
            eventually(lambda: isinstance(run(handler), int), "the next jobs run")
        else:
            assert isinstance(run(handler), int)


def test_a_transaction_that_the_async_orm_left_open_fails_the_job(outcomes: Outcomes) -> None:
    def begin() -> None:
        connection.set_autocommit(False)
        Thing.objects.create(name="lost")

    def function() -> None:
        asyncio.run(sync_to_async(begin)())

    with executing(1, outcomes) as executor:
        executor.submit([run_of(function)])
        assert "left a transaction" in str(outcomes.next().error)
        executor.submit([run_of(in_a_loop_of_its_own_without_error)])
        assert outcomes.next().error is None
    assert not Thing.objects.exists()


def in_a_loop_of_its_own_without_error() -> None:
    asyncio.run(Thing.objects.acount())  # type: ignore[arg-type]  # it is a coroutine


def test_handlers_with_loops_of_their_own_do_not_wait_for_each_other(outcomes: Outcomes) -> None:
    both = threading.Barrier(2)

    def meet() -> None:
        both.wait(BOUND)

    def function() -> None:
        asyncio.run(sync_to_async(meet)())

    with executing(2, outcomes) as executor:
        executor.submit([run_of(function), run_of(function)])
        assert [outcomes.next().error for _ in range(2)] == [None, None]

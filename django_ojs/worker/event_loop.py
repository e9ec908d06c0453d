"""Run `async def` handlers on an event loop."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any

from asgiref.sync import (
    SyncToAsync,
    ThreadSensitiveContext,
    markcoroutinefunction,
    sync_to_async,
)
from django.db import connections

from django_ojs import context as contexts
from django_ojs import hooks
from django_ojs.storage import database
from django_ojs.worker import forks
from django_ojs.worker.exception_copies import describable
from django_ojs.worker.forks import SyncThread
from django_ojs.worker.handler_call import (
    OnEnd,
    Recheck,
    call,
    checked_result,
    end_on_sync_thread,
    release_frames,
)
from django_ojs.worker.in_flight import Phase, Run

logger = logging.getLogger("django_ojs")


class EventLoop:
    """An event loop in its own thread, for `async def` handlers."""

    def __init__(self, slots: int, on_end: OnEnd, most: int = 0) -> None:
        self._on_end = on_end
        self._loop = asyncio.new_event_loop()
        self._slots, self._size = asyncio.Semaphore(slots), slots
        self._closing = False
        # Each running job has a thread for its synchronous parts (the ORM). The threads and their
        # connections are reused from job to job.
        self._threads = {ThreadSensitiveContext(): SyncThread() for _ in range(max(slots, most))}
        SyncToAsync.context_to_thread_executor.update(self._threads)
        self._sync_threads = deque(self._threads)
        self._recheck = Recheck()
        self._forks = forks.number()
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="ojs-async", daemon=True)
        self._thread.start()

    def submit(self, runs: list[Run]) -> None:
        """Run these jobs as slots become free."""
        self._loop.call_soon_threadsafe(self._start, runs)

    def resize(self, slots: int) -> None:
        """Run `slots` jobs at a time, at most one per thread. Running jobs continue."""
        self._loop.call_soon_threadsafe(self._resize, slots)

    async def _take_slot(self) -> None:
        await self._slots.acquire()

    def _resize(self, slots: int) -> None:
        change, self._size = slots - self._size, slots
        for _ in range(change):
            self._slots.release()
        for _ in range(-change):
            self._remove_slot()

    def _remove_slot(self) -> None:
        # The task takes a slot when one becomes free, and keeps it.
        task = self._loop.create_task(self._take_slot())
        self._taken.add(task)
        task.add_done_callback(self._slot_taken)

    def _slot_taken(self, task: "asyncio.Task[None]") -> None:
        self._taken.discard(task)
        if task.cancelled():
            # A handler has cancelled all tasks of the loop; see `_ended`.
            self._remove_slot()

    def close(self) -> None:
        """End the loop when no task is running. The process does not wait for that."""
        self._loop.call_soon_threadsafe(self._stop_when_done)

    def _stop_when_done(self) -> None:
        if self._tasks:
            self._loop.call_later(0.02, self._stop_when_done)
            return
        self._closing = True
        self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            try:
                self._loop.run_forever()
            except BaseException as error:
                # A SystemExit in a task that a handler created ends `run_forever`. The handler gets
                # it too, so the loop continues.
                logger.debug("A task of a handler raised %s", type(error).__name__)
        for sync_thread, thread in self._threads.items():
            del SyncToAsync.context_to_thread_executor[sync_thread]
            if thread.is_used:
                thread.submit(connections.close_all)
                thread.shutdown()
        self._loop.close()

    def _start(self, runs: list[Run]) -> None:
        for run in runs:
            task = self._loop.create_task(self._execute(run))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, run))

    def _ended(self, run: Run, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        run.thread = None
        if task.cancelled() and run.phase is Phase.WAITING:
            # A handler has cancelled all tasks of the loop, also those that wait for a slot.
            self._start([run])

    async def _execute(self, run: Run) -> None:
        async with self._slots:
            task = asyncio.current_task()
            assert task is not None
            # This is set before `begin`, because from then on the run may be interrupted, and its
            # thread is the loop's.
            run.cancel_task = lambda: self._loop.call_soon_threadsafe(task.cancel)
            if forks.number() != self._forks:
                # A handler has forked this process, and waits in it for something. The worker runs
                # the job, not this fork.
                return
            if not run.begin():
                return
            self._recheck.before(run)
            sync_thread = self._sync_threads.popleft()
            # This is set in the context of this task only.
            SyncToAsync.thread_sensitive_context.set(sync_thread)
            result, error = await self._call(run)
            if run.context.has_unsent:
                # The cancellation arrived after the handler had ended.
                with suppress(asyncio.CancelledError):
                    await sync_to_async(run.context.flush)()
            try:
                if self._threads[sync_thread].is_used:
                    left_open = await sync_to_async(end_on_sync_thread)(error)
                    if left_open is not None and error is None:
                        result, error = None, left_open
            except asyncio.CancelledError:
                pass  # The cancellation arrived after the handler had ended.
            finally:
                self._sync_threads.append(sync_thread)
            if error is not None:
                release_frames(error)
                database.recheck()
            if run.end():
                self._on_end(run, result, error, False)
            # An exception that the project keeps would keep this frame, and so these variables.
            del run, result, error

    async def _call(self, run: Run) -> tuple[Any, BaseException | None]:
        """Return the result of a run, and its error. It is a separate function, as in Executor."""
        try:
            contexts.enter(run.context)
            result = await run_handler(run)
        # Any exception fails the job and not the worker, as in Executor.
        except BaseException as raised:
            return None, describable(raised)
        return result, None


@markcoroutinefunction  # An `async def` would make one more coroutine for each job.
def run_handler(run: Run) -> Awaitable[Any]:
    """Call the handler of a run within the hooks `around_run`, and return the checked result."""
    ring = hooks.registry.around_run
    outcome: Awaitable[Any]
    outcome = _result_of(run) if ring is None else ring(run, partial(_result_of, run))
    return outcome


async def _result_of(run: Run) -> Any:
    returned = call(run)
    if asyncio.iscoroutine(returned) or hasattr(returned, "__await__"):
        returned = await returned
    result = checked_result(run, returned)
    if run.finish is not None:
        await sync_to_async(run.finish)()
    return result

"""Run handlers: plain ones in threads, `async def` ones on an event loop.

The answer goes to the finisher.
"""

import asyncio
import ctypes
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries

from django_ojs import context as contexts
from django_ojs.middleware import execution_chain
from django_ojs.operations import ack
from django_ojs.payloads import resolver
from django_ojs.payloads.resolver import Resolved
from django_ojs.storage import database
from django_ojs.worker.in_flight import Run

logger = logging.getLogger("django_ojs")


class Interrupted(BaseException):
    """Raised in a handler's thread when nobody waits for it any more.

    Its time was up, or it was cancelled.
    """


#: What became of a run: the result, or the exception; `atomic` runs have committed their own ACK.
Answer = Callable[[Run, Any, BaseException | None, bool], None]


class Executor:
    """The slots of a process: threads start when there is work, and go with the process."""

    def __init__(self, slots: int, answer: Answer) -> None:
        self._slots = slots
        self._answer = answer
        self._queue: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # What each thread runs; None: nothing yet, or no more.
        self._threads: dict[threading.Thread, Run | None] = {}
        # Threads that wait and are promised no run; runs that wait and are promised no thread.
        self._idle = self._waiting = 0
        self._loop: EventLoop | None = None

    def submit(self, runs: list[Run]) -> None:
        """Run these jobs, in this order, as slots come free."""
        plain = [run for run in runs if not run.handler.is_async]
        asynchronous = [run for run in runs if run.handler.is_async]
        for run in plain:
            self._queue.put(run)
        self.fill(len(plain))
        if asynchronous:
            if self._loop is None:
                self._loop = EventLoop(self._slots, self._answer)
            self._loop.submit(asynchronous)

    def close(self) -> None:
        """Let idle threads end. Runs that are under way go on."""
        with self._lock:
            for _ in self._threads:
                self._queue.put(None)
        if self._loop is not None:
            self._loop.close()

    def fill(self, added: int = 0) -> None:
        """Give waiting runs their threads. One that was interrupted and lives on holds no slot."""
        with self._lock:
            self._waiting += added
            promised = min(self._waiting, self._idle)
            self._idle -= promised
            self._waiting -= promised
            if not self._waiting:
                return
            held = sum(run is None or not run.interrupted for run in self._threads.values())
            for number in range(held, min(self._slots, held + self._waiting)):
                thread = threading.Thread(target=self._work, name=f"ojs-{number + 1}", daemon=True)
                self._threads[thread] = None
                self._waiting -= 1
                thread.start()

    def _work(self) -> None:
        try:
            while True:
                run = self._queue.get()
                if run is None or not self._execute(run):
                    return
                with self._lock:
                    if self._waiting:
                        self._waiting -= 1
                    else:
                        self._idle += 1
        except Interrupted:
            # It came late, on the way out of its job. The thread has nothing in hand, and is
            # replaced.
            pass
        finally:
            with self._lock:
                del self._threads[threading.current_thread()]
            self.fill()
            connections.close_all()

    def _execute(self, run: Run) -> bool:
        """Run one job. Return False when the thread was interrupted and must not be used again."""
        if not run.begin():
            return True
        self._threads[threading.current_thread()] = run
        result, error, committed = None, None, False
        try:
            _refresh_connections()
            contexts.enter(run.context)
            result, committed = _run_plain(run)
        except BaseException as raised:
            # Whatever a handler raises is its job's failure, not the worker's.
            error = raised
        contexts.enter(None)
        if not run.end():
            return not run.interrupted
        self._answer(run, result, error, committed)
        _refresh_connections()
        return True


def _run_plain(run: Run) -> tuple[Any, bool]:
    if not resolver.is_needed(run.job.args, run.handler.payload_kinds):
        return _run_handler(run, _nothing)
    # Before the transaction of an atomic handler: a slow host must not hold its locks.
    with Resolved(run.job.id, run.job.args, run.handler.payload_kinds) as resolved:
        run.context.resolved(resolved.args)
        return _run_handler(run, resolved.finish)


def _nothing() -> None:
    """There is nothing to check once the handler has returned."""


def _run_handler(run: Run, finish: Callable[[], None]) -> tuple[Any, bool]:
    if run.handler.atomic:
        with database.atomic():
            result = _checked(run, _call_to_end(run))
            finish()
            # The handler's rows and the job's completion commit together or not at all. Whoever has
            # taken the job from this run meanwhile makes this fail, and the rows with it.
            ack.complete(run.job.id, claim=run.claim, result=result)
        return result, True
    result = _checked(run, _call_to_end(run))
    finish()
    return result, False


def _call_to_end(run: Run) -> Any:
    try:
        return _call(run)
    finally:
        # Before the answer: what it said last is kept, whether it failed or not.
        run.context.flush()


def _call(run: Run) -> Any:
    return execution_chain().run(run.context, lambda: run.handler.run(run.context))


def _checked(run: Run, returned: Any) -> Any:
    result = run.context.result(returned)
    ack.check_result(result)
    return result


def _refresh_connections() -> None:
    # What Django does round a request: drop connections that are broken or too old, forget the
    # queries DEBUG kept.
    if any(True for _ in connections.all(initialized_only=True)):
        reset_queries()
        close_old_connections()


def interrupt(run: Run) -> None:
    """Stop a handler that is running: raise in its thread, or cancel its task.

    A thread that waits in C ends when C lets go.
    """
    run.interrupted = True
    if run.cancel_task is not None:
        run.cancel_task()
    elif run.thread_id is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(run.thread_id), ctypes.py_object(Interrupted)
        )


class EventLoop:
    """An event loop in a thread of its own, for `async def` handlers."""

    def __init__(self, slots: int, answer: Answer) -> None:
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(slots)
        self._closing = False
        # One thread for the synchronous parts (the ORM) of each job under way, and its connections,
        # kept from job to job.
        self._helpers = deque(ThreadSensitiveContext() for _ in range(slots))
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="ojs-async", daemon=True)
        self._thread.start()

    def submit(self, runs: list[Run]) -> None:
        """Run these jobs."""
        self._loop.call_soon_threadsafe(self._start, runs)

    def close(self) -> None:
        """End the loop once no task is under way. The process does not wait for it."""
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
                # A SystemExit in a task that a handler has made goes through the loop; that the
                # handler gets it too is enough.
                logger.debug("A task of a handler raised %s", type(error).__name__)
        for helper in self._helpers:
            thread = SyncToAsync.context_to_thread_executor.pop(helper, None)
            if thread is not None:
                thread.submit(connections.close_all)
                thread.shutdown()
        self._loop.close()

    def _start(self, runs: list[Run]) -> None:
        for run in runs:
            task = self._loop.create_task(self._execute(run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _execute(self, run: Run) -> None:
        async with self._slots:
            task = asyncio.current_task()
            assert task is not None
            # Before it begins: from then on it may be interrupted, and the thread is the loop's.
            run.cancel_task = lambda: self._loop.call_soon_threadsafe(task.cancel)
            if not run.begin():
                return
            helper = self._helpers.popleft()
            SyncToAsync.thread_sensitive_context.set(helper)  # The task's own, and ends with it.
            result, error, resolved = None, None, None
            try:
                contexts.enter(run.context)
                if resolver.is_needed(run.job.args, run.handler.payload_kinds):
                    resolved = await _resolved(run)
                returned = _call(run)
                result = _checked(
                    run,
                    await returned
                    if asyncio.iscoroutine(returned) or hasattr(returned, "__await__")
                    else returned,
                )
                if resolved is not None:
                    await sync_to_async(resolved.finish)()
            except BaseException as raised:  # as above
                error = raised
            if resolved is not None:
                resolved.close()
            if run.context.has_unsent:
                with suppress(asyncio.CancelledError):  # It came late.
                    await sync_to_async(run.context.flush)()
            if run.end():
                self._answer(run, result, error, False)
            try:
                if helper in SyncToAsync.context_to_thread_executor:
                    await sync_to_async(_refresh_connections)()
            except asyncio.CancelledError:
                pass  # It came late.
            finally:
                self._helpers.append(helper)


async def _resolved(run: Run) -> Resolved:
    resolved = await sync_to_async(Resolved)(run.job.id, run.job.args, run.handler.payload_kinds)
    run.context.resolved(resolved.args)
    return resolved


__all__ = ["Executor", "Interrupted", "interrupt"]

"""Run handlers: sync ones in threads, `async def` ones on an event loop."""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from django.db import connections

from django_ojs import context as contexts
from django_ojs.operations import ack
from django_ojs.payloads import resolver
from django_ojs.payloads.resolver import Resolved
from django_ojs.storage import database
from django_ojs.worker.event_loop import EventLoop
from django_ojs.worker.handler_call import (
    Interrupted,
    OnEnd,
    call,
    checked_result,
    refresh_connections,
)
from django_ojs.worker.in_flight import Run

#: Seconds for which connections count as good that were looked at after the run before.
FRESH = 0.5
NEVER = float("-inf")


class _Refreshed(threading.local):
    """When the connections of the thread were looked at after its last run."""

    at = NEVER


class Executor:
    """The slots of a process. Threads start when there is work, and end with the process."""

    def __init__(self, slots: int, on_end: OnEnd) -> None:
        self._slots = slots
        self._on_end = on_end
        self._queue: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # The run of each thread; None before its first.
        self._threads: dict[threading.Thread, Run | None] = {}
        # Waiting threads without an assigned run; waiting runs without an assigned thread.
        self._idle = self._waiting = 0
        self._loop: EventLoop | None = None
        self._refreshed = _Refreshed()

    def submit(self, runs: list[Run]) -> None:
        """Run these jobs, in this order, as slots become free."""
        sync = [run for run in runs if not run.handler.is_async]
        coroutines = [run for run in runs if run.handler.is_async]
        for run in sync:
            self._queue.put(run)
        self.fill(len(sync))
        if coroutines:
            if self._loop is None:
                self._loop = EventLoop(self._slots, self._on_end)
            self._loop.submit(coroutines)

    def close(self) -> None:
        """End idle threads. Handlers that are running continue."""
        with self._lock:
            for _ in self._threads:
                self._queue.put(None)
        if self._loop is not None:
            self._loop.close()

    def fill(self, added: int = 0) -> None:
        """Assign threads to waiting runs. An interrupted thread that lives on holds no slot."""
        with self._lock:
            self._waiting += added
            assigned = min(self._waiting, self._idle)
            self._idle -= assigned
            self._waiting -= assigned
            if not self._waiting:
                return
            slots_held = sum(run is None or not run.interrupted for run in self._threads.values())
            for number in range(slots_held, min(self._slots, slots_held + self._waiting)):
                thread = threading.Thread(
                    target=self._work, name=f"ojs-slot-{number + 1}", daemon=True
                )
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
            pass  # It arrived after the run had ended. `fill` replaces the thread.
        finally:
            with self._lock:
                del self._threads[threading.current_thread()]
            self.fill()
            connections.close_all()

    def _execute(self, run: Run) -> bool:
        """Run a job. Return False when the thread was interrupted and must not be used again."""
        if not run.begin():
            return True
        assert run.thread is not None
        self._threads[run.thread] = run
        result, error, committed = None, None, False
        try:
            if run.started - self._refreshed.at >= FRESH:
                refresh_connections()
            self._refreshed.at = NEVER
            contexts.enter(run.context)
            result, committed = run_handler(run)
        except BaseException as raised:
            # Any exception of a handler, SystemExit too, fails its job and not the worker.
            error = raised
        contexts.enter(None)
        if not run.end():
            return not run.interrupted
        self._on_end(run, result, error, committed)
        refresh_connections(error)
        self._refreshed.at = time.monotonic()
        return True


def run_handler(
    run: Run,
    *,
    call: Callable[[Run], Any] = call,
    complete: Callable[..., object] = ack.complete,
) -> tuple[Any, bool]:
    """Resolve the arguments of a run, call its handler, and check the result.

    Return the result, and whether an `atomic` handler has committed it. Tests replace `call` and
    `complete`.
    """
    if not resolver.is_needed(run.job.args, run.handler.payload_kinds):
        return _call_resolved(run, None, call, complete)
    # Before the transaction of an atomic handler, which must hold no locks while a host is slow.
    with Resolved(run.job.id, run.job.args, run.handler.payload_kinds) as resolved:
        run.context.resolved(resolved.args)
        return _call_resolved(run, resolved, call, complete)


def _call_resolved(
    run: Run,
    resolved: Resolved | None,
    call: Callable[[Run], Any],
    complete: Callable[..., object],
) -> tuple[Any, bool]:
    atomic = run.handler.atomic
    with database.atomic() if atomic else nullcontext():
        result = checked_result(run, _call_and_flush(run, call))
        if resolved is not None:
            resolved.finish()
        if atomic:
            # The handler's rows and the completion commit together or not at all: when the run has
            # lost its claim, this raises and the rows are rolled back.
            complete(run.job.id, claim=run.claim, result=result)
    return result, atomic


def _call_and_flush(run: Run, call: Callable[[Run], Any]) -> Any:
    try:
        return call(run)
    finally:
        # Before the outcome: the last progress report is stored, also when the handler failed.
        run.context.flush()

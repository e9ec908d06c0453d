"""Run handlers: sync ones in threads, `async def` ones on an event loop."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from django_ojs import context as contexts
from django_ojs import hooks
from django_ojs.operations import ack
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.storage import database, transitions
from django_ojs.worker import session_state
from django_ojs.worker.event_loop import EventLoop
from django_ojs.worker.exception_copies import describable
from django_ojs.worker.forks import SyncThread
from django_ojs.worker.handler_call import (
    FRESH,
    NEVER,
    Interrupted,
    OnEnd,
    Recheck,
    call,
    check_others_ended,
    checked_result,
    end_on_sync_thread,
    open_connections,
    refresh_connections,
    release_frames,
    transaction_left_open,
)
from django_ojs.worker.in_flight import Run
from django_ojs.worker.own_transaction import OwnTransaction
from django_ojs.worker.thread_limit import STALLED_AFTER, ThreadLimit


class _Refreshed(threading.local):
    """When the connections of the thread were checked after its last run."""

    at = NEVER


class _Slot(threading.Thread):
    """A thread that runs jobs."""

    def __init__(self, number: int, work: Callable[["_Slot"], None]) -> None:
        super().__init__(name=f"ojs-slot-{number}", daemon=True)
        self._work = work
        #: The run that it executes, or that was taken from it; None while it is idle.
        self.last: Run | None = None
        #: Wakes the thread while it is idle.
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        #: Where the async ORM runs if a handler uses it in a loop of its own. Otherwise, all
        #: handlers of the process would share one thread, which would keep a broken connection.
        self.sync_thread = SyncThread()
        self.sensitive = ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[self.sensitive] = self.sync_thread

    def run(self) -> None:
        self._work(self)

    @property
    def is_lost(self) -> bool:
        """Whether its run was interrupted. Such a thread holds no slot, even if it lives on."""
        return self.last is not None and self.last.interrupted


class Executor:
    """The slots of a process. Threads start when there is work, and end with the process."""

    def __init__(self, slots: int, on_end: OnEnd, most: int = 0) -> None:
        self._slots, self._most = slots, max(slots, most)
        self._on_end = on_end
        self._lock = threading.Lock()
        self._waiting: deque[Run] = deque()
        self._limit = ThreadLimit(slots)
        self._threads: set[_Slot] = set()
        # The threads that wait to be woken, in the order in which they began to wait.
        self._idle: dict[_Slot, None] = {}
        self._is_closed = False
        self._loop: EventLoop | None = None
        self._refreshed = _Refreshed()
        self._recheck = Recheck()
        session_state.watch()

    def submit(self, runs: list[Run]) -> None:
        """Run these jobs, in this order, as slots become free."""
        sync = [run for run in runs if not run.handler.is_async]
        coroutines = [run for run in runs if run.handler.is_async]
        if sync:
            with self._lock:
                self._waiting.extend(sync)
                self._limit.submitted(len(self._waiting))
                self._fill()
        if coroutines:
            if self._loop is None:
                self._loop = EventLoop(self._slots, self._on_end, self._most)
            self._loop.submit(coroutines)

    def resize(self, slots: int) -> None:
        """Run `slots` jobs at a time, up to the constructor's `most`. Running jobs continue."""
        with self._lock:
            self._slots = slots
            self._limit.resize(slots)
            self._fill()
        if self._loop is not None:
            self._loop.resize(slots)

    def close(self) -> None:
        """End idle threads. Handlers that are running continue."""
        with self._lock:
            self._is_closed = True
            while self._idle:
                self._idle.popitem()[0].wake.put(None)
        if self._loop is not None:
            self._loop.close()

    def fill(self) -> None:
        """Let threads take waiting runs: in place of lost threads, or beside a blocked one."""
        with self._lock:
            self._limit.stalled()
            self._fill()

    def longest_wait(self) -> float:
        """Return the seconds after which to call `fill` again; infinite if that is not needed."""
        return STALLED_AFTER if self._limit.is_reduced and self._waiting else float("inf")

    def _fill(self) -> None:
        """Wake or start a thread for each waiting run, up to the limit of threads."""
        if not self._waiting:
            return
        running = self._running()
        for number in range(running, min(self._limit.threads, running + len(self._waiting))):
            if self._idle:
                self._idle.popitem()[0].wake.put(None)
            else:
                thread = _Slot(number + 1, self._work)
                self._threads.add(thread)
                thread.start()

    def _running(self) -> int:
        """Return how many threads run jobs or are about to."""
        return sum(not thread.is_lost for thread in self._threads) - len(self._idle)

    def _work(self, thread: _Slot) -> None:
        try:
            while self._execute_next(thread):
                pass
        except Interrupted:
            pass  # The interrupt arrived after the run had ended. `fill` replaces the thread.
        finally:
            with self._lock:
                self._threads.discard(thread)
                self._idle.pop(thread, None)
                self._fill()
            connections.close_all()
            if thread.sync_thread.is_used:
                thread.sync_thread.submit(connections.close_all)
                thread.sync_thread.shutdown(wait=False)

    def _next(self, thread: _Slot) -> Run | None:
        """Wait for a run, and return it. Return None when the executor is closed."""
        while True:
            with self._lock:
                most = self._limit.threads
                is_superfluous = len(self._threads) > most and self._running() > most
                if self._waiting and not is_superfluous:
                    return self._waiting.popleft()
                if self._is_closed:
                    return None
                self._idle[thread] = None
            thread.wake.get()

    def _execute_next(self, thread: _Slot) -> bool:
        """Run a job, once there is one. Return False when the thread must not be used again."""
        run = self._next(thread)
        if run is None:
            return False
        if not run.begin():
            return True
        thread.last = run
        result, error, committed = self._call(run, thread.sensitive)
        try:
            links = open_connections()
            left_open: BaseException | None = transaction_left_open(links)
            if thread.sync_thread.is_dirty:
                ended = thread.sync_thread.submit(end_on_sync_thread, error)
                left_open = ended.result() or left_open
                thread.sync_thread.is_dirty = False
            if left_open is not None:
                result, error, committed = None, error or left_open, run.is_committed
            if error is not None:
                release_frames(error)
                database.recheck()
            if not run.end():
                return not run.interrupted
            thread.last = None
            # The run has ended, so this thread can no longer be interrupted while it holds the
            # lock.
            if self._limit.is_reduced:
                with self._lock:
                    if self._limit.ended(time.monotonic() - run.started):
                        self._fill()
            self._on_end(run, result, error, committed)
            refresh_connections(error, links)
            self._refreshed.at = time.monotonic()
            return True
        finally:
            # An exception that the project keeps would keep this frame, and so these variables.
            del run, result, error

    def _call(
        self, run: Run, sensitive: ThreadSensitiveContext
    ) -> tuple[Any, BaseException | None, bool]:
        """Return the result of a run, its error, and whether an atomic handler has committed it.

        It is a function of its own, because its frame refers to values of the handler:
        `release_frames` can clear only frames that have ended.
        """
        try:
            if run.started - self._refreshed.at >= FRESH:
                refresh_connections()
            self._recheck.before(run)
            self._refreshed.at = NEVER
            # What a handler sets in its context, such as a language or a time zone, ends with its
            # job.
            result, committed = copy_context().run(_run_in_context, run, sensitive)
        except BaseException as raised:
            # Any exception of a handler, SystemExit too, fails its job and not the worker.
            return None, describable(raised), run.is_committed
        return result, None, committed


def _run_in_context(run: Run, sensitive: ThreadSensitiveContext) -> tuple[Any, bool]:
    SyncToAsync.thread_sensitive_context.set(sensitive)
    contexts.enter(run.context)
    return run_handler(run)


def _call_and_check(run: Run) -> Any:
    returned = call(run)
    if run.handler.atomic:
        check_others_ended()
    return returned


def run_handler(
    run: Run,
    *,
    call: Callable[[Run], Any] = _call_and_check,
    complete: Callable[..., object] = ack.complete,
) -> tuple[Any, bool]:
    """Call the handler of a run within the hooks `around_run`, and check its result.

    Return the result, and whether an `atomic` handler has committed it. Tests replace `call` and
    `complete`.
    """
    ring = hooks.registry.around_run
    if ring is None:
        return _run(run, call, complete)
    outcome: tuple[Any, bool] = ring(run, partial(_run, run, call, complete))
    return outcome


def _run(run: Run, call: Callable[[Run], Any], complete: Callable[..., object]) -> tuple[Any, bool]:
    if run.handler.atomic:
        return _call_atomic(run, call, complete), True
    return _result_of(run, call), False


def _call_atomic(run: Run, call: Callable[[Run], Any], complete: Callable[..., object]) -> Any:
    claim = replace(run.claim, place=transitions.place(run.job.id))
    link = database.connection()
    commits = not link.in_atomic_block  # A test may have a transaction around this one.
    with database.atomic(), OwnTransaction(link):
        if commits:
            # It is added first, to run before the handler's own functions, which may raise.
            link.on_commit(run.note_commit)
        result = _result_of(run, call)
        # The handler's rows and the completion commit together or not at all: when the run has
        # lost its claim, or ended the transaction, this raises and the rows are rolled back.
        try:
            complete(run.job.id, claim=claim, result=result)
        except (Conflict, JobNotFound):
            run.context.cancel()
            raise
    return result


def _result_of(run: Run, call: Callable[[Run], Any]) -> Any:
    result = checked_result(run, _call_and_flush(run, call))
    if run.finish is not None:
        run.finish()
    return result


def _call_and_flush(run: Run, call: Callable[[Run], Any]) -> Any:
    try:
        return call(run)
    finally:
        # The last progress report is stored before the outcome, even when the handler failed.
        run.context.flush()

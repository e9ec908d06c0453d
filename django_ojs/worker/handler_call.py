"""Call the handler of a run, and interrupt it."""

import asyncio
import ctypes
import logging
import opcode
import sys
import threading
from collections.abc import Callable, Sequence
from traceback import clear_frames
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.middleware import execution_chain
from django_ojs.operations import ack
from django_ojs.spec.errors import Conflict, JobNotFound, OJSError
from django_ojs.spec.failure import ResultRejected, from_project
from django_ojs.spec.timeouts import limit_of
from django_ojs.storage import database
from django_ojs.worker import forks, session_state
from django_ojs.worker.in_flight import Run

#: Called on the handler's thread when it has ended: run, result, exception, and whether an `atomic`
#: handler has committed its own ACK.
OnEnd = Callable[[Run, Any, BaseException | None, bool], None]

#: Seconds for which connections count as good after they were checked at the end of a run.
FRESH: Final = 0.5
NEVER: Final = float("-inf")

#: See `_takes_lock`.
_TAKE_LOCKS: Final = frozenset(
    function.__code__
    for function in (
        logging.Handler.acquire,
        logging.Handler.release,
        threading.Condition.__enter__,
        threading.Condition.__exit__,
        getattr(logging, "_acquireLock", None),  # Python 3.13 does not have these.
        getattr(logging, "_releaseLock", None),
    )
    if function is not None
)
_LOAD_SPECIAL: Final = opcode.opmap.get("LOAD_SPECIAL")


class Interrupted(BaseException):
    """Raised in a handler's thread when its job timed out, was cancelled or must shut down."""


def call(run: Run) -> Any:
    """Call the handler through the execution middleware. Return its result, or a coroutine."""
    return execution_chain().run(run.context, forks.caller(run.handler))


def checked_result(run: Run, returned: Any) -> Any:
    """Return the result to store. Raises ResultRejected when it cannot be stored."""
    result = run.context.result(returned)
    try:
        ack.check_result(result)
    except Exception as error:  # An object of a class of the project may raise when it is read.
        reason = error.message if isinstance(error, OJSError) else type(error).__qualname__
        raise ResultRejected(f"{reason} (the handler: {run.handler.place})") from None
    return result


def release_frames(error: BaseException) -> None:
    """Free the variables of the frames of an exception, and of those that it follows from.

    They hold what the handler had, and live as long as the exception: until its failure is stored
    and logged, and for ever where the project keeps it. If a variable refers to the exception
    itself, as after `error = raised`, only a garbage collection would free both, which may come
    late. The worker's frames are also left out of the traceback: they are often more than those of
    the project, and say nothing about the error.
    """
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        clear_frames(each.__traceback__)
        left += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
    BaseException.with_traceback(error, from_project(error.__traceback__))


def was_stopped(context: JobContext, error: BaseException) -> bool:
    """Whether a run was stopped from outside, and not by an error of its handler."""
    if isinstance(error, Interrupted | asyncio.CancelledError):
        return True
    # The completion of an atomic handler was rejected: the job was cancelled, or another worker
    # has it.
    return context.cancelled and isinstance(error, Conflict | JobNotFound)


def has_timed_out(context: JobContext, seconds: float) -> bool:
    """Whether a handler that was stopped after `seconds` was stopped for its timeout."""
    limit = limit_of(context.job, settings().default_timeout)
    return seconds >= limit.total_seconds()


class Recheck:
    """Checks, now and then, connections of threads that handlers use, as by asyncio.to_thread.

    Only those on which a statement failed are checked. After a handler that failed they are
    checked at once; see `database.recheck`.
    """

    def __init__(self) -> None:
        self._at = NEVER

    def before(self, run: Run) -> None:
        """Check the connections before a run, unless that was done a moment ago."""
        if run.started - self._at >= FRESH:
            self._at = run.started
            database.recheck()


def open_connections() -> Sequence[BaseDatabaseWrapper]:
    """Return the connections of this thread. Pass them on: listing takes as long as checking."""
    return connections.all(initialized_only=True)


def transaction_left_open(
    found: Sequence[BaseDatabaseWrapper],
) -> TransactionManagementError | None:
    """Roll back transactions that a handler has left open. Return the error to report, or None."""
    error = None
    for link in found:
        if database.is_transaction_open(link):
            error = left_open_error(link)
            link.close()
            # Django would treat the closed connection as one in a transaction, and the next jobs
            # would get it.
            del connections[link.alias]
    return error


def check_others_ended() -> None:
    """Raise for a transaction of another database that an atomic handler has left open.

    The commit of the worker's own transaction would complete the job without it.
    """
    own = database.connection()
    for link in open_connections():
        if link is not own and database.is_transaction_open(link):
            raise left_open_error(link)


def left_open_error(link: BaseDatabaseWrapper) -> TransactionManagementError:
    """Return the error of a handler that has not ended its transaction."""
    if link.in_atomic_block:
        hint = (
            "Does something still hold a generator, or a context manager, that has entered "
            "atomic()?"
        )
    else:
        hint = (
            "It was begun by BEGIN, or by a statement after set_autocommit(False), and not "
            "committed: use atomic()."
        )
    return TransactionManagementError(
        f"The handler left a transaction of the database {link.alias!r} open: it was rolled back. "
        + hint
    )


def refresh_connections(
    error: BaseException | None = None, found: Sequence[BaseDatabaseWrapper] | None = None
) -> None:
    """Close the thread's connections that are broken, too old, or whose session has changed.

    `error` is the handler's. If it says that the server takes no writes, the connection to that
    server is closed as well. `found` are the connections, if the caller has listed them.
    """
    # Django does the same around a request: it closes connections that are broken or too old, and
    # clears the queries that DEBUG records.
    found = open_connections() if found is None else found
    if not found:
        return
    session_state.close_changed()
    for link in found:
        link.queries_log.clear()
    if error is not None:
        database.leave_if_read_only(error)
    for link in found:
        link.close_if_unusable_or_obsolete()


def end_on_sync_thread(error: BaseException | None) -> BaseException | None:
    """Refresh the connections of a SyncThread, on it; return the error of a transaction left open.

    `error` is the handler's.
    """
    links = open_connections()
    left_open = transaction_left_open(links)
    refresh_connections(error, links)
    return left_open


def interrupt_late(run: Run) -> None:
    """Stop a handler that was taking a lock when it was to be interrupted."""
    with run.lock:
        if not (run.is_told or run.has_ended):
            interrupt(run)


def _takes_lock(thread_id: int) -> bool:
    """Whether a thread is in a function that takes or releases a lock for its caller.

    If it gets an exception when it has the lock, it never releases it. With the lock of a log
    handler, each thread of the process that logs would then wait for ever.
    """
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return False
    code, at = frame.f_code, frame.f_lasti
    # Since Python 3.14, `with lock:` calls `__enter__` by two instructions, and the exception may
    # be raised between that call and the block.
    is_entering = at >= 2 and code.co_code[at - 2] == _LOAD_SPECIAL
    return is_entering or code in _TAKE_LOCKS


def interrupt(run: Run) -> None:
    """Stop a running handler: raise Interrupted in its thread, or cancel its task.

    A thread that waits in C code gets the exception when that code returns. The caller has the lock
    of the run, and calls `interrupt_late` until the thread has ended.
    """
    run.interrupted = True
    if run.cancel_task is not None:
        run.is_told = True
        run.cancel_task()
    elif run.thread_id is not None and not _takes_lock(run.thread_id):
        run.is_told = True
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(run.thread_id), ctypes.py_object(Interrupted)
        )

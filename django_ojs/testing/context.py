"""The test context: the jobs of one test, and what the test does with them."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from asgiref.sync import sync_to_async

from django_ojs.extension import Batch, Extension, Hooks
from django_ojs.handlers import Enqueuer, get_handler
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.states import State
from django_ojs.storage import in_memory_state, transitions
from django_ojs.testing import runner
from django_ojs.testing.clock import Clock
from django_ojs.testing.drain import Drained, drain
from django_ojs.testing.expectation import Expectation, Task, TypeOrHandler, type_of
from django_ojs.testing.injected_errors import Error, Failures
from django_ojs.testing.recorder import FakeModeError, Recorder
from django_ojs.testing.rows import InlineRows, Rows

Mode = Literal["real", "fake", "inline"]

#: unittest leaves the frames of this module out of the traceback of a failure, as pytest does with
#: those of functions that set `__tracebackhide__`.
__unittest = True

_FAILED: Final = (State.RETRYABLE, State.DISCARDED)


class TestContext:
    """The jobs that one test enqueues (ojs-testing §3).

    The assertions see the jobs that were enqueued since the test began: not those of
    `setUpTestData`, nor of other tests.
    """

    __test__ = False  # pytest takes a class with this name for a test.

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._failures = Failures()
        self._store: Rows | Recorder
        if mode == "fake":
            self._store = Recorder()
        else:
            self._store = Rows() if mode == "real" else InlineRows(self._failures)
        self._clock = Clock(lambda: self._rows("freeze()").promote())

    def _rows(self, call: str) -> Rows:
        """Return the jobs as rows. In fake mode, raises FakeModeError, which names the call."""
        if isinstance(self._store, Recorder):
            raise FakeModeError(call)
        return self._store

    def assert_enqueued(
        self,
        type: TypeOrHandler,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
        delay: timedelta | float | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """Assert that a matching job was enqueued, or `count` of them, and return them.

        A criterion that is None matches anything. `args` are all arguments. `kwargs` are some of
        them, by the handler's parameters; with it, `args` may be only the first ones. `meta` is a
        part of the job's `meta`. `scheduled_at` is compared to the millisecond, and `delay`, which
        begins with the enqueue, to the second.
        """
        __tracebackhide__ = True
        expected = Expectation(
            type, args, kwargs, queue, meta, priority, scheduled_at, delay, verb="enqueued"
        )
        return expected.check(self._store, count)

    def refute_enqueued(
        self,
        type: TypeOrHandler,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
        delay: timedelta | float | None = None,
    ) -> None:
        """Assert that no matching job was enqueued; see `assert_enqueued`."""
        __tracebackhide__ = True
        Expectation(
            type, args, kwargs, queue, meta, priority, scheduled_at, delay, verb="enqueued"
        ).refute(self._store)

    def assert_performed(
        self,
        type: TypeOrHandler,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """Assert that a matching job was enqueued and has run, whatever its outcome."""
        __tracebackhide__ = True
        rows = self._rows("assert_performed()")
        return Expectation(type, args, kwargs, queue, meta, verb="performed").check(rows, count)

    def refute_performed(
        self,
        type: TypeOrHandler,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Assert that no matching job has run."""
        __tracebackhide__ = True
        rows = self._rows("refute_performed()")
        Expectation(type, args, kwargs, queue, meta, verb="performed").refute(rows)

    def assert_completed(
        self,
        type: TypeOrHandler,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """Assert that a matching job is completed."""
        __tracebackhide__ = True
        states = (State.COMPLETED,)
        rows = self._rows("assert_completed()")
        expected = Expectation(type, args, kwargs, queue, meta, verb="completed", states=states)
        return expected.check(rows, count)

    def assert_failed(
        self,
        type: TypeOrHandler,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """Assert that a matching job failed: it is retryable or discarded."""
        __tracebackhide__ = True
        rows = self._rows("assert_failed()")
        expected = Expectation(type, args, kwargs, queue, meta, verb="failed", states=_FAILED)
        return expected.check(rows, count)

    def assert_job_state(self, job: UUID | Job | EnqueuedJob, state: State | str) -> None:
        """Assert that a job, or the one with this id, is in a state. Raises JobNotFound."""
        __tracebackhide__ = True
        job_id = job if isinstance(job, UUID) else job.id
        store = self._store
        found = store.get(job_id) if isinstance(store, Recorder) else transitions.get(job_id)
        assert found.state == state, (
            f"{found.type} {found.id} is {found.state}, not {State(state)}."
        )

    def enqueued(self, type: TypeOrHandler | None = None, *, queue: str | None = None) -> list[Job]:
        """Return the jobs that this test has enqueued, in order, as they are now."""
        return [
            job
            for job in self._store.jobs()
            if (type is None or job.type == type_of(type)) and (queue is None or job.queue == queue)
        ]

    def clear(self) -> None:
        """Delete the jobs that this test has enqueued."""
        self._store.clear()

    def drain(
        self,
        queue: str | None = None,
        *,
        max_jobs: int | None = None,
        timeout: float = 30.0,
        with_scheduled: bool = False,
        with_retries: bool = False,
    ) -> Drained:
        """Run available jobs, and the jobs that they enqueue, until none is left.

        Return how many ended in which state. `with_scheduled` and `with_retries` run scheduled and
        retryable jobs too, before they are due. A handler's exception fails its job, as in a
        worker, and is logged. Raises DrainTimeout after `timeout` seconds, and FakeModeError.
        """
        return drain(
            self._rows("drain()"),
            self._failures,
            queue=queue,
            max_jobs=max_jobs,
            timeout=timeout,
            with_scheduled=with_scheduled,
            with_retries=with_retries,
        )

    async def adrain(self, queue: str | None = None, **options: Any) -> Drained:
        """Run available jobs; see `drain`."""
        return await sync_to_async(self.drain)(queue, **options)

    def perform(self, handler: Enqueuer[...] | Task, *args: Any, **kwargs: Any) -> Any:
        """Run a handler as a worker does, with middleware and JobContext, and return its result.

        No job is stored. `handler.options(...)` gives the job options. Exceptions are raised.
        """
        enqueuer: Any = handler
        if hasattr(handler, "module_path"):
            enqueuer = get_handler(type_of(handler))
        if not isinstance(enqueuer, Enqueuer):
            raise TypeError(
                f"perform() needs a handler made by @ojs.job, or a task of OJSBackend, not "
                f"{handler!r}."
            )
        request = enqueuer.request(*args, **kwargs)
        return runner.perform(request, self._failures, in_memory=self.mode == "fake")

    async def aperform(self, handler: Enqueuer[...] | Task, *args: Any, **kwargs: Any) -> Any:
        """Run a handler; see `perform`."""
        return await sync_to_async(self.perform)(handler, *args, **kwargs)

    def freeze(self, moment: datetime) -> None:
        """Stop the clock at a moment, until the end of the test.

        `timezone.now()` returns this moment. The jobs' database also compares times with it, on
        the connection of this thread. Jobs that are due then become available.
        """
        self._rows("freeze()")
        self._clock.freeze(moment)

    def advance(self, by: timedelta) -> None:
        """Move the clock, which is frozen from then on; see `freeze`."""
        self._rows("advance()")
        self._clock.advance(by)

    def fail_next(self, type: TypeOrHandler, error: Error, times: int = 1) -> None:
        """Let the next runs of a type raise an error in place of its handler."""
        self._failures.add(type_of(type), error, times)

    def fail_all(self, type: TypeOrHandler, error: Error) -> None:
        """Let all runs of a type raise an error in place of its handler."""
        self._failures.add(type_of(type), error, None)

    def unfreeze(self) -> None:
        """Return the clock to the present; jobs stay as they are. The end of a test does this."""
        self._clock.unfreeze()


class _Contexts:
    """The open contexts of this process: one, unless tests run at once in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._innermost: list[TestContext] = []
        self._own: ContextVar[TestContext | None] = ContextVar("ojs_test_context", default=None)

    def enter(self, context: TestContext) -> TestContext | None:
        """Make a context the current one, inside the one that is returned."""
        outer = self._own.get()
        with self._lock:
            if outer in self._innermost:
                self._innermost.remove(outer)
            else:
                outer = None
            self._innermost.append(context)
        self._own.set(context)
        return outer

    def leave(self, context: TestContext, outer: TestContext | None) -> None:
        """Make the outer context the current one again."""
        with self._lock:
            self._innermost.remove(context)
            if outer is not None:
                self._innermost.append(outer)
        self._own.set(outer)

    def store(self) -> Rows | Recorder | None:
        """Return the store of the caller's context."""
        context = self._current()
        return None if context is None else context._store

    def _current(self) -> TestContext | None:
        """Return the context of the caller. Raises RuntimeError where it is not clear."""
        if not self._innermost:
            return None
        own = self._own.get()
        with self._lock:
            open_contexts = list(self._innermost)
        if own is not None:
            if own in open_contexts:
                return own
            raise RuntimeError("The test that started this thread has ended.")
        if len(open_contexts) > 1:
            raise RuntimeError(
                "Several tests run at once in this process, and this thread belongs to none: run "
                "its target by contextvars.copy_context().run."
            )
        return open_contexts[0] if open_contexts else None


_contexts: Final = _Contexts()


class TestingExtension(Extension):
    """Passes enqueues, and calls that fake mode answers, to the store of the caller's test."""

    name = "testing"
    #: Its hook is around all others of `around_push`, which get no jobs in fake mode.
    number = 5

    def hooks(self) -> Hooks:
        """Return the hooks. A store without the method of a stand-in leaves the call alone."""
        return Hooks(
            around_push=_push,
            stand_ins={
                "get": partial(_ask, "get"),
                "lock": partial(_ask, "lock"),
                "cancel": partial(_ask, "cancel"),
                **{
                    name: partial(_ask_extension, recorded)
                    for each in registry.for_tests()
                    for name, recorded in each.recorded.items()
                },
            },
        )


def _push(batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
    current = _contexts.store()
    return store() if current is None else current.push(batch, store)


def _ask(method: str, *args: Any) -> Any:
    found = getattr(_contexts.store(), method, None)
    return None if found is None else found(*args)


def _ask_extension(recorded: Callable[..., Any], *args: Any) -> Any:
    store = _contexts.store()
    if isinstance(store, Recorder):
        return recorded(store, *args)
    if isinstance(store, InlineRows) and callable(args[-1]):
        return store.run_what(args[-1])
    return None


registry.register(TestingExtension())


@contextmanager
def opened(mode: Mode) -> Iterator[TestContext]:
    """Give the block a TestContext.

    It has the jobs of this thread, of the threads and tasks that inherit its context variables,
    and, unless other tests run in this process at the same time, those of all threads.
    """
    in_memory_state.reset()
    context = TestContext(mode)
    outer = _contexts.enter(context)
    try:
        yield context
    finally:
        _contexts.leave(context, outer)
        context.unfreeze()
        in_memory_state.reset()


def real() -> AbstractContextManager[TestContext]:
    """Store the jobs of the block in the database: `with testing.real() as ojs:`."""
    return opened("real")


def fake() -> AbstractContextManager[TestContext]:
    """Record the jobs of the block in memory: `with testing.fake() as ojs:`."""
    return opened("fake")


def inline() -> AbstractContextManager[TestContext]:
    """Run each job of the block inside its enqueue: `with testing.inline() as ojs:`."""
    return opened("inline")

"""The steps that one run of a job takes: first replayed from its history, then done and stored."""

import inspect
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any, Final, NoReturn

from asgiref.sync import sync_to_async
from django.db import Error, connections
from django.utils import timezone

from django_ojs.conf import of, settings
from django_ojs.enqueue_options import Request
from django_ojs.extension import Suspended
from django_ojs.extensions.steps import gathering, sending, store
from django_ojs.extensions.steps.errors import (
    ProgramChanged,
    StepError,
    StepFailed,
    WaitTimedOut,
)
from django_ojs.extensions.steps.models import (
    MAX_NAME,
    Step,
    StepKind,
    StepSignal,
    StepStatus,
    read,
)
from django_ojs.extensions.steps.settings import StepsSettings
from django_ojs.extensions.steps.store import Held
from django_ojs.spec import json
from django_ojs.spec.envelope import check_bytes
from django_ojs.spec.errors import ClaimLost, Conflict, InvalidRequest, OJSError, PayloadTooLarge
from django_ojs.spec.failure import Failure, HandlerResponse, ResultRejected
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.storage import database
from django_ojs.storage.backoff import Backoff
from django_ojs.worker.in_flight import Run

#: The idempotency key of the step whose function runs in this context.
current_key: Final[ContextVar[str | None]] = ContextVar("ojs_step_key", default=None)


class Suspension(BaseException):
    """Raised through a handler whose job sleeps or waits.

    It is no failure, and the handler must not catch it.
    """

    def __init__(self, suspended: Suspended) -> None:
        super().__init__("The job sleeps, or waits: its handler will run again.")
        self.suspended = suspended


class Steps:
    """The steps of one run, in the order in which its handler takes them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._job = run.job
        #: None until it is read. The first run of a job has no history to read.
        self._history: list[Step] | None = [] if run.job.run == 1 else None
        self._position = 0
        self._names: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self._busy = threading.Lock()
        self._taking = ""
        #: Why this run takes no further step.
        self._over: BaseException | None = None
        #: A step that has failed, and is stored if the handler continues after all.
        self._failed: tuple[Step, bool] | None = None
        #: The transactions that were open before the run, by thread. Only a test has any.
        self._before = {threading.get_ident(): _open_in_a_test()}

    # --- what a handler calls ---------------------------------------------------------------------

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        retry: RetryPolicy | None = None,
    ) -> Any:
        with self._next(StepKind.RUN, name) as (step, is_new):
            if step.outcome != StepStatus.WAITING and not is_new:
                return self._known(step)
            with self._calling(step, retry, is_new=is_new):
                result = function(*args, **kwargs)
                if inspect.iscoroutine(result):
                    result.close()
                    raise StepError(
                        f"The function of the step {step.name!r} is async def: write `await "
                        "steps.arun(...)`, in an async def handler."
                    )
            return self._done(step, result, is_new=is_new)

    async def arun(
        self,
        name: str,
        function: Callable[..., Awaitable[Any]],
        args: Any,
        kwargs: Any,
        retry: RetryPolicy | None = None,
    ) -> Any:
        with self._alone(name):
            if self._history is None or self._failed is not None:
                await sync_to_async(self._prepare)()
            step, is_new = self._meet(StepKind.RUN, name, None, None)
            if step.outcome != StepStatus.WAITING and not is_new:
                return self._known(step)
            with self._calling(step, retry, is_new=is_new):
                result = await function(*args, **kwargs)
            return await sync_to_async(self._done)(step, result, is_new=is_new)

    @contextmanager
    def _calling(self, step: Step, retry: RetryPolicy | None, *, is_new: bool) -> Iterator[None]:
        token = current_key.set(f"{self._job.id}:{step.name}")
        try:
            yield
        except Exception as error:
            self._fail(step, error, retry, is_new=is_new)
            raise
        finally:
            current_key.reset(token)

    @contextmanager
    def atomic(self, name: str) -> Iterator["AtomicStep"]:
        from django_ojs.worker.own_transaction import OwnTransaction

        with self._next(StepKind.ATOMIC, name) as (step, is_new):
            if not is_new:
                yield AtomicStep(pending=False, result=self._known(step))
                return
            link = database.connection()
            taken = AtomicStep(pending=True, result=None)
            try:
                with database.atomic(), OwnTransaction(link):
                    yield taken
                    text, _ = self._encoded(step, taken.result, is_new=True)
                    self._insert(step, text)
            except Exception as error:
                # The commit may fail after the step was stored.
                if self._over is None and self._failed is None:
                    step.result, step.attempts = None, 0
                    self._fail(step, error, None, is_new=True)
                raise
            self._keep(step)

    def sleep(self, name: str, until: timedelta | datetime) -> None:
        with self._next(StepKind.SLEEP, name) as (step, is_new):
            if not is_new and step.outcome != StepStatus.WAITING:
                return
            if is_new:
                step.until = self._at(until)
                if step.until <= self._now():
                    self._insert(step, None)
                    self._keep(step)
                    return
            elif is_due(self._job, step) or was_woken(self._job, step):
                self._end(step, StepStatus.DONE)
                return
            self._suspend(step, is_new=is_new)

    def wait(self, name: str, key: str, timeout: timedelta | None) -> Any:
        if not sending.is_name(key):
            raise StepError(f"The key of a signal is a text of 1 to {MAX_NAME} characters.")
        with self._next(StepKind.WAIT, name, signal=name, key=key) as (step, is_new):
            if not is_new and step.outcome != StepStatus.WAITING:
                return self._known(step)
            find = partial(store.find_signal, name, key, self._got())
            found = find()
            if found is not None:
                return self._receive(step, found, is_new=is_new)
            if is_new:
                step.until = self._longest() if timeout is None else self._at(timeout)
            elif is_due(self._job, step):
                self._end(step, StepStatus.TIMED_OUT)
                return self._known(step)
            return self._suspend(step, is_new=is_new, has_come=lambda: find() is not None)

    def gather(self, name: str, requests: Sequence[Request]) -> list[Any]:
        with self._next(StepKind.GATHER, name) as (step, is_new):
            if is_new and not requests:
                self._insert(step, "[]")
                self._keep(step)
                return []
            if is_new:
                step.until, step.outcome = self._longest(), StepStatus.WAITING
                try:
                    self._stored(partial(gathering.begin, self._job, step, requests))
                except Exception as error:
                    self._fail(step, error, None, is_new=True)
                    raise
            elif step.outcome != StepStatus.WAITING:
                return list(self._known(step))
            if gathering.is_over(step):
                if is_new:
                    assert self._history is not None
                    self._history.append(step)
                return self._gathered(step)
            if is_due(self._job, step) and not is_new:
                self._end(step, StepStatus.TIMED_OUT)
                return list(self._known(step))
            return self._suspend(step, is_new=False, has_come=partial(gathering.is_over, step))

    def _gathered(self, step: Step) -> list[Any]:
        results, failed = gathering.results(step)
        if failed:
            first = "; ".join(failed[:3])
            message = f"{len(failed)} of {len(results)} jobs did not complete ({first})"
            step.error = Failure(type="StepFailed", message=message).render()
            self._end(step, StepStatus.FAILED)
        else:
            step.result, results = self._encoded(step, results, is_new=False)
            self._end(step, StepStatus.DONE)
        return list(self._known(step))

    def version(self, name: str, latest: int) -> int:
        if name in self._versions:
            return self._versions[name]
        with self._alone(name):
            self._prepare()
            _check_name(name)
            assert self._history is not None
            version = latest
            if self._position == len(self._history):
                step = self._new(StepKind.VERSION, name)
                self._insert(step, json.dumps(latest))
                self._keep(step)
            else:
                step = self._history[self._position]
                if (step.name, step.kind) == (name, StepKind.VERSION):
                    self._position += 1
                    version = step.value
                else:
                    version = 0
            self._versions[name] = version
            return version

    async def afinish(self) -> None:
        """Do the same for an `async def` handler; only a failed step needs another thread."""
        if self._failed is not None:
            await sync_to_async(self.finish)()
        else:
            self.finish()

    def finish(self) -> None:
        """Check that the handler, which has returned, took all steps of its history.

        If its last step failed, and it caught the error, the step is stored.
        """
        if self._over is not None:
            raise self._over
        if self._failed is not None:
            self._prepare()
        if self._history and self._position < len(self._history):
            left = self._history[self._position]
            raise ProgramChanged(
                f"The handler has returned, and the history of its job says that the step "
                f"{left.name!r} comes next. Its program was changed."
            )

    # --- the next step ----------------------------------------------------------------------------

    @contextmanager
    def _next(
        self, kind: StepKind, name: str, signal: str | None = None, key: str | None = None
    ) -> Iterator[tuple[Step, bool]]:
        """Yield the next step, and whether it is new. No other step can begin in the block."""
        with self._alone(name):
            self._prepare()
            yield self._meet(kind, name, signal, key)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise StepError(
                f"The step {name!r} begins while {self._taking!r} is not done. The steps of a job "
                "follow each other. To do work at the same time, enqueue other jobs."
            )
        try:
            self._taking = name
            self._check()
            yield
        except (ProgramChanged, Suspension) as error:
            self._over = error
            raise
        finally:
            self._busy.release()

    def _check(self) -> None:
        """Raise an error if no step can be taken here, before anything is done."""
        if self._over is not None:
            raise self._over
        job = self._job
        if job.worker_id is None:
            raise StepError("Steps need a job that is stored: enqueue it, and let a worker run it.")
        if self._run.context.cancelled:
            raise ClaimLost(
                "This run no longer holds the job: it takes no further step.",
                details={"job_id": str(job.id)},
            )
        if self._run.handler.atomic:
            raise StepError(
                "A handler with atomic=True takes no steps: they would vanish with its "
                "transaction. Leave atomic out, and write the rows in `steps.atomic`."
            )
        thread = threading.get_ident()
        if (before := self._before.get(thread)) is None:
            before = self._before[thread] = _open_in_a_test()
        for alias, depth in _depths().items():
            if depth > before.get(alias, _NOT_OPEN):
                raise StepError(
                    f"The step {self._taking!r} is taken in a transaction of the handler (the "
                    f"database {alias!r}): a rollback would undo it. Take it outside of atomic(), "
                    "or write the rows in `steps.atomic`."
                )
        if "checkpoint" in job.more:
            raise StepError("The job has saved a checkpoint: it cannot take steps as well.")

    def _prepare(self) -> None:
        """Read the history, once. Store a failed step if the handler has gone on after it."""
        if self._history is None:
            self._history = store.of(self._job)
        if self._failed is not None:
            (failed, is_new), self._failed = self._failed, None
            write = store.insert if is_new else store.update
            self._stored(partial(write, self._job, failed))
            if is_new:
                self._history.append(failed)
            self._position += 1

    def _meet(
        self, kind: StepKind, name: str, signal: str | None, key: str | None
    ) -> tuple[Step, bool]:
        _check_name(name)
        count = self._names[name] = self._names.get(name, 0) + 1
        own = name if count == 1 else f"{name}#{count}"
        assert self._history is not None
        if self._position < len(self._history):
            step = self._history[self._position]
            taken = (step.name, step.kind)
            if taken != (own, kind) or (key is not None and step.key != key):
                raise ProgramChanged(
                    f"The handler takes the step {_named(own, kind, key)}, and the history of its "
                    f"job says {_named(step.name, step.kind, step.key)}. Its program was changed."
                )
            self._position += step.outcome != StepStatus.WAITING
            return step, False
        return self._new(kind, own, signal, key), True

    def _new(
        self, kind: StepKind, name: str, signal: str | None = None, key: str | None = None
    ) -> Step:
        most = of(StepsSettings).max_steps
        if self._position >= most:
            raise StepError(
                f"A job takes at most {most} steps (MAX_STEPS). Let it enqueue other jobs."
            )
        return Step(
            job_id=self._job.id,
            number=self._position,
            name=name,
            kind=kind,
            signal=signal,
            key=key,
            run=self._job.run,
            started_at=self._now(),
        )

    # --- its outcome ------------------------------------------------------------------------------

    def _known(self, step: Step) -> Any:
        """Return the result of a step of the history, or raise the error that it ended with."""
        if step.outcome == StepStatus.FAILED:
            raise _failure_of(step)
        if step.outcome == StepStatus.TIMED_OUT:
            if step.kind == StepKind.GATHER:
                raise WaitTimedOut(f"The jobs of the step {step.name!r} did not end in time.")
            raise WaitTimedOut(f"The signal {step.signal!r} of {step.key!r} did not come in time.")
        return step.value

    def _done(self, step: Step, result: Any, *, is_new: bool) -> Any:
        text, value = self._encoded(step, result, is_new=is_new)
        if is_new:
            self._insert(step, text)
            self._keep(step)
        else:
            step.result = text
            step.attempts += 1
            self._end(step, StepStatus.DONE)
        return value

    def _encoded(self, step: Step, result: Any, *, is_new: bool) -> tuple[str | None, Any]:
        """Return a result as JSON, and as a later run will get it; if it is none, note that."""
        if result is None:
            return None, None
        try:
            exact = settings().exact_integers
            most = json.check(result, "result", exact_integers=exact, error=InvalidRequest)
            if most > (limit := of(StepsSettings).max_step_result_bytes):
                check_bytes(result, limit, "result", PayloadTooLarge)
        except OJSError as error:
            undone = step.kind == StepKind.ATOMIC
            effects = "which was rolled back" if undone else "whose effects remain"
            rejected = ResultRejected(f"{error.message} (the step {step.name!r}, {effects})")
            self._fail(step, rejected, None, is_new=is_new)
            raise rejected from None
        text = json.dumps(result)
        return text, read(text)

    def _insert(self, step: Step, text: str | None) -> None:
        step.result = text
        step.outcome = StepStatus.DONE
        step.attempts += 1
        step.ended_at = self._now()
        self._stored(partial(store.insert, self._job, step))

    def _end(self, step: Step, outcome: StepStatus) -> None:
        """Store the outcome of a step that waited."""
        step.outcome = outcome
        step.run = self._job.run
        step.ended_at = self._now()
        self._stored(partial(store.update, self._job, step))
        self._position += 1

    def _receive(self, step: Step, found: StepSignal, *, is_new: bool) -> Any:
        step.signal_id = found.pk
        if is_new:
            self._insert(step, found.payload)
            self._keep(step)
        else:
            step.result = found.payload
            self._end(step, StepStatus.DONE)
        return step.value

    def _keep(self, step: Step) -> None:
        assert self._history is not None
        self._history.append(step)
        self._position += 1

    def _fail(
        self, step: Step, error: Exception, retry: RetryPolicy | None, *, is_new: bool
    ) -> None:
        """Decide what follows a function's error: raise Suspension or StepFailed, or return."""
        if not is_new and self._job.attempt == 1:
            # After a retry by hand, it has all its attempts again.
            step.attempts = 0
        step.attempts += 1
        step.ended_at = self._now()
        failure = Failure.from_exception(error, backtrace=settings().backtraces, keep_class=True)
        step.error = failure.render()
        if retry is not None:
            decision = retry.decide(
                attempt=step.attempts,
                error_type=failure.type,
                code=failure.code,
                retryable=failure.retryable,
                random=random.random,
                delay=failure.delay,
            )
            if decision.action == "retry":
                step.until = self._now() + decision.delay
                self._suspend(step, is_new=is_new)
        step.outcome = StepStatus.FAILED
        self._failed = (step, is_new)
        if retry is not None and not isinstance(error, HandlerResponse):
            raise _failure_of(step) from error

    def _stored(self, write: Callable[[], None]) -> None:
        """Write; repeat it while the database is unavailable: the step has had its effect."""
        link, backoff = database.connection(), Backoff()
        while True:
            try:
                return write()
            except Conflict as error:
                self._over = error
                self._run.context.cancel()
                raise
            except Error as error:
                is_lost = self._run.context.cancelled
                if link.in_atomic_block or is_lost or not database.is_unavailable(error):
                    raise
            link.close()
            time.sleep(backoff.pause())

    def _suspend(
        self, step: Step, *, is_new: bool, has_come: Callable[[], bool] | None = None
    ) -> NoReturn:
        assert step.until is not None
        step.outcome = StepStatus.WAITING
        step.run = self._job.run
        expires_at = self._job.expires_at
        if expires_at is not None and step.until > expires_at:
            raise StepError(
                f"The step {step.name!r} would wait until {step.until:%Y-%m-%d %H:%M:%S} UTC, and "
                f"its job expires at {expires_at:%Y-%m-%d %H:%M:%S} UTC."
            )
        write = partial(store.suspend, self._job, step, is_new=is_new, has_come=has_come)
        raise Suspension(Suspended(store=write))

    # --- times ------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        """Return the time by the clock of the database, without a query."""
        assert self._job.started_at is not None
        passed = time.monotonic() - self._run.claimed_at
        return self._job.started_at + timedelta(seconds=passed)

    def _at(self, until: timedelta | datetime) -> datetime:
        now = self._now()
        if isinstance(until, datetime):
            if timezone.is_naive(until):
                raise StepError("A step needs a datetime with a time zone.")
            until -= now
        longest = of(StepsSettings).longest_wait
        if until > longest:
            raise StepError(
                f"The step {self._taking!r} would wait for {until}: the longest is {longest} "
                "(LONGEST_WAIT)."
            )
        return now + until

    def _longest(self) -> datetime:
        longest = self._now() + of(StepsSettings).longest_wait
        expires_at = self._job.expires_at
        return longest if expires_at is None else min(longest, expires_at)

    def _got(self) -> list[int]:
        """Return the ids of the signals that the job got in earlier steps."""
        return [step.signal_id for step in self._history or () if step.signal_id is not None]


def is_due(job: Held, step: Step) -> bool:
    """Whether the time of a step that waits had come when the run began."""
    assert job.started_at is not None
    return step.until is None or step.until <= job.started_at


def was_woken(job: Held, step: Step) -> bool:
    """Whether an operator ran the job before its sleep was over.

    Then this run directly follows the one that began the sleep. It is no retry by hand, which
    begins with attempt 1.
    """
    return job.run == step.run + 1 and job.attempt > 1


class AtomicStep:
    """A step whose rows commit together with it."""

    def __init__(self, *, pending: bool, result: Any) -> None:
        #: Whether the block must do the work. It is False if an earlier run has done it.
        self.pending = pending
        #: The result of the step. The block sets it, and a later run finds it here.
        self.result = result


_Depth = tuple[bool, int]
_NOT_OPEN: Final[_Depth] = (False, 0)


def _depths() -> Mapping[str, _Depth]:
    """Return the number of open atomic blocks of each connection that has a transaction."""
    return {
        link.alias: (True, len(link.atomic_blocks))
        for link in connections.all(initialized_only=True)
        if database.is_transaction_open(link)
    }


def _open_in_a_test() -> Mapping[str, _Depth]:
    """Return the transactions open on this thread before the run: none in a worker."""
    return {} if is_thread_of_worker() else _depths()


def is_thread_of_worker() -> bool:
    """Whether a worker has started this thread; then no transaction is open before a run."""
    return threading.current_thread().name.startswith("ojs-")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or "#" in name:
        raise StepError(f"The name of a step is a text of 1 to {MAX_NAME} characters without '#'.")


def _named(name: str, kind: str, key: str | None) -> str:
    return f"{name!r} ({kind})" if key is None else f"{name!r} ({kind} for {key!r})"


def _failure_of(step: Step) -> StepFailed:
    """Return the error of a failed step, also an instance of the class that its function raised."""
    error = step.error or {}
    message = f"{error.get('message', '')} (the step {step.name!r})"
    path = error.get("exception_class")
    if isinstance(path, str):
        module, _, name = path.rpartition(".")
        try:
            raised = getattr(import_module(module), name)
            # The methods of the class need what its own __init__ would have set.
            own = {"__init__": Exception.__init__, "__str__": Exception.__str__}
            made: Any = type(f"StepFailed_{name}", (StepFailed, raised), own)
            both: StepFailed = made(message)
        except Exception:
            return StepFailed(message)
        return both
    return StepFailed(message)

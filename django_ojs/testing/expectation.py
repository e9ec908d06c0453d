"""What a test expects of its jobs, and the message that says how the nearest jobs differ."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from reprlib import Repr
from typing import Any, Final, Protocol

from django.db import connections

from django_ojs.handlers import Handler, get_handler, job_types
from django_ojs.job_type import job_type_of
from django_ojs.models import Job
from django_ojs.operations.enqueue.result import Outcome, as_stored
from django_ojs.spec import times
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.testing.recorder import Recorder
from django_ojs.testing.rows import Rows


class Task(Protocol):
    """A task of `django.tasks`, which runs as a job."""

    @property
    def module_path(self) -> str:
        """The import path of its function."""
        ...


TypeOrHandler = str | Handler[..., Any] | Task

__unittest = True  # See `context`.

#: The most jobs in a message, and the most lines about each.
MAX_JOBS: Final = 5
MAX_LINES: Final = 10

_DELAY_TOLERANCE: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)


def type_of(given: TypeOrHandler) -> str:
    """Return the job type that a test names. Raises TypeError."""
    if isinstance(given, Handler):
        return given.type
    if isinstance(given, str):
        return given
    path = getattr(given, "module_path", None)
    if isinstance(path, str):
        return job_type_of(path)
    raise TypeError(f"A job type, a handler or a task is needed, not {given!r}.")


class Expectation:
    """A description of jobs; a criterion that is None matches anything."""

    def __init__(
        self,
        type: TypeOrHandler,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
        delay: timedelta | float | None = None,
        *,
        verb: str,
        states: Collection[State] | None = None,
    ) -> None:
        self._type = type_of(type)
        self._handler = type if isinstance(type, Handler) else get_handler(self._type)
        self._args = None if args is None else as_stored(list(args))
        self._kwargs = None if kwargs is None else self._checked(as_stored(dict(kwargs)))
        self._queue = queue
        self._meta = None if meta is None else as_stored(dict(meta))
        self._priority = priority
        self._scheduled_at = scheduled_at
        self._delay = delay if isinstance(delay, timedelta | None) else timedelta(seconds=delay)
        self._verb = verb
        self._states = states

    def _checked(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._handler is None:
            raise LookupError(
                f"kwargs= needs the handler of {self._type!r}, whose parameters they name; without "
                "one, use args=."
            )
        for name in kwargs:
            known = name in self._handler.parameters
            if not known and self._handler.keyword_parameter(name) is None:
                names = list(self._handler.parameters)
                raise TypeError(
                    f"{self._type} has no parameter {name}. {did_you_mean(name, names)}"
                )
        return kwargs

    def __str__(self) -> str:
        given = {
            "args": self._args,
            "kwargs": self._kwargs,
            "queue": self._queue,
            "meta": self._meta,
            "priority": self._priority,
            "scheduled_at": self._scheduled_at and times.format_timestamp(self._scheduled_at),
            "delay": self._delay and times.format_duration(self._delay),
        }
        shown = [f"{name}={_text(value)}" for name, value in given.items() if value is not None]
        return f"{self._type} with {', '.join(shown)}" if shown else self._type

    def check(self, store: Rows | Recorder, count: int | None) -> list[Job]:
        """Return the matching jobs. Raises AssertionError unless `count` match, or any if None."""
        __tracebackhide__ = True
        jobs = store.jobs()
        found = [job for job in jobs if not any(self.differences(job))]
        if (len(found) == count) if count is not None else found:
            return found
        lines = [self._head(found, "" if count is None else f", {count} expected")]
        lines += [f"  {_name(job)}" for job in found[:MAX_JOBS]]
        if len(found) < (1 if count is None else count):
            lines += self._misses([job for job in jobs if job not in found])
            lines += [f"* {hint}" for hint in self._hints(store, jobs)]
        raise AssertionError("\n".join(lines))

    def refute(self, store: Rows | Recorder) -> None:
        """Raise AssertionError if a job matches."""
        __tracebackhide__ = True
        found = [job for job in store.jobs() if not any(self.differences(job))]
        if found:
            lines = [self._head(found, ", none expected")]
            lines += [f"  {_name(job)}, args={_text(job.args)}" for job in found[:MAX_JOBS]]
            lines += _and_more(len(found) - MAX_JOBS)
            raise AssertionError("\n".join(lines))

    def _head(self, found: Sequence[Job], expected: str) -> str:
        number = len(found) or "No"
        return f"{number} matching job{'s'[: len(found) > 1]} {self._verb}{expected}: {self}"

    def differences(self, job: Job) -> Iterator[str]:
        """Yield how a job differs from what is expected, one line for each value."""
        if job.type != self._type:
            yield _differs("type", self._type, job.type)
        if self._args is not None:
            args = job.args
            if self._handler is not None and job.type == self._type:
                positional, keywords = self._handler.split_keywords(args)
                # `args` alone need not contain keywords that the call did not give.
                args = args if keywords and self._kwargs is None else positional
                if keywords == {} and len(self._args) > len(positional):
                    args = job.args
            yield from self._of_args(args if self._kwargs is None else args[: len(self._args)])
        if self._kwargs is not None and job.type == self._type:
            yield from self._of_kwargs(self._kwargs, job.args)
        if self._queue is not None and job.queue != self._queue:
            yield _differs("queue", self._queue, job.queue)
        if self._meta is not None:
            actual = {name: job.meta[name] for name in self._meta if name in job.meta}
            yield from _compare("meta", self._meta, actual)
        if self._priority is not None and job.priority != self._priority:
            yield _differs("priority", self._priority, job.priority)
        yield from self._of_time(job)
        if self._states is not None and job.state not in self._states:
            expected = " or ".join(self._states)
            yield f"state: expected {expected}, got {job.state}{_error(job)}"
        elif self._verb == "performed" and not job.run:
            yield f"it has not run; it is {job.state}"

    def _of_args(self, actual: list[Any]) -> Iterator[str]:
        assert self._args is not None
        names = [f" ({name})" for name in self._handler.parameters] if self._handler else []
        for index in range(max(len(self._args), len(actual))):
            where = f"args[{index}]{names[index] if index < len(names) else ''}"
            yield from _compare(where, _item(self._args, index), _item(actual, index))

    def _of_kwargs(self, expected: dict[str, Any], args: list[Any]) -> Iterator[str]:
        assert self._handler is not None
        args, keywords = self._handler.split_keywords(args)
        for name, value in expected.items():
            keyword = self._handler.keyword_parameter(name)
            if keyword is not None:
                default = _MISSING if keyword.default is keyword.empty else keyword.default
                yield from _compare(name, value, (keywords or {}).get(name, default))
        for index, (name, parameter) in enumerate(self._handler.parameters.items()):
            if name not in expected:
                continue
            default = _MISSING if parameter.default is parameter.empty else parameter.default
            actual = args[index] if index < len(args) else default
            yield from _compare(f"args[{index}] ({name})", expected[name], actual)

    def _of_time(self, job: Job) -> Iterator[str]:
        if self._scheduled_at is None and self._delay is None:
            return
        text = job.options.get("scheduled_at")
        if text is None:
            yield "scheduled_at: expected a time, got none; the job was available at once"
            return
        at = times.parse_timestamp(str(text), "scheduled_at")
        if self._scheduled_at is not None and abs(at - self._scheduled_at) >= _MILLISECOND:
            wanted = times.format_timestamp(self._scheduled_at)
            yield f"scheduled_at: expected {wanted}, got {times.format_timestamp(at)}"
        if self._delay is not None:
            actual = at - job.created_at
            if abs(actual - self._delay) > _DELAY_TOLERANCE:
                yield f"delay: expected {self._delay}, got {actual}"

    def _misses(self, jobs: Sequence[Job]) -> Iterator[str]:
        if not jobs:
            return
        differences = [(job, list(self.differences(job))) for job in jobs]
        differences.sort(key=lambda pair: (pair[0].type != self._type, len(pair[1])))
        yield "Nearest first, this test enqueued:"
        for number, (job, lines) in enumerate(differences[:MAX_JOBS], 1):
            yield f"{number}. {_name(job)}"
            shown = lines if len(lines) < MAX_LINES else lines[: MAX_LINES - 2]
            yield from (f"     {line}" for line in shown)
            if len(shown) < len(lines):
                yield f"     and {len(lines) - len(shown)} more differences"
        yield from _and_more(len(jobs) - MAX_JOBS)

    def _hints(self, store: Rows | Recorder, jobs: Sequence[Job]) -> Iterator[str]:
        """Yield why an enqueued job may not be among those of the test."""
        present = {job.pk for job in jobs}
        mine = [result for result in store.results if result.type == self._type]
        gone = [r for r in mine if r.outcome is Outcome.STORED and r.id not in present]
        if gone:
            yield (f"{_jobs(gone)} enqueued and then rolled back with the transaction, or deleted.")
        dropped = [r for r in mine if r.outcome is Outcome.DROPPED]
        if dropped:
            yield f"{_jobs(dropped)} dropped by an enqueue middleware."
        outbox = [r for r in mine if r.outcome is Outcome.OUTBOX]
        if outbox:
            names = ", ".join(sorted({str(r.destination) for r in outbox}))
            yield (
                f"{_jobs(outbox)} stored in the outbox for {names}, and not as a job "
                "of this site: see django_ojs.extensions.outbox.models.OutboxEntry."
            )
        duplicates = [r for r in mine if r.outcome is Outcome.DUPLICATE]
        if duplicates:
            yield (f"{_jobs(duplicates)} not stored, because its unique policy found another job.")
        callbacks = list(_waiting_for_a_commit())
        if callbacks:
            yield (
                f"{len(callbacks)} on_commit function{'s wait' if callbacks[1:] else ' waits'} for "
                f"a commit, which this test never makes: {', '.join(callbacks[:3])}. Run the code "
                "inside captureOnCommitCallbacks(execute=True), or with pytest's fixture "
                "django_capture_on_commit_callbacks."
            )
        if not store.results and not jobs and not callbacks:
            yield (
                "This test enqueued no job at all. Did the code reach its enqueue? Did it run in "
                "setUpTestData, or in another process? Those are not the jobs of the test."
            )
        elif not mine and get_handler(self._type) is None:
            known = [*job_types(), *(job.type for job in jobs)]
            yield f"The type {self._type!r} has no handler here. {_suggestion(self._type, known)}"


def _waiting_for_a_commit() -> Iterator[str]:
    """Yield the names of the project's functions that an open transaction runs at its commit."""
    for link in connections.all(initialized_only=True):
        for entry in link.run_on_commit:
            function: Any = entry[1]
            module = str(getattr(function, "__module__", None))
            if module.partition(".")[0] != "django_ojs":
                name = getattr(function, "__qualname__", None) or repr(function)
                yield f"{module}.{name}" if module != "None" else name


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING: Final = _Missing()
_repr = Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 100
_repr.maxlist = _repr.maxdict = _repr.maxlevel = 6


def _text(value: object) -> str:
    return _repr.repr(value)


def _item(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else _MISSING


def _compare(where: str, expected: Any, actual: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in {**expected, **actual}:
            path = f"{where}[{key!r}]"
            yield from _compare(path, expected.get(key, _MISSING), actual.get(key, _MISSING))
    elif isinstance(expected, list) and isinstance(actual, list):
        for index in range(max(len(expected), len(actual))):
            path = f"{where}[{index}]"
            yield from _compare(path, _item(expected, index), _item(actual, index))
    elif expected != actual or _are_number_and_boolean(expected, actual):
        yield _differs(where, expected, actual)


def _are_number_and_boolean(expected: Any, actual: Any) -> bool:
    # In Python 1 == True; in JSON they differ. Other types decide themselves, as mock.ANY does.
    number = type(expected) in (bool, int, float)
    return number and isinstance(expected, bool) != isinstance(actual, bool)


def _differs(where: str, expected: object, actual: object) -> str:
    return f"{where}: expected {_text(expected)}, got {_text(actual)}"


def _name(job: Job) -> str:
    return f"{job.type} {job.pk} ({job.state})"


def _error(job: Job) -> str:
    return f" ({job.error['type']}: {_text(job.error['message'])})" if job.error else ""


def _and_more(number: int) -> list[str]:
    return [f"and {number} more"] if number > 0 else []


def _jobs(results: Sequence[object]) -> str:
    return (
        "1 job of this type was" if len(results) == 1 else f"{len(results)} jobs of this type were"
    )


def _suggestion(name: str, known: Collection[str]) -> str:
    text = did_you_mean(name, sorted(set(known)))
    return text if text.startswith("Did") else ""

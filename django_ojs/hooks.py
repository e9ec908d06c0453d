"""The registry of the extensions, and the functions by which the core calls their hooks.

`django_ojs.extension` describes what each hook gets, and what an error in it does.
"""

import logging
import time
from asyncio import CancelledError
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.utils import timezone

from django_ojs.extension import (
    FIRST_FREE_NUMBER,
    Act,
    Around,
    Change,
    Closing,
    Count,
    DueStep,
    Extension,
    ForTests,
    Hooks,
    Numbers,
    Readmission,
    Reads,
)
from django_ojs.spec import queue_config
from django_ojs.spec.envelope import optional_checks, store_with
from django_ojs.spec.errors import InvalidRequest, OJSError, QueueFull
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database

if TYPE_CHECKING:
    from django_ojs.claim_rules import ClaimRule

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: Set on an error that has undone a change of states: the name of the extension that raised it.
UNDONE_BY: Final = "_ojs_undone_by"

#: The rules of a queue are bits of one column, by their numbers.
MOST_NUMBERS: Final = 63


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeHooks:
    """The hooks for the changes of one trigger."""

    changed: tuple[tuple[str, Callable[[Change], object]], ...]
    committed: tuple[tuple[str, Callable[[Change], object]], ...]
    reads: Reads


_Publisher: TypeAlias = tuple[str, frozenset[EventType], Callable[[Sequence[NewEvent]], object]]
_Named: TypeAlias = tuple[tuple[str, Callable[..., Any]], ...]


class Failed(NamedTuple):
    """What an extension failed to do, the type of the error, and when."""

    what: str
    error: str
    at: datetime


class Registry:
    """The hooks of all extensions, in the order of their numbers.

    Most hooks are kept with the name of their extension, for the log.
    """

    def __init__(self) -> None:
        self._extensions: dict[int, Extension] = {}
        #: The hooks that an extension returned last, which are used while the settings are wrong.
        self._hooks: dict[int, Hooks] = {}
        #: The last failure of each extension in this process, by its name.
        self.failures: dict[str, Failed] = {}
        #: Called before extensions are asked for their hooks.
        self.before_compile: list[Callable[[], object]] = []
        #: Functions that are called with each extension.
        self._asking: list[Callable[[Extension], object]] = []
        self.compile()

    def register(self, *extensions: Extension) -> None:
        """Add extensions. One of the same class and number as another replaces it."""
        for each in extensions:
            if each.number not in range(MOST_NUMBERS):
                raise ImproperlyConfigured(
                    f"The extension {each.name} of django_ojs has the number {each.number}: give "
                    f"it one below {MOST_NUMBERS}."
                )
            known = self._extensions.get(each.number)
            if known is not None and type(known) is not type(each):
                raise ImproperlyConfigured(
                    f"The extensions {known.name} and {each.name} of django_ojs have the number "
                    f"{each.number}: give one of them another."
                )
            names = {found.name for at, found in self._extensions.items() if at != each.number}
            if each.name in names:
                raise ImproperlyConfigured(
                    f"Two extensions of django_ojs have the name {each.name!r}: give one of them "
                    "another. The log and the findings tell extensions apart by it."
                )
            self._extensions[each.number] = each
        self.compile()
        for each in extensions:
            for ask in self._asking:
                ask(each)

    def for_each(self, ask: Callable[[Extension], object]) -> None:
        """Call a function with each extension, and with those that are registered later.

        Django's admin loads the pages before the apps that come after it are ready.
        """
        self._asking.append(ask)
        for each in self.extensions():
            ask(each)

    def remove(self, extension: Extension) -> None:
        """Remove an extension, for tests."""
        self._extensions.pop(extension.number, None)
        self._hooks.pop(extension.number, None)
        self.compile()

    def compile(self) -> None:
        """Ask all extensions for their hooks."""
        #: The settings that extensions have declared: dataclasses.
        self.settings = tuple(each.settings for each in self.extensions() if each.settings)
        queue_config.declare(each.queue_fields for each in self.extensions() if each.queue_fields)
        self.attributes = [each for found in self.extensions() for each in found.attributes]
        optional_checks.declare({each.name: each.check for each in self.attributes})
        store_with({each.name: each.stored_with for each in self.attributes if each.stored_with})
        self.qualifiers = {each.name: each for e in self.extensions() for each in e.qualifiers}
        for forget in self.before_compile:
            forget()
        for number, extension in self._extensions.items():
            try:
                self._hooks[number] = _guarded(extension)
            except ImproperlyConfigured:
                # The next reader of the settings gets the error. If it were raised here, it would
                # reach the code that changes them, such as the end of a test.
                self._hooks.setdefault(number, Hooks())
            except Exception:
                # The error must harm neither other extensions nor the change. It is raised only at
                # the registration, unless a check reports the wrong version of the interface.
                if number not in self._hooks and extension.fits():
                    raise
                self._hooks.setdefault(number, Hooks())
                logger.exception("The hooks of the extension %s stay as they were.", extension.name)
        found = [(each.name, self._hooks[each.number]) for each in self.extensions()]
        self.around_push: Around | None = _ring(hooks.around_push for _, hooks in found)
        self.notes = tuple(hooks.note for _, hooks in found if hooks.note)
        self.admit = tuple(hooks.admit for _, hooks in found if hooks.admit)
        self.around_store: Around | None = _ring(hooks.around_store for _, hooks in found)
        self.around_insert: Around | None = _ring(hooks.around_insert for _, hooks in found)
        self.around_admit_again = _ring(hooks.around_admit_again for _, hooks in found)
        self.around_run: Around | None = _ring(hooks.around_run for _, hooks in found)
        self.stand_ins: Mapping[str, Callable[..., Any]] = {
            name: stand_in
            for _, hooks in reversed(found)
            for name, stand_in in hooks.stand_ins.items()
        }
        self.kept = tuple(hooks.kept for _, hooks in found if hooks.kept)
        self.rejected: _Named = _named(found, "rejected")
        self.queue_configured: _Named = _named(found, "queue_configured")
        self.queue_deleted: _Named = _named(found, "queue_deleted")
        self.after_queue_configured: _Named = _named(found, "after_queue_configured")
        self.counts_repaired: _Named = _named(found, "counts_repaired")
        self.stored: _Named = _named(found, "stored")
        self.stored_and_committed: _Named = _named(found, "stored_and_committed")
        self.committed: _Named = _named(found, "committed")
        self.changes: Mapping[Trigger, ChangeHooks] = {
            trigger: compiled
            for trigger in Trigger
            if (compiled := _change_hooks(trigger, found)) is not None
        }
        self.bounded_parts = tuple(hooks.bounded_part for _, hooks in found if hooks.bounded_part)
        self.pause_asked = tuple(hooks.pause_asked for _, hooks in found if hooks.pause_asked)
        self.published: tuple[_Publisher, ...] = tuple(
            (name, h.published_types, h.published) for name, h in found if h.published
        )
        self.published_types = frozenset[EventType]().union(*(each[1] for each in self.published))
        self.counted: _Named = _named(found, "counted")
        self.erased: _Named = _named(found, "erased")
        self.exported: _Named = _named(found, "exported")
        self.imported: _Named = _named(found, "imported")
        self.acted: tuple[Callable[[Act], Callable[[Mapping[str, Any]], object] | None], ...]
        self.acted = tuple(hooks.acted for _, hooks in found if hooks.acted)
        #: The rules of claims by their bits in `ojs_queue.rules`, in the order of their numbers.
        self.claim_rules: Mapping[int, ClaimRule] = {
            1 << number: rule
            for number in sorted(self._extensions)
            if (rule := self._hooks[number].claim_rule) is not None
        }
        #: Which jobs extensions hold, by their numbers.
        self.holds: Mapping[int, Callable[[Collection[UUID]], Mapping[UUID, int]]] = {
            number: holds
            for number in sorted(self._extensions)
            if (holds := self._hooks[number].holds) is not None
        }
        self.needed: tuple[str, ...] = tuple(hooks.needed for _, hooks in found if hooks.needed)
        self.task_done: _Named = _named(found, "task_done")
        self.before_fetch: _Named = _named(found, "before_fetch")
        self.request_note = tuple(hooks.request_note for _, hooks in found if hooks.request_note)
        self.push_headers: _Named = _named(found, "push_headers")
        self.error_headers: _Named = _named(found, "error_headers")
        self.request_ended: _Named = _named(found, "request_ended")
        self.request_served: _Named = _named(found, "request_served")
        self.workers_start: _Named = _named(found, "workers_start")
        #: The hooks by their bits in `Job.marks`.
        self.fetched: tuple[tuple[int, str, Callable[[Sequence[Any]], object]], ...] = tuple(
            (1 << number, self._extensions[number].name, hook)
            for number in sorted(self._extensions)
            if (hook := self._hooks[number].fetched) is not None
        )
        self.shown: _Named = _named(found, "shown")
        self.hide_in_key: _Named = _named(found, "hide_in_key")
        self.reported: tuple[Callable[[Any, Any], object], ...] = tuple(
            hooks.reported for _, hooks in found if hooks.reported
        )
        self.context: Mapping[str, Callable[..., Any]] = {
            name: function for _, hooks in found for name, function in hooks.context.items()
        }
        self.worker_started: _Named = _named(found, "worker_started")
        self.worker_stopping: _Named = _named(found, "worker_stopping")
        self.worker_threads: _Named = _named(found, "worker_threads")
        self.next_jobs: _Named = _named(found, "next_jobs")
        self.worker_passes: _Named = _named(found, "worker_passes")
        self.worker_ends: _Named = _named(reversed(found), "worker_ends")

    def has(self, name: str) -> bool:
        """Say whether the extension of this name is installed."""
        return any(each.name == name for each in self._extensions.values())

    def numbers(self) -> Collection[int]:
        """Return the numbers of all extensions."""
        return self._extensions.keys()

    def for_tests(self) -> list[ForTests]:
        """Return what the test helpers do for all extensions."""
        found = (each.for_tests() for each in self.extensions())
        return [each for each in found if each is not None]

    def with_schema(self) -> list[Extension]:
        """Return the extensions that add something to the table of jobs."""
        return [each for each in self.extensions() if each.schema is not None]

    def brought(self, what: str, *args: Any, of: type = object) -> list[Any]:
        """Return what all extensions bring; `what` is the method of `Extension` that returns it.

        If an extension fails, or brings anything that is not `of` this class, its part is left out,
        and the failure is logged.
        """
        return [
            each for found in self.extensions() for each in brought_by(found, what, *args, of=of)
        ]

    def named_rules(self, bits: int = -1) -> Iterator[tuple[str, "ClaimRule"]]:
        """Return the rules of claims with these bits, or all, with the names of the extensions."""
        for bit, rule in self.claim_rules.items():
            if bit & bits:
                yield self._extensions[bit.bit_length() - 1].name, rule

    def extensions(self) -> list[Extension]:
        """Return the extensions, in the order of their numbers."""
        return [each for _, each in sorted(self._extensions.items())]


def _named(found: Iterable[tuple[str, Hooks]], hook: str) -> _Named:
    return tuple((name, getattr(hooks, hook)) for name, hooks in found if getattr(hooks, hook))


def _ring(hooks: Iterable[Around | None]) -> Around | None:
    """Return one function that calls these hooks, each around the next, or None without any."""
    ring: Around | None = None
    for hook in reversed([each for each in hooks if each is not None]):
        ring = hook if ring is None else _around(hook, ring)
    return ring


def _around(outer: Around, inner: Around) -> Around:
    def both(subject: Any, go_on: Callable[[], Any]) -> Any:
        return outer(subject, partial(inner, subject, go_on))

    return both


def _change_hooks(trigger: Trigger, found: Sequence[tuple[str, Hooks]]) -> ChangeHooks | None:
    changed = tuple((name, h.changed[trigger]) for name, h in found if trigger in h.changed)
    committed = tuple(
        (name, hooks.changed_and_committed[trigger])
        for name, hooks in found
        if trigger in hooks.changed_and_committed
    )
    if not changed and not committed:
        return None
    reads = max(hooks.reads.get(trigger, Reads.NOTHING) for _, hooks in found)
    return ChangeHooks(changed=changed, committed=committed, reads=reads)


def brought_by(extension: Extension, what: str, *args: Any, of: type = object) -> list[Any]:
    """Return what one extension brings, or nothing if it fails; see `Registry.brought`."""

    def bring() -> list[Any]:
        found = list(getattr(extension, what)(*args))
        for each in found:
            if not isinstance(each, of):
                raise TypeError(f"{type(each).__name__} is no {of.__name__}")
        return found

    return contained(extension.name, f"failed to bring its {what.replace('_', ' ')}", bring, [])


def contained(name: str, what: str, ask: Callable[[], T], otherwise: T) -> T:
    """Return what an extension says, or `otherwise` if it fails.

    An error of the database, of the settings or of memory is raised, for the caller to handle.
    """
    try:
        return ask()
    except (Error, ImproperlyConfigured, MemoryError):
        raise
    except Exception as error:
        failed(name, what, error)
        return otherwise


def steps(what: str, *args: Any) -> list[DueStep]:
    """Return the steps of all extensions, whose errors are logged with the extension's name."""
    return [
        replace(
            step,
            run=partial(_run_step, extension.name, step.run),
            otherwise=step.otherwise and partial(_run_step, extension.name, step.otherwise),
        )
        for extension in registry.extensions()
        for step in brought_by(extension, what, *args, of=DueStep)
    ]


def _run_step(name: str, run: Callable[[], Any]) -> int:
    """Run a step. Errors of the database, and two more that concern the process, are raised.

    Any other error is logged, so that it does not end the thread.
    """
    try:
        return run() or 0
    except (Error, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        failed(name, "failed in a step of the maintenance", error)
        return 0


#: What stops a program, and is no failure of the hook in which it is raised.
_STOPS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError)

#: Hooks whose errors an operation raises without logging the extension, so `_guarded` logs them.
_RAISED: Final = frozenset(
    [
        "note",
        "admit",
        "kept",
        "pause_asked",
        "exported",
        "imported",
        "acted",
        "reported",
        "holds",
        "bounded_part",
        "request_note",
    ]
)
_RINGS: Final = frozenset({"around_push", "around_store", "around_insert", "around_admit_again"})


def _guarded(extension: Extension) -> Hooks:
    """Return the hooks of an extension, in wrappers unless it is of this package.

    They log an error that an operation raises with the name of the extension. A subclass of
    BaseException, which nothing in a worker expects, becomes an ordinary error.
    """
    hooks, name = extension.hooks(), extension.name
    if extension.number < FIRST_FREE_NUMBER:
        return hooks

    def guarded(hook: Callable[..., Any], what: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            passed: list[BaseException] = []

            def go_on() -> Any:
                try:
                    return args[1]()
                except BaseException as error:
                    passed.append(error)
                    raise

            try:
                return hook(args[0], go_on) if what in _RINGS else hook(*args)
            except _STOPS:
                raise
            except BaseException as error:
                if any(error is each for each in passed):
                    raise
                found = (
                    error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
                )
                if what in _RAISED | _RINGS:
                    _note(name, f"raised an error in its hook {what}", found)
                if found is error:
                    raise
                raise found from error

        return call

    changes: dict[str, Any] = {}
    for each in fields(Hooks):
        value = getattr(hooks, each.name)
        if each.name in ("changed", "changed_and_committed"):
            changes[each.name] = {on: guarded(hook, each.name) for on, hook in value.items()}
        elif each.name not in ("around_run", "claim_rule") and callable(value):
            changes[each.name] = guarded(value, each.name)
    return replace(hooks, **changes)


registry: Final = Registry()

_own_jobs: Final[ContextVar[tuple[Callable[[str], Collection[UUID]], ...]]] = ContextVar(
    "ojs_own_jobs", default=()
)


def notes() -> tuple[object, ...]:
    """Return the notes of an enqueue by Python code: what the hooks `note` return."""
    return tuple(hook() for hook in registry.notes)


def admit(options: Any, envelope: Any) -> Any:
    """Call the hooks `admit`, and return the envelope to store."""
    for hook in registry.admit:
        envelope = hook(options, envelope)
    return envelope


def rejected(full: QueueFull, jobs: Sequence[Any], *, is_tried_again: bool = False) -> None:
    """Call the hooks `rejected`.

    With `is_tried_again`, they are not called while it is unknown whether the queue is full.
    """
    if full.is_busy and is_tried_again:
        return
    _each(registry.rejected, "failed to note rejected jobs", full, jobs, raised=())


def kept(keys: Collection[UUID], *, everywhere: bool = False) -> dict[UUID, bool]:
    """Return the jobs that are kept without a row, and whether each will be stored or sent.

    With `everywhere`, jobs in other databases count too.
    """
    found: dict[UUID, bool] = {}
    if keys:
        for hook in registry.kept:
            found |= hook(keys, everywhere)
    return found


@contextmanager
def with_own_jobs(jobs_of: Callable[[str], Collection[UUID]]) -> Iterator[None]:
    """Let hooks know, in the block, which jobs of a queue belong to the same call."""
    token = _own_jobs.set((*_own_jobs.get(), jobs_of))
    try:
        yield
    finally:
        _own_jobs.reset(token)


def own_jobs(queue: str) -> set[UUID]:
    """Return the jobs of a queue that belong to the current call.

    The call has stored, changed or returned them, so a hook must not take them back for other jobs
    of the call.
    """
    return {key for jobs_of in _own_jobs.get() for key in jobs_of(queue)}


@contextmanager
def telling_rejected(jobs: Sequence[Any], *, is_tried_again: bool = False) -> Iterator[None]:
    """Call the hooks `rejected` if the block, which lets stored jobs wait, raises QueueFull."""
    try:
        yield
    except QueueFull as full:
        rejected(full, jobs, is_tried_again=is_tried_again)
        raise


def admit_again(readmission: Readmission, change: Callable[[], T]) -> T:
    """Call `change`, which lets stored jobs wait, within the hooks `around_admit_again`."""
    ring = registry.around_admit_again
    if ring is None or not readmission.jobs:
        return change()
    changed: T = ring(readmission, change)
    return changed


def bounded_part(envelope: Any) -> str | None:
    """Call the hooks `bounded_part`. Return the part of its queue whose bound counts a new job."""
    parts = (hook(envelope) for hook in registry.bounded_parts)
    return next((part for part in parts if part is not None), None)


def rules_of(config: Mapping[str, Any]) -> int:
    """Return the bits of the rules that a configuration gives to a queue."""
    bits = 0
    for bit, rule in registry.claim_rules.items():
        if not rule.fields.isdisjoint(config):
            bits |= bit
    return bits


def missing_rules(rules: int) -> int:
    """Return the bits among these whose rules no installed extension applies."""
    return rules & ~sum(registry.claim_rules)


def rules_with(rules: int, config: Mapping[str, Any]) -> int:
    """Return the bits of a queue once it has this configuration.

    Bits that its jobs have given it stay.
    """
    by_config = sum(bit for bit, rule in registry.claim_rules.items() if rule.fields)
    return rules & ~by_config | rules_of(config)


def is_published(*types: EventType) -> bool:
    """Say whether an extension wants the events of one of these types."""
    return not registry.published_types.isdisjoint(types)


def publish(type: EventType, make: Callable[..., NewEvent], *args: Any, **data: Any) -> None:
    """Publish an event in the transaction of what happened.

    `make(type, *args, **data)` returns the event. It is not called if no extension wants events of
    the type.
    """
    if type in registry.published_types:
        publish_all([make(type, *args, **data)])


def publish_all(events: Iterable[NewEvent]) -> None:
    """Call the hooks `published`, each with the events of its types."""
    if not registry.published:
        return
    news = list(events)
    for name, types, hook in registry.published:
        if wanted := [event for event in news if event.type in types]:
            try:
                hook(wanted)
            except Exception as error:
                undone_by(name, error)
                raise


def count(what: Count, numbers: Numbers) -> None:
    """Call the hooks `counted`, after the commit."""
    call_after(registry.counted, what, numbers)


def exported(jobs: Sequence[Any]) -> dict[UUID, dict[str, Any]]:
    """Call the hooks `exported`. Return what each extension has of a job, by its id."""
    found: dict[UUID, dict[str, Any]] = {}
    for name, hook in registry.exported:
        for key, value in hook(jobs).items():
            found.setdefault(key, {})[name] = value
    return found


def imported(found: Mapping[UUID, Mapping[str, Any]]) -> None:
    """Call the hooks `imported`, in the transaction that has stored the jobs.

    An error rejects the jobs, and not the file.
    """
    for name, hook in registry.imported:
        if own := {key: values[name] for key, values in found.items() if name in values}:
            try:
                hook(own)
            except (OJSError, *_OF_ALL):
                raise
            except Exception as error:
                raise InvalidRequest(
                    f"The extension {name} cannot import what it has of the job "
                    f"({type(error).__name__})."
                ) from error


def is_unneeded() -> str:
    """Return the SQL condition on a row of `ojs_job` that no extension needs it."""
    return " AND ".join(f"NOT ({each})" for each in registry.needed) or "1 = 1"


def run_task(name: str, run: Callable[[], int]) -> int:
    """Run a task, and call the hooks `task_done` if it has changed rows. Return how many."""
    if not registry.task_done:
        return run()
    began = time.time_ns()
    changed = run()
    if changed:
        ended = time.time_ns()
        call_after(registry.task_done, name, began, ended, changed)
    return changed


def before_fetch() -> None:
    """Call the hooks `before_fetch`."""
    what = "did not do what is due before a FETCH"
    _each(registry.before_fetch, what, raised=(*_OF_ALL, OJSError))


def workers_start() -> None:
    """Call the hooks `workers_start`."""
    from django.core.management.base import CommandError

    what = "failed at the start of a worker"
    _each(registry.workers_start, what, raised=(*_OF_ALL, CommandError))


def hide_in_key(key: str, is_hidden: Callable[[str], bool], replacement: str) -> str | None:
    """Return what may be shown of a limit key, or None if no extension knows its parts."""
    for name, hook in registry.hide_in_key:
        try:
            found: str | None = hook(key, is_hidden, replacement)
        except Exception as error:
            failed(name, "failed to hide arguments in a limit key", error)
            return replacement
        if found is not None:
            return found
    return None


def shown(job: Any) -> dict[str, Any]:
    """Return the members that extensions add to the JSON object of a stored job."""
    if not registry.shown:
        return {}
    found = _each(registry.shown, "failed to show a job", job)
    return {name: value for each in found for name, value in each.items()}


def waits_for(jobs: Sequence[Any]) -> dict[UUID, str]:
    """Return why scheduled jobs wait, as far as extensions know, by the ids of the jobs."""
    scheduled = [job for job in jobs if job.state == State.SCHEDULED]
    if not scheduled:
        return {}
    asked = tuple((each.name, each.waits_for) for each in registry.extensions())
    found = _each(asked, "failed to say what jobs wait for", scheduled)
    return {key: sentence for each in found for key, sentence in each.items()}


def shown_of_queues(names: Collection[str], *, to_operators: bool) -> dict[str, dict[str, Any]]:
    """Return what extensions show of queues, by the names of the queues."""
    shown: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name, members in registry.brought("shown_of_queues", names, to_operators):
        if name in shown:
            shown[name].update(members)
    return shown


def worker_threads(worker_id: str) -> list[Closing]:
    """Call the hooks `worker_threads`."""
    return _each(registry.worker_threads, "has no thread beside a worker", worker_id)


def next_jobs() -> int:
    """Call the hooks `next_jobs`. Return how much there was."""
    return sum(_each(registry.next_jobs, "did not say what comes next"))


def undone_by(name: str, error: Exception) -> None:
    """Note that the error of a hook undoes a change, and whose hook it is."""
    setattr(error, UNDONE_BY, name)
    _note(name, "undid a change", error)


def _note(name: str, what: str, error: Exception) -> None:
    """Log an error that an operation raises, unless it is a rejection or passes by itself."""
    if not isinstance(error, OJSError) and not database.may_pass(error):
        failed(name, what, error)


def failed(name: str, what: str, error: BaseException) -> None:
    """Log that an extension failed, and keep it for the findings of this process."""
    registry.failures[name] = Failed(what, type(error).__name__, timezone.now())
    logger.error(
        "The extension %s of django_ojs %s.", name, what, exc_info=database.without_values(error)
    )


#: The errors that concern all jobs, and not what an extension did for one job.
_OF_ALL: Final = (Error, MemoryError)


def _each(
    hooks: _Named, what: str, *args: object, raised: tuple[type[Exception], ...] = _OF_ALL
) -> list[Any]:
    """Call hooks, and return what they return.

    The errors `raised` are raised. A hook that fails otherwise is left out.
    """
    found: list[Any] = []
    for name, hook in hooks:
        try:
            found.append(hook(*args))
        except raised:
            raise
        except Exception as error:
            failed(name, what, error)
    return found


def call_within(hooks: _Named, *args: object) -> None:
    """Call hooks, and raise their error, which undoes what happened if the transaction is open."""
    for name, hook in hooks:
        try:
            hook(*args)
        except Exception as error:
            _note(name, "stopped an operation", error)
            raise


def call_served(hooks: _Named, *args: object) -> list[Any]:
    """Call hooks when a request has done what it had to, and return what they return.

    An error is logged, because a client that gets one would send the request again. It is raised in
    a transaction of the request, which is then rolled back.
    """
    found: list[Any] = []
    for name, hook in hooks:
        try:
            found.append(hook(*args))
        except Exception as error:
            if database.connection().in_atomic_block:
                raise
            failed(name, "failed at the end of a request", error)
    return found


def call_after(hooks: _Named, *args: object) -> None:
    """Call hooks after a commit, or without a transaction.

    An error cannot undo anything any more, and must harm nothing.
    """
    for name, hook in hooks:
        try:
            hook(*args)
        except Exception as error:
            failed(name, "failed after a commit", error)

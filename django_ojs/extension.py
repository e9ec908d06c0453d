"""What an extension may do, and the registry of those that are installed.

An extension is an object of a subclass of `Extension`, which its app registers in `ready()`. Its
hooks are functions that the core calls. The core imports no extension: it calls what is here.

The hooks of all extensions are compiled into tuples, which the core reads as attributes. A hook
that no extension has costs nothing: no transaction is opened, no row is read and no object is made
for it. They are compiled when an extension is registered, when the setting `OJS` changes, and when
one of `django_ojs.signals` gains or loses a receiver.

Where several extensions have a hook, that of the lowest number comes first, whatever the order of
`INSTALLED_APPS`. What the events, the statistics, the signals, the audit trail and the bounds do
is in `django_ojs.extensions`.

The hooks `around_store`, `around_insert` and `around_admit_again` are rings: each gets a function
that goes on with the hook of the next number, and at last with what the ring is around. It returns
what that returns, and may do something before and after it, call it again, or raise QueueFull in
its place. A hook that has taken something, such as a lock or one of a number of places, and does
not see the rest succeed, gives it back: a transaction or savepoint round the rest
(`database.in_write_transaction`) does so for all that the database keeps. A hook that rejects says
in its error what it is that is full.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from django_ojs.spec.errors import QueueFull
from django_ojs.spec.failure import Failure
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.states import State, Trigger

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: Numbers of jobs, by queue and type.
Numbers: TypeAlias = Mapping[tuple[str, str], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What an operation knows of the jobs that it changes, each by the id of the job.

    What it does not know is left out.
    """

    #: The jobs as they were claimed, or before the change. Each has a queue and a type.
    jobs: Mapping[UUID, Any] = field(default_factory=dict)
    #: The workers that ran them.
    workers: Mapping[UUID, str | None] = field(default_factory=dict)
    #: How their runs failed.
    failures: Mapping[UUID, Failure] = field(default_factory=dict)
    #: For how many seconds their handlers ran.
    seconds: Mapping[UUID, float] = field(default_factory=dict)
    #: Whether the runs that ended count as attempts.
    spends: bool = True
    #: Whether the jobs were running. False: they were claimed, and no handler began.
    has_run: bool = True
    #: Why they were discarded, as in the column `discard_reason`.
    reason: str | None = None


NOTHING_KNOWN: Final = Known()


class Change:
    """One statement has changed the states of these jobs."""

    __slots__ = ("_read", "after", "before", "known", "rows_read", "trigger")

    def __init__(
        self,
        trigger: Trigger,
        before: Mapping[UUID, State],
        after: Mapping[UUID, State],
        known: Known,
        read: Callable[[], Sequence[Any]],
    ) -> None:
        self.trigger: Final = trigger
        #: The states that the jobs have left and entered. Both have the ids of all jobs.
        self.before: Final = before
        self.after: Final = after
        self.known: Final = known
        self._read: Final = read
        #: The rows, if a hook has asked for them.
        self.rows_read: Sequence[Any] | None = None

    def rows(self) -> Sequence[Any]:
        """Return the jobs as they are after the change: one query, for all hooks.

        Without their payloads (see `Reads.ROWS`), unless a hook says that it needs these.
        """
        if self.rows_read is None:
            self.rows_read = self._read()
        return self.rows_read

    def jobs(self) -> Mapping[UUID, Any]:
        """Return the jobs as the operation knows them, or else their rows, by id."""
        return self.known.jobs or {job.pk: job for job in self.rows()}


class Reads(IntEnum):
    """What a hook reads after the commit. The core reads it before, in the transaction."""

    NOTHING = 0
    #: What `Change.jobs` returns.
    JOBS = 1
    #: What `Change.rows` returns, without `args`, `options`, `progress` and `result`: they are most
    #: of a large job.
    ROWS = 2
    #: What `Change.rows` returns, with all columns.
    WHOLE_ROWS = 3


class Count(StrEnum):
    """What happens to jobs and is no change of a state."""

    #: A full queue rejected them.
    REJECTED = "rejected"
    #: Their handlers reported progress.
    PROGRESS_UPDATES = "progress_updates"
    #: The end of a run could not be added to their histories.
    HISTORY_FAILURES = "history_failures"


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """An operator, the address of the client, and the id of its request over HTTP."""

    #: By which door: one of `models.ActorKind`.
    kind: str
    name: str
    source_ip: str = ""
    correlation_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """An operator did something to an object."""

    actor: Actor
    #: An object and a verb, such as `job.cancelled`.
    action: str
    object_type: str
    object_id: str
    #: The old and the new value of each field.
    changes: Mapping[str, tuple[Any, Any]]
    detail: Mapping[str, Any]


@dataclass(kw_only=True, slots=True)
class Batch:
    """Jobs that PUSH stores together: they were validated, and passed all middleware."""

    #: Their envelopes.
    jobs: Sequence[Any]
    #: How they are pushed: the `PushOptions`, with the notes for extensions.
    options: Any
    #: The results of the same call so far, without the jobs that it has cancelled again: those that
    #: it has stored are rolled back with an error of this INSERT.
    earlier: Sequence[Any] = ()
    #: Set by a hook of `around_insert`, which sets it back: the INSERT asks `ojs_admit_all` whether
    #: the queues have room far from their bounds. Else it stores nothing, and returns None.
    only_if_admitted: bool = False


#: A hook of a ring: it gets what the ring is about, and goes on by calling the function.
Around: TypeAlias = Callable[[Any, Callable[[], Any]], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Some jobs of a queue are not moved into another: the error, and which jobs of it may be."""

    full: QueueFull
    others: Q


@dataclass(kw_only=True, slots=True)
class Readmission:
    """Stored jobs that are to wait in a queue, and need room there as new ones do."""

    #: The rows, which the operation has locked.
    jobs: Sequence[Any]
    #: The queue into which they are moved. None: each waits in its own.
    queue: str | None = None
    #: The caller has other jobs to change, and tries these again: wait hardly at all for a lock.
    is_tried_again: bool = False
    #: What hooks have rejected so far in an operation of many transactions, each by a name: a hook
    #: may add one, and put the ids of those jobs into `left_out`. None: it raises, for all jobs.
    rejections: dict[str, LeftOut] | None = None
    left_out: set[UUID] = field(default_factory=set)

    def waiting(self) -> list[Any]:
        """Return the jobs that are to wait. A pending job that is moved stays pending."""
        return [
            job
            for job in self.jobs
            if job.pk not in self.left_out and (self.queue is None or job.state != State.PENDING)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class DueStep:
    """Something that one worker of the site does every so many seconds. It returns a number.

    When it returns `batch` or more, it is called again at once; by default 500. It has nothing to
    do while the condition `when`, which is SQL, does not hold.
    """

    run: Callable[[], int]
    interval: float
    batch: int | None = None
    when: Callable[[], str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """The functions of one extension that the core calls. What is absent takes no part."""

    #: A ring around all that PUSH does once jobs are admitted, of batches whose `PushOptions` have
    #: notes: called with the `Batch`, outside of any transaction of PUSH; the caller's may be open.
    #: It goes on to their results, again if it likes (it waits for room), or returns others (it
    #: stores the jobs elsewhere). An error is raised by the enqueue.
    around_store: Around | None = None

    #: A ring around the INSERT of new jobs, where a queue has a configuration or the `PushOptions`
    #: say `exact_rules`: called with the `Batch`, for each INSERT, in the caller's transaction or
    #: in none. It goes on to the rows that were stored. These are None, and nothing was stored,
    #: where it or another hook asked for `only_if_admitted`: it returns None too, or goes on again
    #: without the condition. An error leaves no job of the batch stored, is raised by the enqueue,
    #: and must leave the caller's transaction usable.
    around_insert: Around | None = None

    #: A ring around the statement by which stored jobs wait again: ACTIVATE, RETRY by hand, and a
    #: queue that is deleted and whose jobs move to another. Not around a promotion, a retry after a
    #: failure or a return to the queue: these jobs were admitted before. Called with the
    #: `Readmission`, in the transaction of the operation. An error undoes the operation and is
    #: raised by it.
    around_admit_again: Around | None = None

    #: Jobs were rejected, by a hook of a ring: called with the QueueFull, to whose details it may
    #: add, and the jobs, before the error is raised or the jobs are stored elsewhere. They are new
    #: ones, or stored ones that were to wait again. The caller's transaction is open and may be
    #: rolled back: what shall survive is kept in memory, or written by a connection of another
    #: thread. An error is logged.
    rejected: Callable[[QueueFull, Sequence[Any]], object] | None = None

    #: PUSH has inserted jobs: called with the batch, in the order in which they were sent. It is
    #: called in the transaction of the INSERT, which is the caller's if one is open. An error
    #: undoes the INSERT and is raised by the enqueue.
    stored: Callable[[Sequence[Any]], object] | None = None

    #: The same after the commit, which needs no transaction: the jobs stay in memory until then. An
    #: error is logged.
    stored_and_committed: Callable[[Sequence[Any]], object] | None = None

    #: The transaction of an enqueue has committed: called with how many jobs of each queue and type
    #: it has stored, once for each INSERT. It gets no jobs, because a long transaction must not
    #: keep its payloads in memory. An error is logged.
    committed: Callable[[Numbers], object] | None = None

    #: A statement has changed the states of jobs: called with the change, by the trigger of the
    #: state machine (ojs-core §6.3). It is called by `storage.transitions` right after the
    #: statement and in its transaction, which is opened if none is open. An error undoes the change
    #: and is raised by the operation.
    changed: Mapping[Trigger, Callable[[Change], object]] = field(default_factory=dict)

    #: The same after the commit, without a transaction. `reads` names by trigger what it needs of
    #: the jobs, because they may have changed again. An error is logged.
    changed_and_committed: Mapping[Trigger, Callable[[Change], object]] = field(
        default_factory=dict
    )
    reads: Mapping[Trigger, Reads] = field(default_factory=dict)

    #: Something happened that changes no state of a job: to a queue, a worker, a workflow, a cron
    #: job or a limit key, or a job has sent a heartbeat, progress or a checkpoint. Called in the
    #: transaction of what happened, with events of the types in `published_types`: an event of
    #: another type is not even made. An error undoes what happened.
    published: Callable[[Sequence[NewEvent]], object] | None = None
    published_types: frozenset[EventType] = frozenset()

    #: Something was counted that is no change of a state: called after the commit, with how many
    #: jobs of each queue and type. An error is logged.
    counted: Callable[[Count, Numbers], object] | None = None

    #: A queue was configured, or created with a configuration, or was deleted: called with its
    #: name, in the transaction of that, after the row of the queue is written. An error undoes it.
    queue_configured: Callable[[str], object] | None = None
    queue_deleted: Callable[[str], object] | None = None

    #: A queue that may have jobs was configured: called with its name when the transaction of that
    #: has ended, with the caller's open or none: for work in many transactions. An error is raised
    #: by the operation, and undoes nothing.
    after_queue_configured: Callable[[str], object] | None = None

    #: The counts of jobs by queue and state were wrong: called in the transaction that corrects
    #: them. An error undoes it.
    counts_repaired: Callable[[], object] | None = None

    #: An operator did something: called in the transaction of what was done; what the code of a
    #: project does by itself is no act. It may return a function that adds to the details of the
    #: act: an operation of many transactions calls it when it is done. An error undoes what was
    #: done.
    acted: Callable[[Act], Callable[[Mapping[str, Any]], object] | None] | None = None

    #: What one worker of the site does again and again, in the thread of its maintenance. An error
    #: of the database ends the pass and is logged; others end the thread.
    due_steps: Sequence[DueStep] = ()

    #: A process of a worker begins, before its first claim, or ends, after its last job: called
    #: with the id of the worker, in the main thread of the process and outside of a transaction. An
    #: error is logged.
    worker_started: Callable[[str], object] | None = None
    worker_stopping: Callable[[str], object] | None = None

    #: Called about twice a second by each worker, in the thread of its maintenance and outside of
    #: a transaction, and once more by each worker that ends, as its last write. An error is logged.
    worker_passes: Callable[[], object] | None = None
    worker_ends: Callable[[], object] | None = None


class Extension:
    """A subject that the core does not know. Register an object of a subclass in `ready()`."""

    #: Its name in messages.
    name: str
    #: Its place among the others. Those of this package are below 32; 32 and more are free.
    number: int

    def hooks(self) -> Hooks:
        """Return the hooks by the settings as they are now: those that are not needed are absent.

        Called whenever hooks are compiled.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeHooks:
    """The hooks for the changes of one trigger."""

    changed: tuple[Callable[[Change], object], ...]
    committed: tuple[tuple[str, Callable[[Change], object]], ...]
    reads: Reads


_Publisher: TypeAlias = tuple[frozenset[EventType], Callable[[Sequence[NewEvent]], object]]
_Named: TypeAlias = tuple[tuple[str, Callable[..., object]], ...]


class Registry:
    """The hooks of all extensions, in the order of their numbers.

    What is called after a commit stands beside the name of its extension, for the log.
    """

    def __init__(self) -> None:
        self._extensions: dict[int, Extension] = {}
        #: What an extension had when it was asked last, for settings that are wrong.
        self._hooks: dict[int, Hooks] = {}
        self.compile()

    def register(self, *extensions: Extension) -> None:
        """Add extensions. One of the same class and number as another replaces it."""
        for each in extensions:
            known = self._extensions.get(each.number)
            if known is not None and type(known) is not type(each):
                raise ImproperlyConfigured(
                    f"The extensions {known.name} and {each.name} of django_ojs have the number "
                    f"{each.number}: give one of them another."
                )
            self._extensions[each.number] = each
        self.compile()

    def remove(self, extension: Extension) -> None:
        """Remove an extension, for tests."""
        self._extensions.pop(extension.number, None)
        self._hooks.pop(extension.number, None)
        self.compile()

    def compile(self) -> None:
        """Ask all extensions for their hooks."""
        for number, extension in self._extensions.items():
            try:
                self._hooks[number] = extension.hooks()
            except ImproperlyConfigured:
                # The next reader of the settings gets the error. Here it would be raised by
                # whatever changes them, such as the end of a test.
                self._hooks.setdefault(number, Hooks())
        found = [
            (extension.name, self._hooks[number])
            for number, extension in sorted(self._extensions.items())
        ]
        self.around_store: Around | None = _ring(hooks.around_store for _, hooks in found)
        self.around_insert: Around | None = _ring(hooks.around_insert for _, hooks in found)
        self.around_admit_again = _ring(hooks.around_admit_again for _, hooks in found)
        self.rejected: _Named = _named(found, "rejected")
        self.queue_configured: _Named = _named(found, "queue_configured")
        self.queue_deleted: _Named = _named(found, "queue_deleted")
        self.after_queue_configured: _Named = _named(found, "after_queue_configured")
        self.counts_repaired: _Named = _named(found, "counts_repaired")
        self.stored: tuple[Callable[[Sequence[Any]], object], ...] = tuple(
            hooks.stored for _, hooks in found if hooks.stored
        )
        self.stored_and_committed: _Named = _named(found, "stored_and_committed")
        self.committed: _Named = _named(found, "committed")
        self.changes: Mapping[Trigger, ChangeHooks] = {
            trigger: compiled
            for trigger in Trigger
            if (compiled := _change_hooks(trigger, found)) is not None
        }
        self.published: tuple[_Publisher, ...] = tuple(
            (hooks.published_types, hooks.published) for _, hooks in found if hooks.published
        )
        self.published_types = frozenset[EventType]().union(*(each for each, _ in self.published))
        self.counted: _Named = _named(found, "counted")
        self.acted: tuple[Callable[[Act], Callable[[Mapping[str, Any]], object] | None], ...]
        self.acted = tuple(hooks.acted for _, hooks in found if hooks.acted)
        self.due_steps: tuple[DueStep, ...] = tuple(
            step for _, hooks in found for step in hooks.due_steps
        )
        self.worker_started: _Named = _named(found, "worker_started")
        self.worker_stopping: _Named = _named(found, "worker_stopping")
        self.worker_passes: _Named = _named(found, "worker_passes")
        self.worker_ends: _Named = _named(found, "worker_ends")


def _named(found: Iterable[tuple[str, Hooks]], hook: str) -> _Named:
    return tuple((name, getattr(hooks, hook)) for name, hooks in found if getattr(hooks, hook))


def _ring(hooks: Iterable[Around | None]) -> Around | None:
    """Return one function that calls these hooks, each around the next; None for none."""
    ring: Around | None = None
    for hook in reversed([each for each in hooks if each is not None]):
        ring = hook if ring is None else _around(hook, ring)
    return ring


def _around(outer: Around, inner: Around) -> Around:
    def both(subject: Any, go_on: Callable[[], Any]) -> Any:
        return outer(subject, partial(inner, subject, go_on))

    return both


def _change_hooks(trigger: Trigger, found: Sequence[tuple[str, Hooks]]) -> ChangeHooks | None:
    changed = tuple(hooks.changed[trigger] for _, hooks in found if trigger in hooks.changed)
    committed = tuple(
        (name, hooks.changed_and_committed[trigger])
        for name, hooks in found
        if trigger in hooks.changed_and_committed
    )
    if not changed and not committed:
        return None
    reads = max(hooks.reads.get(trigger, Reads.NOTHING) for _, hooks in found)
    return ChangeHooks(changed=changed, committed=committed, reads=reads)


registry: Final = Registry()

_own_jobs: Final[ContextVar[tuple[Callable[[str], Collection[UUID]], ...]]] = ContextVar(
    "ojs_own_jobs", default=()
)


def rejected(full: QueueFull, jobs: Sequence[Any], *, is_tried_again: bool = False) -> None:
    """Call the hooks `rejected`.

    `is_tried_again`: a queue of which it is not known whether it is full has rejected nothing yet.
    """
    if full.is_busy and is_tried_again:
        return
    for name, hook in registry.rejected:
        try:
            hook(full, jobs)
        except Exception:
            logger.exception("The extension %s of django_ojs failed to note rejected jobs.", name)


@contextmanager
def with_own_jobs(jobs_of: Callable[[str], Collection[UUID]]) -> Iterator[None]:
    """Let hooks know the jobs of a queue that belong to the call of which the block is a part."""
    token = _own_jobs.set((*_own_jobs.get(), jobs_of))
    try:
        yield
    finally:
        _own_jobs.reset(token)


def own_jobs(queue: str) -> set[UUID]:
    """Return the jobs of a queue that belong to the call which is going on.

    It has stored them, has changed them or returns them: a hook must not take them back for the
    other jobs of the call.
    """
    return {key for jobs_of in _own_jobs.get() for key in jobs_of(queue)}


@contextmanager
def telling_rejected(jobs: Sequence[Any], *, is_tried_again: bool = False) -> Iterator[None]:
    """Call the hooks `rejected` where the block, which lets stored jobs wait, raises QueueFull."""
    try:
        yield
    except QueueFull as full:
        rejected(full, jobs, is_tried_again=is_tried_again)
        raise


def admit_again(readmission: Readmission, change: Callable[[], T]) -> T:
    """Let stored jobs wait by `change`, in the ring `around_admit_again`."""
    ring = registry.around_admit_again
    if ring is None or not readmission.jobs:
        return change()
    changed: T = ring(readmission, change)
    return changed


def queue_configured(name: str) -> None:
    """Call the hooks `queue_configured`."""
    for _, hook in registry.queue_configured:
        hook(name)


def after_queue_configured(name: str) -> None:
    """Call the hooks `after_queue_configured`."""
    for _, hook in registry.after_queue_configured:
        hook(name)


def counts_repaired() -> None:
    """Call the hooks `counts_repaired`."""
    for _, hook in registry.counts_repaired:
        hook()


def queue_deleted(name: str) -> None:
    """Call the hooks `queue_deleted`."""
    for _, hook in registry.queue_deleted:
        hook(name)


def stored(jobs: Sequence[Any]) -> None:
    """Call the hooks `stored`, in the transaction of the INSERT."""
    for hook in registry.stored:
        hook(jobs)


def stored_and_committed(jobs: Sequence[Any]) -> None:
    """Call the hooks `stored_and_committed`, after the commit of the INSERT."""
    for name, hook in registry.stored_and_committed:
        call(name, hook, jobs)


def committed(numbers: Numbers) -> None:
    """Call the hooks `committed`, after the commit of an enqueue."""
    for name, hook in registry.committed:
        call(name, hook, numbers)


def is_published(*types: EventType) -> bool:
    """Say whether an extension wants the events of one of these types."""
    return not registry.published_types.isdisjoint(types)


def publish(type: EventType, make: Callable[..., NewEvent], *args: Any, **data: Any) -> None:
    """Tell of something in its transaction. `make(type, *args, **data)` returns the event.

    It is not called if no extension wants events of the type.
    """
    if type in registry.published_types:
        publish_all([make(type, *args, **data)])


def publish_all(events: Iterable[NewEvent]) -> None:
    """Call the hooks `published`, each with the events of its types."""
    if not registry.published:
        return
    news = list(events)
    for types, hook in registry.published:
        if wanted := [event for event in news if event.type in types]:
            hook(wanted)


def count(what: Count, numbers: Numbers) -> None:
    """Call the hooks `counted`, after the commit."""
    for name, hook in registry.counted:
        call(name, hook, what, numbers)


def worker_started(worker_id: str) -> None:
    """Call the hooks `worker_started`."""
    for name, hook in registry.worker_started:
        call(name, hook, worker_id)


def worker_stopping(worker_id: str) -> None:
    """Call the hooks `worker_stopping`."""
    for name, hook in registry.worker_stopping:
        call(name, hook, worker_id)


def worker_passes() -> None:
    """Call the hooks `worker_passes`."""
    for name, hook in registry.worker_passes:
        call(name, hook)


def worker_ends() -> None:
    """Call the hooks `worker_ends`."""
    for name, hook in registry.worker_ends:
        call(name, hook)


def call(name: str, hook: Callable[..., object], *args: object) -> None:
    """Call a hook after a commit: an error can undo nothing any more, and must harm nothing."""
    try:
        hook(*args)
    except Exception:
        logger.exception("The extension %s of django_ojs failed after a commit.", name)

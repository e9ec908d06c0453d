"""What an extension may do: the interface between the core and its extensions.

An extension is an object of a subclass of `Extension`, which its app registers in `ready()`. Its
hooks are functions that the core calls. The core imports no extension: it calls the functions of
`django_ojs.hooks`, where the registry is.

The hooks of all extensions are compiled into tuples, which the core reads as attributes. A hook
that no extension has costs nothing: no transaction is opened, no row is read and no object is made
for it. They are compiled when an extension is registered, when the setting `OJS` changes, and when
one of `django_ojs.signals` gains or loses a receiver.

Where several extensions have a hook, that of the lowest number comes first, whatever the order of
`INSTALLED_APPS`. What the events, the statistics, the signals, the audit trail, the bounds, the
limits, the turns of tenants and others do is in `django_ojs.extensions`.

The hooks `around_push`, `around_store`, `around_insert`, `around_admit_again` and `around_run` are
rings: each gets a function that goes on with the hook of the next number, and at last with what the
ring is around. It returns what that returns, and may do something before and after it, call it
again, or raise an error in its place. A hook that has taken something, such as a lock or one of a
number of places, and does not see the rest succeed, gives it back: a transaction or savepoint round
the rest (`database.in_write_transaction`) does so for all that the database keeps. A hook that
rejects says in its error what it is that is full.

A claim of jobs knows no extension either. An extension that has a part in the claims of some queues
has a `ClaimRule` (see `django_ojs.claim_rules`), and a bit in the column `rules` of these queues.
One that keeps jobs from all claims for a while holds them (see `storage.holds`).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, Q

from django_ojs.spec.errors import QueueFull
from django_ojs.spec.failure import Failure
from django_ojs.spec.published import EventType, NewEvent, PastEvent
from django_ojs.spec.queue_config import QueueFields
from django_ojs.spec.states import State, Trigger

if TYPE_CHECKING:
    from django_ojs.claim_rules import ClaimRule
    from django_ojs.finding import Finding

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: The version of this interface. A change that extensions have to follow raises it by one.
INTERFACE: Final = 1

#: Extensions of this package have smaller numbers.
FIRST_FREE_NUMBER: Final = 32

#: Seconds between two passes of the maintenance, so the shortest interval of a step.
TICK: Final = 0.5

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
    """Jobs that PUSH stores together. In `around_push` they are not validated yet."""

    #: Their envelopes. A hook of `around_push` may replace them before it goes on.
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
class Suspended:
    """What a hook of `around_run` returns as the result of a run that is to go on later."""

    #: Gives the job back, in a transaction. The worker calls it when the handler has ended and its
    #: slot is free; again, where it raised what passes: RowLocked, or an error of a database that
    #: is away. Conflict and JobNotFound say that the job is not the worker's any more.
    store: Callable[[], object]


# Without a comparison of its fields: a pass of the maintenance looks each of them up.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DueStep:
    """Something that a worker does every `interval` seconds. It returns a number.

    When it returns `batch` or more, by default 500, it is called again at once. It has nothing to
    do while the condition `when`, which is SQL, does not hold: then `otherwise` is called in its
    place. One statement asks the conditions of all steps. `task` is its name for `task_done`.
    """

    run: Callable[[], int]
    interval: float
    batch: int | None = None
    when: Callable[[], str] | None = None
    otherwise: Callable[[], None] | None = None
    task: str = ""


class Closing(Protocol):
    """Something that works until it is closed."""

    def close(self) -> object:
        """End it, and wait for that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """The functions of one extension that the core calls. What is absent takes no part."""

    #: A ring around all of PUSH: called with the `Batch`, outside of any transaction of PUSH; the
    #: caller's may be open. Not for jobs that come from the outbox, which were pushed before. It
    #: goes on to the results of `Batch.jobs`, which it may change before, or set to a part of them,
    #: and returns one for each job that it got. An error is raised by the enqueue.
    around_push: Around | None = None

    #: Python code enqueues jobs: called for each enqueue, without arguments. It returns a note for
    #: the `PushOptions`, which the other hooks of the extension then find there. An error is raised
    #: by the enqueue.
    note: Callable[[], object] | None = None

    #: A job of a batch with notes was validated, and has passed the middleware: called with the
    #: `PushOptions` and the envelope, outside of any transaction of PUSH. It returns the envelope
    #: to store, which is checked once more: limits of its size apply to this one alone. An error
    #: rejects the whole batch, and is raised by the enqueue.
    admit: Callable[[Any, Any], Any] | None = None

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

    #: A new job may be rejected for a part of its queue (`QueueFull.part`), while others have room:
    #: called with the envelope. It returns the id of the part, or None. Jobs of different parts can
    #: be stored apart then.
    bounded_part: Callable[[Any], str | None] | None = None

    #: A ring around the statement by which stored jobs wait again: ACTIVATE, RETRY by hand, and a
    #: queue that is deleted and whose jobs move to another. Not around a promotion, a retry after a
    #: failure or a return to the queue: these jobs were admitted before. Called with the
    #: `Readmission`, in the transaction of the operation. An error undoes the operation and is
    #: raised by it.
    around_admit_again: Around | None = None

    #: An operation asks which jobs exist although they have no row: called with ids, and whether
    #: those in databases beside that of the jobs count, in the caller's transaction or in none. It
    #: returns those that it keeps, and of each whether it will be stored or sent; one that was
    #: rejected may be yet. An error, such as that of a database which cannot be reached, is raised
    #: by who asks.
    kept: Callable[[Collection[UUID], bool], Mapping[UUID, bool]] | None = None

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
    #: and is raised by the operation. What changes many jobs without their callers (claims, the
    #: promotion of due jobs, the return of lost ones, the outcomes of a worker) is then repeated
    #: job by job, so that it is undone only for those for which the hook raises again.
    changed: Mapping[Trigger, Callable[[Change], object]] = field(default_factory=dict)

    #: A handler has asked that no job with the limit of its own starts for `Failure.pause`: called
    #: with the job, which is locked and active, and the failure, in the transaction of FAIL and
    #: before the job waits as long. An error undoes FAIL and is raised by it.
    pause_asked: Callable[[Any, Failure], object] | None = None

    #: As `changed`, after the commit and without a transaction. `reads` names by trigger what it
    #: needs of the jobs, because they may have changed again. An error is logged.
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

    #: A ring around the run of a handler in a worker: called with the run, which has a `job`, a
    #: `handler` and a `context`, on the thread of the handler, within its timeout and outside of a
    #: transaction. It is outside of the middleware, and of the transaction of an atomic handler.
    #: What it goes on to may be awaited where `context.is_async`, and so must be what it returns.
    #: It may set `run.finish`, which is called when the handler has returned, in the transaction of
    #: an atomic one. It may return `Suspended` in place of the result: the run neither completes
    #: nor fails, and spends no attempt. An error fails the run.
    around_run: Around | None = None

    #: Functions that are asked in place of operations, for tests that keep jobs in memory: by the
    #: name of the operation, such as "cancel" or "workflows.create". Each is called with what the
    #: operation got, and the latter also with the function that stores. What it returns is what the
    #: operation returns; None: it takes no part.
    stand_ins: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    #: Jobs are about to be deleted, with all that is kept of them: called with their ids, in the
    #: transaction that deletes them. An error undoes it.
    erased: Callable[[Collection[UUID]], object] | None = None

    #: Jobs are exported: called with some hundred of them. It returns by their ids what is to be
    #: written beside the envelope of a job, as JSON, under the name of the extension. An error ends
    #: the export.
    exported: Callable[[Sequence[Any]], Mapping[UUID, Any]] | None = None

    #: Jobs are imported: called with what was written, by the ids of the new jobs, in the
    #: transaction that has stored them. An error rejects them.
    imported: Callable[[Mapping[UUID, Any]], object] | None = None

    #: The counts of jobs by queue and state were wrong: called in the transaction that corrects
    #: them. An error undoes it.
    counts_repaired: Callable[[], object] | None = None

    #: An operator did something: called in the transaction of what was done; what the code of a
    #: project does by itself is no act. It may return a function that adds to the details of the
    #: act: an operation of many transactions calls it when it is done. An error undoes what was
    #: done.
    acted: Callable[[Act], Callable[[Mapping[str, Any]], object] | None] | None = None

    #: A condition on a row of `ojs_job`, in SQL as of a statement that has parameters: finished
    #: jobs for which it holds are not deleted when their retention time is over.
    needed: str | None = None

    #: A named piece of work of the server itself, such as the promotion of jobs, has changed rows:
    #: called with its name (ojs-distributed-tracing §4.2), when it began and ended, in nanoseconds
    #: since 1970, and how many rows, in the thread that has done it. An error is logged.
    task_done: Callable[[str, int, int, int], object] | None = None

    #: FETCH without a worker of ours begins, such as one over HTTP, where nothing else may do what
    #: is due: called before the claim, in the caller's transaction or in none. There may be very
    #: many, so it limits its own queries. An error of the database, or an OJSError, is raised by
    #: FETCH; any other is logged.
    before_fetch: Callable[[], object] | None = None

    #: What it has a say in when jobs of some queues are claimed.
    claim_rule: "ClaimRule | None" = None

    #: Another extension no longer holds jobs: called with the ids of up to a thousand, which are
    #: locked, in the transaction that opens them. It returns the values of `Job.hold` of those that
    #: it holds itself, or that only claims with its rule may start (see `storage.holds`). An error
    #: undoes the transaction.
    holds: Callable[[Collection[UUID]], Mapping[UUID, int]] | None = None

    #: A process of a worker begins, before its first claim, or ends, after its last job: called
    #: with the id of the worker, in the main thread of the process and outside of a transaction. An
    #: error is logged.
    worker_started: Callable[[str], object] | None = None
    worker_stopping: Callable[[str], object] | None = None

    #: A request over HTTP pushes jobs: called with the request and their types, before they are
    #: stored. It returns a note for the hooks of the enqueue, or None. An OJSError is the response.
    request_note: Callable[[Any, Collection[str]], object] | None = None

    #: A request has stored jobs: called with their queues. It returns headers of the response. An
    #: error is the response, although the jobs are stored.
    push_headers: Callable[[Collection[str]], Mapping[str, str]] | None = None

    #: A request ends with an error: called with the OJSError. It returns headers of the response.
    error_headers: Callable[[Any], Mapping[str, str]] | None = None

    #: A request over HTTP has ended a run: called with the job, after the operation.
    request_ended: Callable[[Any], object] | None = None

    #: A request over HTTP that may have changed something has succeeded: called before its
    #: response is sent.
    request_served: Callable[[], object] | None = None

    #: The command `ojs_worker` starts: called before its processes, when the database has answered,
    #: outside of a transaction. After an error of the database it is called again; a CommandError
    #: ends the command, and any other error is logged.
    workers_start: Callable[[], object] | None = None

    #: FETCH has claimed jobs that have the extension's bit in `marks`: called with these, after the
    #: claim. What it reads for them goes into the `more` of each, which is shown with the job and
    #: which the methods of its context find there. An error gives all jobs of the call back, and is
    #: raised by FETCH.
    fetched: Callable[[Sequence[Any]], object] | None = None

    #: A response shows all of a stored job: called with its row. It returns members of the JSON
    #: object that the core does not know.
    shown: Callable[[Any], Mapping[str, Any]] | None = None

    #: A limit key is shown to who may not see all arguments of jobs: called with the key, whether
    #: an argument of a name is hidden, and what replaces it. It returns the key that may be shown;
    #: None where it does not know which parts of it are arguments. An error is logged, and hides
    #: all of the key.
    hide_in_key: Callable[[str, Callable[[str], bool], str], str | None] | None = None

    #: A worker reports the progress of a run: called with the row of the job, which is locked, and
    #: the report, in the transaction that stores it. An error undoes that, and is raised.
    reported: Callable[[Any, Any], object] | None = None

    #: What methods of a handler's context do, by their names: each is called with the claimed job,
    #: and what the method got.
    context: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    #: What works beside a worker in threads of its own, until it is closed: called with the id of
    #: the worker, before its first claim; `close` is called after its last job. A worker with
    #: `--once`, which ends by itself, has none. An error is logged.
    worker_threads: Callable[[str], Closing] | None = None

    #: A worker with `--once` has found no job: called for what is to be enqueued before it ends,
    #: such as the next steps of workflows, outside of a transaction. It returns how much there was:
    #: the worker claims again then. An error of the database is that of a claim; any other is
    #: logged.
    next_jobs: Callable[[], int] | None = None

    #: Called about twice a second by each worker, in the thread of its maintenance and outside of
    #: a transaction, and once more by each worker that ends, as its last write; there the highest
    #: number comes first. An error is logged.
    worker_passes: Callable[[], object] | None = None
    worker_ends: Callable[[], object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ForTests:
    """What the test helpers (`django_ojs.testing`) do of an extension."""

    #: In place of those of `Hooks.context`, for handlers that run in a test: in its transaction, or
    #: without a stored job, which then has no `worker_id`.
    context: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    #: The `stand_ins` of a test that records jobs in memory: each is called with its `Recorder`,
    #: and what the operation got. Where jobs run when they are enqueued, the function that stores
    #: is called, and what it stores is run.
    recorded: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    #: A test forgets its jobs: called with the ids of those that were deleted.
    cleared: Callable[[Collection[UUID]], object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """A part of the manifest: extensions whose requirements all hold, and a capability.

    An official extension has the URN `urn:ojs:ext:<name>`, an experimental one
    `urn:ojs:ext:experimental:<name>`, and any other one `urn:ojs:ext:x:<custom>`: vendor and name.
    """

    official: str | None = None
    experimental: str | None = None
    custom: str | None = None
    capability: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribute:
    """An attribute of an envelope that the core does not know (ojs-core §5.5).

    A client sends it beside the others or in `options`, and Python code in the option `extra`. It
    is stored in the column `options`, in its object `extra`, and responses show it.
    """

    name: str
    #: Called with the value and the name before a job that has one is stored. It raises an OJSError
    #: for a wrong value, such as `InvalidRequest.of(name, "must be a positive integer")`.
    check: Callable[[Any, str], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Qualifier:
    """A word of a search for jobs, such as `order:17`, in the admin and on the command line."""

    name: str
    #: A search with it, for the help.
    example: str
    #: Called with the value, it returns a condition on `Job`: a Q or an expression. It raises an
    #: OJSError, such as InvalidRequest, where the value means nothing.
    condition: Callable[[str], Any]
    #: An index finds the jobs by the condition. Else a search compares as many jobs at a time as it
    #: does for the other conditions.
    is_indexed: bool = False
    #: Only who may see payloads may search by it.
    reads_payload: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedEvents:
    """Which of the events that were kept a page asks for."""

    types: Collection[EventType]
    #: At most so many.
    limit: int
    #: Those of one job, queue or worker. None: of all.
    subject: str | None = None
    #: Found among so many of the latest events, of the subject or of all. None: among all.
    among: int | None = None
    #: Not older than this.
    within: timedelta | None = None
    #: Members that their data has.
    data: Mapping[str, str] = field(default_factory=dict)


class Extension:
    """A subject that the core does not know. Register an object of a subclass in `ready()`."""

    #: Its name in messages.
    name: str
    #: Its place among the others. Those of this package are below 32; 32 to 62 are free.
    number: int
    #: The version of this interface for which it was written: a number, not the name `INTERFACE`,
    #: which changes. `manage.py check` compares them. Those of this package need none.
    interface: int | None = None
    #: Its settings in `OJS`: a frozen dataclass, whose fields are declared with `setting.setting`
    #: and have the names of the keys, in lower case. `conf.of` returns them.
    settings: type | None = None
    #: The attributes of an envelope that it knows (ojs-core §5.5).
    attributes: Sequence[Attribute] = ()
    #: Its fields in the configuration of a queue.
    queue_fields: QueueFields | None = None
    #: A folder with what it adds to the table of jobs: triggers, functions and indexes, in
    #: `postgresql.sql`, `sqlite.sql` and `mariadb.sql`. Their names begin with `ojs_`, a statement
    #: can be executed again, a blank line separates two, and `{mark}` is its bit in
    #: `ojs_job.marks`. What is missing is created after each `migrate`.
    schema: Path | None = None
    #: The part of the OpenAPI document for its routes: its `tags`, `paths` and `components`, or a
    #: YAML file that has them.
    openapi: Path | Mapping[str, Any] | None = None
    #: The words that it adds to the search for jobs.
    qualifiers: Sequence[Qualifier] = ()
    #: What `may_find` asks for, in the plural: a verdict says that there are "0 late schedules".
    looks_for: str = ""

    def fits(self) -> bool:
        """Say whether it was written for this version of the interface."""
        return self.number < FIRST_FREE_NUMBER or self.interface == INTERFACE

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        """Note what has changed while something of the schema was missing, which exists now.

        Called by `migrate`, in the transaction that has created it: when the extension is added to
        a site, and when it was taken out and is added again.
        """

    def hooks(self) -> Hooks:
        """Return the hooks by the settings as they are now: those that are not needed are absent.

        Called whenever hooks are compiled.
        """
        return Hooks()

    def for_tests(self) -> ForTests | None:
        """Return what the test helpers do of it."""
        return None

    def due_steps(self) -> Sequence[DueStep]:
        """Return what one worker of the site does again and again, for all of them.

        Called by each process of a worker, when the thread of its maintenance is made. An error of
        the database ends a pass; it is logged, as any other is, and the step is tried again.
        """
        return ()

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        """Return what the other workers do, where that one leaves work undone for so long.

        On a database that has one writer at a time, they do nothing.
        """
        return ()

    def subcommands(self) -> Sequence[Any]:
        """Return its subcommands of `manage.py ojs`: `command_line.subcommand.Subcommand`.

        Called by that command, so that what they need is imported nowhere else.
        """
        return ()

    def findings(self) -> Sequence["Finding"]:
        """Return what needs attention now, by a few bounded ranges of indexes.

        Called by the maintenance, the pages, `doctor`, the metrics and `GET /health`. An error of
        the database is that of all findings of failures; any other is logged.
        """
        return ()

    def may_find(self) -> str:
        """Return the condition, in SQL as `DueStep.when` has it, without which it finds nothing.

        One statement asks those of all extensions. Nothing: `findings` is always called.
        """
        return ""

    def doctor_checks(self) -> Sequence[Any]:
        """Return what `manage.py ojs doctor` checks of it: `command_line.checks.finding.Check`.

        Called by that command, so that what they need is imported nowhere else.
        """
        return ()

    def routes(self) -> Sequence[Any]:
        """Return its routes of the HTTP API, each made by `http.routing.route`.

        Called once, when the URLs of the project are imported, and not by a worker.
        """
        return ()

    def manifest(self) -> Sequence[Declared]:
        """Return what the manifest of the server declares while it is installed."""
        return ()

    def pages(self) -> Mapping[type[Model], str]:
        """Return its models with their ModelAdmin classes, each as a path in Python.

        Called when the pages of the package are registered on an admin site, which imports a class
        when its pages are first used. It may be a mixin of ModelAdmin; its `place` orders the
        navigation.
        """
        return {}

    def page_urls(self, page: Any) -> Sequence[Any]:
        """Return the URLs that it adds to the pages of a model, made by `page.pattern`.

        `page` is a ModelAdmin of the package, which Django asks for its URLs.
        """
        return ()

    def panels(self) -> Sequence[Any]:
        """Return its parts of the pages of jobs, queues and others: `admin.panels.Panel`."""
        return ()

    def columns(self) -> Sequence[Any]:
        """Return its columns of the lists of jobs and of queues: `admin.panels.AdminColumn`."""
        return ()

    def history(self, request: Any, model: str, key: str) -> Sequence[Any]:
        """Return who did what to an object, newest first: the rows of Django's page *History*."""
        return ()

    def shown_of_queues(
        self, names: Collection[str], to_operators: bool
    ) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return members of the JSON objects of these queues, each with the name of its queue.

        `to_operators`: of a queue on the control plane. Else of its `stats` on the data plane.
        """
        return ()

    def suggestions(self) -> Sequence[tuple[str, Collection[str]]]:
        """Return values that a search box suggests, each with a word of the search: `type`."""
        return ()

    def past_events(self, wanted: WantedEvents) -> Sequence[PastEvent]:
        """Return the events that it has kept, the latest first: one query."""
        return ()

    def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
        """Return what Prometheus is told of these queues, or of all: families of metrics.

        Called whenever the metrics are asked for. An error is logged, unless it is the database's.
        """
        return ()

    def waits_for(self, jobs: Sequence[Any]) -> Mapping[UUID, str]:
        """Return what it knows of why scheduled jobs wait: a sentence for each of these, by its id.

        Called with the job of a page, or with the scheduled jobs of a page of the list: one query.
        """
        return {}

    def what_is(self, key: UUID) -> Sequence[str]:
        """Return what to say to an operator who looks for a job by this id, if it is its own."""
        return ()

"""What an extension may do: the interface between the core and its extensions.

An extension is an object of a subclass of `Extension`, which the AppConfig of its app names in
`ojs_extensions`. Its hooks are functions that the core calls. The core imports no extension: it
calls the functions of `django_ojs.hooks`, where the registry is.

The hooks of all extensions are compiled into tuples, which the core reads as attributes. A hook
that no extension has costs nothing: no transaction is opened, no row is read and no object is made
for it. They are compiled when an extension is registered, when the setting `OJS` changes, and when
one of `django_ojs.signals` gains or loses a receiver.

If several extensions have a hook, the lowest number comes first, whatever the order of
`INSTALLED_APPS`. The extensions of this package are in `django_ojs.extensions`.

The hooks `around_push`, `around_store`, `around_insert`, `around_admit_again` and `around_run` are
wrappers. Each gets a function that calls the wrapper of the next number, and at last the wrapped
operation. A wrapper returns what this function returns. It may act before and after the call, call
the function again, or raise an error instead. If it has taken something, such as a lock or a place,
and the rest fails, it has to give it back; a transaction or savepoint around the rest
(`database.in_write_transaction`) does so for all that the database stores. A wrapper that rejects
jobs raises an error that says what is full.

A claim of jobs knows no extension either. An extension that takes part in the claims of some queues
has a `ClaimRule` (see `django_ojs.claim_rules`), and a bit in the column `rules` of these queues.
An extension that keeps jobs from all claims for a while holds them (see `storage.holds`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, Q

from django_ojs.spec.errors import QueueFull
from django_ojs.spec.failure import Failure
from django_ojs.spec.published import EventType, NewEvent, PastAct, PastEvent
from django_ojs.spec.queue_config import QueueFields
from django_ojs.spec.states import State, Trigger

if TYPE_CHECKING:
    from django_ojs.claim_rules import ClaimRule
    from django_ojs.finding import Finding

#: The version of this interface. A change that extensions have to follow raises it by one.
INTERFACE: Final = 1

#: The extensions of this package have smaller numbers.
FIRST_FREE_NUMBER: Final = 32

#: Seconds between two passes of the maintenance, and therefore the shortest interval of a step.
TICK: Final = 0.5

#: Numbers of jobs, by queue and type.
Numbers: TypeAlias = Mapping[tuple[str, str], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What an operation knows about the jobs that it changes, by the ids of the jobs.

    Unknown values are left out.
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
    #: Whether handlers had begun to run the jobs. If not, the jobs were only claimed.
    has_run: bool = True
    #: Why they were discarded, as in the column `discard_reason`.
    reason: str | None = None


NOTHING_KNOWN: Final = Known()


class Change:
    """A statement has changed the states of these jobs."""

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
        """Return the jobs as they are after the change. One query reads them for all hooks.

        They lack their payloads (see `Reads.ROWS`), unless a hook says that it needs these.
        """
        if self.rows_read is None:
            self.rows_read = self._read()
        return self.rows_read

    def jobs(self) -> Mapping[UUID, Any]:
        """Return the jobs as the operation knows them, or otherwise their rows, by id."""
        return self.known.jobs or {job.pk: job for job in self.rows()}


class Reads(IntEnum):
    """What a hook reads after the commit. The core reads it earlier, in the transaction."""

    NOTHING = 0
    #: What `Change.jobs` returns.
    JOBS = 1
    #: What `Change.rows` returns, without `args`, `options`, `progress` and `result`, which are
    #: most of a large job.
    ROWS = 2
    #: What `Change.rows` returns, with all columns.
    WHOLE_ROWS = 3


class Count(StrEnum):
    """What is counted about jobs besides their changes of state."""

    #: A full queue rejected them.
    REJECTED = "rejected"
    #: Their handlers reported progress.
    PROGRESS_UPDATES = "progress_updates"
    #: The end of a run could not be added to their histories.
    HISTORY_FAILURES = "history_failures"


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """An operator, the address of the client, and the id of its request over HTTP."""

    #: The entry point that was used: one of `models.ActorKind`.
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

    #: Their envelopes. A hook of `around_push` may replace them before it calls the next function.
    jobs: Sequence[Any]
    #: How they are pushed: the `PushOptions`, with the notes for extensions.
    options: Any
    #: The results of the same call so far, without the jobs that it has cancelled since. If this
    #: INSERT raises an error, the jobs that the call has stored are rolled back.
    earlier: Sequence[Any] = ()
    #: A hook of `around_insert` sets it for a while. The INSERT then asks `ojs_admit_all` whether
    #: the queues are far from their bounds; if not, it stores nothing, and returns None.
    only_if_admitted: bool = False


#: A hook that wraps an operation: it gets the subject, and a function that continues.
Around: TypeAlias = Callable[[Any, Callable[[], Any]], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """The error for jobs that cannot be moved into another queue, and the jobs that still can."""

    full: QueueFull
    others: Q


@dataclass(kw_only=True, slots=True)
class Readmission:
    """Stored jobs that are to wait in a queue, and need room there like new ones."""

    #: The rows, which the operation has locked.
    jobs: Sequence[Any]
    #: The queue into which they are moved. If it is None, each waits in its own queue.
    queue: str | None = None
    #: The caller tries these jobs again later, so a hook should not wait long for a lock.
    is_tried_again: bool = False
    #: The errors so far of an operation that moves jobs in many transactions, by the names of the
    #: parts that are full (`QueueFull.part`). A hook may add one, and put the ids of the jobs that
    #: have no room into `left_out`; the others are moved. If it is None, the hook raises the error.
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
    """What a hook of `around_run` returns as the result of a run that is to continue later."""

    #: Gives the job back, in a transaction. The worker calls it when the handler has ended and its
    #: slot is free, and again after RowLocked, or after an error of a database that is
    #: away. Conflict and JobNotFound mean that the worker no longer holds the job.
    store: Callable[[], object]


# Its fields are not compared, because a pass of the maintenance looks up each step.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DueStep:
    """Something that a worker does every `interval` seconds. It returns a number.

    If it returns `batch` or more, by default 500, it is called again at once. While the condition
    `when`, which is SQL, does not hold, `otherwise` is called instead. One statement reads the
    conditions of all steps. `task` is its name for `task_done`.
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
        """End it, and wait until it has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """The functions of one extension that the core calls. Unused ones are left out."""

    #: Wraps all of PUSH. It is called with the `Batch`, outside of any transaction of PUSH; the
    #: caller's may be open. Jobs from the outbox, which were pushed before, do not call it. The
    #: function returns the results of `Batch.jobs`; before the call, the hook may change these jobs
    #: or leave some out. The hook returns a result for each job that it got. An error is raised by
    #: the enqueue.
    around_push: Around | None = None

    #: Called for each enqueue in Python code, without arguments. It returns a note for the
    #: `PushOptions`, where the other hooks of the extension find it. An error is raised by the
    #: enqueue.
    note: Callable[[], object] | None = None

    #: Called when a job of a batch with notes was validated and has passed the middleware, with the
    #: `PushOptions` and the envelope, outside of any transaction of PUSH. It returns the envelope
    #: to store, which is checked once more; limits of its size apply to this envelope only. An
    #: error rejects the whole batch, and is raised by the enqueue.
    admit: Callable[[Any, Any], Any] | None = None

    #: Wraps all that PUSH does after jobs are admitted, for batches whose `PushOptions` have notes.
    #: It is called with the `Batch`, outside of any transaction of PUSH; the caller's may be open.
    #: The hook may call the function, which returns the results, again after a wait for room, or
    #: return others if it stores the jobs elsewhere. An error is raised by the enqueue.
    around_store: Around | None = None

    #: Wraps the INSERT of new jobs, if a queue has a configuration or the `PushOptions` say
    #: `checks_bound`. It is called with the `Batch`, for each INSERT, in the caller's transaction
    #: or in none. The function returns the rows that were stored. It returns None, and nothing was
    #: stored, if a hook asked for `only_if_admitted` and the queues may be full. The hook then also
    #: returns None, or calls the function again without the condition. An error leaves no job of
    #: the batch stored, is raised by the enqueue, and must leave the caller's transaction usable.
    around_insert: Around | None = None

    #: Called with the envelope of a new job if a part of its queue may be full (`QueueFull.part`)
    #: while other parts have room. It returns the id of the part, or None. Jobs of different parts
    #: can then be stored separately.
    bounded_part: Callable[[Any], str | None] | None = None

    #: Wraps the statement by which stored jobs wait again: ACTIVATE, RETRY by hand, and the move of
    #: the jobs of a deleted queue. A promotion, a retry after a failure and a return to the queue
    #: do not call it, because their jobs were admitted before. It is called with the `Readmission`,
    #: in the transaction of the operation. An error undoes the operation and is raised by it.
    around_admit_again: Around | None = None

    #: Called with the ids of jobs that have no row, which an extension may keep in an outbox, and
    #: whether to search other databases too; in the caller's transaction or in none. It returns the
    #: ids that it keeps, each with whether the job will be stored or sent: False if it was
    #: rejected, and may still be sent later. An error is raised by the operation.
    kept: Callable[[Collection[UUID], bool], Mapping[UUID, bool]] | None = None

    #: Called when a wrapper has rejected jobs, with the QueueFull, to whose details it may add, and
    #: the jobs, before the error is raised or the jobs are stored elsewhere. The jobs are new, or
    #: stored ones that were to wait again. The caller's transaction is open and may be rolled back,
    #: so what has to survive is kept in memory, or written by a connection of another thread. An
    #: error is logged.
    rejected: Callable[[QueueFull, Sequence[Any]], object] | None = None

    #: Called when PUSH has inserted jobs, with the batch, in the order in which they were sent. It
    #: is called in the transaction of the INSERT, which is the caller's if one is open. An error
    #: undoes the INSERT and is raised by the enqueue.
    stored: Callable[[Sequence[Any]], object] | None = None

    #: Like `stored`, but called after the commit, so that no transaction is opened for it. The jobs
    #: stay in memory until then. An error is logged.
    stored_and_committed: Callable[[Sequence[Any]], object] | None = None

    #: Called when the transaction of an enqueue has committed, with the number of jobs of each
    #: queue and type that it has stored, once for each INSERT. It gets no jobs, because a long
    #: transaction must not keep its payloads in memory. An error is logged.
    committed: Callable[[Numbers], object] | None = None

    #: Called when a statement has changed the states of jobs, with the change, by the trigger of
    #: the state machine (ojs-core §6.3), in its transaction. An error undoes the change and is
    #: raised by the operation. An operation on jobs of many callers (claims, promotion, expiry,
    #: timeouts, returns, the outcomes of a worker, bulk actions) is repeated job by job instead, so
    #: that only the jobs for which the hook raises again are left unchanged; a claim lets them wait
    #: a minute. A passing error of the database is raised, and undoes all.
    changed: Mapping[Trigger, Callable[[Change], object]] = field(default_factory=dict)

    #: Called when a handler has asked that no job with its limit starts for `Failure.pause`, with
    #: the job, which is locked and active, and the failure, in the transaction of FAIL and before
    #: the job begins to wait for that time. An error undoes FAIL and is raised by it.
    pause_asked: Callable[[Any, Failure], object] | None = None

    #: Like `changed`, but after the commit and without a transaction. `reads` names, by trigger,
    #: what it needs of the jobs, because they may have changed again. An error is logged.
    changed_and_committed: Mapping[Trigger, Callable[[Change], object]] = field(
        default_factory=dict
    )
    reads: Mapping[Trigger, Reads] = field(default_factory=dict)

    #: Called when something happened that changes no state of a job: to a queue, a worker, a
    #: workflow, a cron job or a limit key, or a run has sent a heartbeat, progress or a checkpoint.
    #: It is called in the same transaction, with events of the types in `published_types`; events
    #: of other types are not even made. An error undoes what happened, such as the extension of one
    #: lease; a worker whose heartbeat is undone claims no job.
    published: Callable[[Sequence[NewEvent]], object] | None = None
    published_types: frozenset[EventType] = frozenset()

    #: Called when something other than a change of state was counted, after the commit, with the
    #: number of jobs of each queue and type. An error is logged.
    counted: Callable[[Count, Numbers], object] | None = None

    #: Called when a queue was configured, created with a configuration or deleted, with its name,
    #: in the transaction of the change, after its row is written. An error undoes the change.
    queue_configured: Callable[[str], object] | None = None
    queue_deleted: Callable[[str], object] | None = None

    #: Called when a queue that may have jobs was configured, with its name, after the transaction
    #: of the change has ended, with the caller's open or none. It may do work in many transactions.
    #: An error is raised by the operation, and undoes nothing.
    after_queue_configured: Callable[[str], object] | None = None

    #: Wraps the run of a handler in a worker. It is called with the run, which has a `job`, a
    #: `handler` and a `context`, on the thread of the handler, within its timeout and outside of a
    #: transaction. It is outside of the middleware, and of the transaction of an atomic handler. If
    #: `context.is_async`, the result of the function has to be awaited, and so has the
    #: hook's. It may set `run.finish`, which is called when the handler has returned, in the
    #: transaction of an atomic one. It may return `Suspended` in place of the result; the run then
    #: neither completes nor fails, and spends no attempt. An error fails the run.
    around_run: Around | None = None

    #: Functions that tests call in place of operations to keep jobs in memory, by the name of the
    #: operation, such as "cancel" or "workflows.create". Each is called with the arguments of the
    #: operation; one that creates jobs also gets the function that stores them. The operation
    #: returns the stand-in's result, unless that is None.
    stand_ins: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    #: Called before jobs and all that is stored about them are deleted, with their ids, in the
    #: transaction that deletes them. An error undoes the transaction.
    erased: Callable[[Collection[UUID]], object] | None = None

    #: Called when jobs are exported, with some hundred of them. It returns, by their ids, what is
    #: to be written beside the envelope of a job, as JSON, under the name of the extension. An
    #: error ends the export.
    exported: Callable[[Sequence[Any]], Mapping[UUID, Any]] | None = None

    #: Called when jobs are imported, with what was written, by the ids of the new jobs, in the
    #: transaction that has stored them. An error rejects the jobs.
    imported: Callable[[Mapping[UUID, Any]], object] | None = None

    #: Called when the counts of jobs by queue and state were wrong, in the transaction that
    #: corrects them. An error undoes the correction.
    counts_repaired: Callable[[], object] | None = None

    #: Called when an operator did something, in the transaction of the change. Changes by the
    #: project's own code are not reported. It may return a function that adds to the details of the
    #: act; an operation of many transactions calls it at its end. An error undoes the change.
    acted: Callable[[Act], Callable[[Mapping[str, Any]], object] | None] | None = None

    #: A condition on a row of `ojs_job`, in SQL for a statement with parameters (`%` is `%%`).
    #: Finished jobs for which it holds are not deleted when their retention time is over.
    needed: str | None = None

    #: Called when a named task of the server itself, such as the promotion of jobs, has changed
    #: rows, with its name (ojs-distributed-tracing §4.2), its start and its end, in nanoseconds
    #: since 1970, and the number of rows, in the thread of the task. An error is logged.
    task_done: Callable[[str, int, int, int], object] | None = None

    #: Called when a FETCH begins that must do what is due by itself, because there may be no
    #: maintenance: over HTTP, or with `--once`. It is called before the claim, in the caller's
    #: transaction or in none. There may be very many such FETCHes, so it has to limit its own
    #: queries. An error of the database, or an OJSError, is raised by FETCH; any other is logged.
    before_fetch: Callable[[], object] | None = None

    #: The rule by which the extension takes part in the claims of some queues.
    claim_rule: "ClaimRule | None" = None

    #: Called when another extension no longer holds jobs, with the ids of up to a thousand jobs,
    #: which are locked, in the transaction that opens them. It returns the values of `Job.hold` of
    #: the jobs that it holds itself, or that only claims with its rule may start (see
    #: `storage.holds`). An error undoes the transaction.
    holds: Callable[[Collection[UUID]], Mapping[UUID, int]] | None = None

    #: Called when a process of a worker begins, before its first claim, and when it ends, after its
    #: last job, with the id of the worker, in the main thread of the process and outside of a
    #: transaction. An error is logged.
    worker_started: Callable[[str], object] | None = None
    worker_stopping: Callable[[str], object] | None = None

    #: Called when a request over HTTP pushes jobs, before they are stored, with the request and the
    #: types. It returns a note for the hooks of the enqueue, or None. An error ends the request.
    request_note: Callable[[Any, Collection[str]], object] | None = None

    #: Called when a request has stored jobs, with their queues. It returns headers of the response.
    #: An error is logged. In an open transaction the error is the response, and no job is stored.
    push_headers: Callable[[Collection[str]], Mapping[str, str]] | None = None

    #: Called with the OJSError that ends a request. It returns headers of the response. An error in
    #: this hook or in the next two is logged, or is the response in an open transaction.
    error_headers: Callable[[Any], Mapping[str, str]] | None = None

    #: Called when a request over HTTP has ended a run, with the job, after the operation.
    request_ended: Callable[[Any], object] | None = None

    #: Called when a request over HTTP that may have changed something has succeeded, before its
    #: response is sent.
    request_served: Callable[[], object] | None = None

    #: Called when the command `ojs_worker` starts, before its processes, after the database has
    #: responded, outside of a transaction. After an error of the database it is called again. A
    #: CommandError ends the command, and any other error is logged.
    workers_start: Callable[[], object] | None = None

    #: Called when FETCH has claimed jobs that have the extension's bit in `marks`, with these jobs,
    #: after the claim. It puts what it reads for them into the `more` of each job, which is shown
    #: with the job, and which the methods of its context read. After an error it is called for each
    #: of the jobs, and those for which it raises again wait a minute. A passing error of the
    #: database is raised by FETCH, and gives all jobs of the call back.
    fetched: Callable[[Sequence[Any]], object] | None = None

    #: Called when a response shows all of a stored job, with its row. It returns members of the
    #: JSON object that the core does not know. An error is logged, and they are left out.
    shown: Callable[[Any], Mapping[str, Any]] | None = None

    #: Called when a limit key is shown to a user who may not see all arguments, with the key, a
    #: function that says whether a named argument is hidden, and the replacement. It returns what
    #: may be shown, or None if it does not know the arguments. An error is logged, and hides all.
    hide_in_key: Callable[[str, Callable[[str], bool], str], str | None] | None = None

    #: Called when a worker reports the progress of a run, with the row of the job, which is locked,
    #: and the report, in the transaction that stores it. An error undoes that, and is raised.
    reported: Callable[[Any, Any], object] | None = None

    #: The methods that it adds to a handler's context, by their names. Each is called with the
    #: claimed job and the arguments of the method.
    context: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    #: Starts something that works beside a worker, in threads of its own, until it is closed. It is
    #: called with the id of the worker, before its first claim; `close` is called after its last
    #: job. A worker with `--once`, which ends by itself, does not call it. An error is logged.
    worker_threads: Callable[[str], Closing] | None = None

    #: Called when a worker with `--once` has found no job, to enqueue what is due before it ends,
    #: such as the next steps of workflows, outside of a transaction. It returns how much there was;
    #: if there was something, the worker claims again. An error of the database is treated like an
    #: error of a claim, and any other error is logged.
    next_jobs: Callable[[], int] | None = None

    #: Called about twice a second by each worker, in the thread of its maintenance and outside of a
    #: transaction. `worker_ends` is called by a worker that ends, for a last write, the highest
    #: number first. An error is logged.
    worker_passes: Callable[[], object] | None = None
    worker_ends: Callable[[], object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ForTests:
    """What the test helpers (`django_ojs.testing`) do for an extension."""

    #: Replaces the methods of `Hooks.context` for handlers that run in a test: in its transaction,
    #: or without a stored job, which then has no `worker_id`.
    context: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    #: The `stand_ins` of a test that records jobs in memory. Each is called with its `Recorder`,
    #: and the arguments of the operation. If jobs run when they are enqueued, the function that
    #: stores is called, and the jobs that it stores are run.
    recorded: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    #: Called when a test forgets its jobs, with the ids of the deleted ones.
    cleared: Callable[[Collection[UUID]], object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """A part of the manifest: OJS extensions that are met in full, and a capability.

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
    #: Called with the value and the name before a job with the attribute is stored. It raises an
    #: OJSError for an invalid value, such as `InvalidRequest.of(name, "must be an integer")`.
    check: Callable[[Any, str], object]
    #: Returns what `options` stores besides the value, given the value and the present queue.
    stored_with: Callable[[Any, str], Mapping[str, Any]] | None = None
    #: Returns the member that credentials for some queues may not send, because it affects others.
    beyond_queue: Callable[[Any, str], str | None] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Qualifier:
    """A word of a search for jobs, such as `order:17`, in the admin and on the command line."""

    name: str
    #: An example of a search with the word, for the help.
    example: str
    #: Called with the value, it returns a condition on `Job`: a Q or an expression. It raises an
    #: OJSError, such as InvalidRequest, for an invalid value.
    condition: Callable[[str], Any]
    #: Whether an index finds the jobs by the condition. If not, a search reads them in portions.
    is_indexed: bool = False
    #: Only a user who may see payloads may search by it.
    reads_payload: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedEvents:
    """Which of the kept events a page asks for."""

    types: Collection[EventType]
    #: The most events that are returned.
    limit: int
    #: Only events of this job, queue or worker; None for all.
    subject: str | None = None
    #: Search at most this many of the latest events (of the subject, if there is one), or all.
    among: int | None = None
    #: Only events that are not older than this.
    within: timedelta | None = None
    #: Members that the data of an event must have.
    data: Mapping[str, str] = field(default_factory=dict)


class Extension:
    """A subject that the core does not know. The `ojs_extensions` of its app name the class."""

    #: Its name in messages.
    name: str
    #: Its place in the order. Extensions of this package are below 32; 32 to 62 are free.
    number: int
    #: The version of this interface for which it was written: a number, not the name `INTERFACE`,
    #: which changes. `manage.py check` compares them. Extensions of this package need none.
    interface: int | None = None
    #: Its settings in `OJS`: a frozen dataclass, whose fields are declared with `setting.setting`
    #: and have the names of the keys, in lower case. `conf.of` returns them.
    settings: type | None = None
    #: The attributes of an envelope that it knows (ojs-core §5.5).
    attributes: Sequence[Attribute] = ()
    #: Its fields in the configuration of a queue.
    queue_fields: QueueFields | None = None
    #: A folder with what it adds to the table of jobs: triggers, functions and indexes, in
    #: `postgresql.sql`, `sqlite.sql` and `mariadb.sql`. Their names begin with `ojs_`. It must be
    #: possible to execute a statement again; a blank line separates statements, and `{mark}` is the
    #: bit of the extension in `ojs_job.marks`. What is missing is created after each `migrate`.
    schema: Path | None = None
    #: The part of the OpenAPI document for its routes: its `tags`, `paths` and `components`, or a
    #: YAML file that has them.
    openapi: Path | Mapping[str, Any] | None = None
    #: The words that it adds to the search for jobs.
    qualifiers: Sequence[Qualifier] = ()
    #: What `may_find` looks for, in the plural, for a verdict such as "0 late schedules".
    looks_for: str = ""

    def fits(self) -> bool:
        """Return whether it was written for this version of the interface."""
        return self.number < FIRST_FREE_NUMBER or self.interface == INTERFACE

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        """Note what changed while a part of its schema, which exists now, was missing.

        `migrate` calls it in the transaction that has created the part: when the extension is added
        to a site, and when it was taken out and is added again.
        """

    def hooks(self) -> Hooks:
        """Return the needed hooks for the current settings, whenever hooks are compiled."""
        return Hooks()

    def for_tests(self) -> ForTests | None:
        """Return what the test helpers do for it."""
        return None

    def due_steps(self) -> Sequence[DueStep]:
        """Return what one worker of the site repeats for all workers.

        Each process of a worker calls it when the thread of its maintenance is made. An error of
        the database ends a pass. It is logged, like any other error, and the step is tried again.
        """
        return ()

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        """Return what the other workers do if the work of `due_steps` is undone for `behind`.

        On a database that has one writer at a time, they do nothing.
        """
        return ()

    def subcommands(self) -> Sequence[Any]:
        """Return its subcommands of `manage.py ojs`: `command_line.subcommand.Subcommand`.

        It is called by that command, so that the needed modules are imported only there.
        """
        return ()

    def findings(self) -> Sequence["Finding"]:
        """Return what needs attention now, read from a few bounded ranges of indexes.

        It is called by the maintenance, the pages, `doctor`, the metrics and `GET /health`. After
        an error of the database all findings about failures are unknown; any other error is logged.
        """
        return ()

    def may_find(self) -> str:
        """Return an SQL condition, like `DueStep.when`, without which it finds nothing.

        One statement checks all conditions. Without a condition, `findings` is always called.
        """
        return ""

    def routes(self) -> Sequence[Any]:
        """Return its routes of the HTTP API, each made by `http.routing.route`.

        It is called once, when the URLs of the project are imported, and not by a worker.
        """
        return ()

    def manifest(self) -> Sequence[Declared]:
        """Return what the manifest of the server declares while the extension is installed."""
        return ()

    def pages(self) -> Mapping[type[Model], str]:
        """Return its models with their ModelAdmin classes, each as a path in Python.

        It is called when the pages of the package are registered on an admin site, which imports a
        class when its pages are first used. The class may be a mixin of ModelAdmin; its `place`
        orders the navigation.
        """
        return {}

    def page_urls(self, page: Any) -> Sequence[Any]:
        """Return the URLs that it adds to those of `page`, a ModelAdmin, by `page.pattern`."""
        return ()

    def panels(self) -> Sequence[Any]:
        """Return its parts of the pages of jobs, queues and others: `admin.panels.Panel`."""
        return ()

    def columns(self) -> Sequence[Any]:
        """Return its columns of the lists of jobs and of queues: `admin.panels.AdminColumn`."""
        return ()

    def history(self, request: Any, model: str, key: str) -> Sequence[tuple[str, Any]]:
        """Return who did what to an object, for the page *History*: templates with their rows."""
        return ()

    def shown_of_queues(
        self, names: Collection[str], to_operators: bool
    ) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return members of the JSON objects of these queues, each with the name of its queue.

        `to_operators`: for the queue on the control plane; else for its `stats` on the data plane.
        """
        return ()

    def flows(self, queues: Collection[str]) -> Iterable[tuple[str, Any]]:
        """Return the `reports.queue_overview.Flow` of these queues, each with the queue's name."""
        return ()

    def completed_since(
        self, moments: Mapping[tuple[str, str], datetime]
    ) -> Iterable[tuple[tuple[str, str], int]]:
        """Return how many runs completed since these moments, by queue and type ("": any type)."""
        return ()

    def fullness(self, statuses: Sequence[Any], may_be_full: bool) -> Iterable[tuple[str, Any]]:
        """Return how full these queues are, if they are bounded, each with the name of its queue.

        It gets the `QueueStatus` of each, and returns a `reports.queue_overview.Fullness`.
        `may_be_full` is False if no queue was full or nearly full lately.
        """
        return ()

    def suggestions(self) -> Sequence[tuple[str, Collection[str]]]:
        """Return values that a search box suggests, by their qualifiers, such as `type`."""
        return ()

    def past_events(self, wanted: WantedEvents) -> Sequence[PastEvent]:
        """Return the events that it has kept, the latest first, from one query."""
        return ()

    def past_acts(self, since: datetime) -> Sequence[PastAct]:
        """Return what operators did since a moment, the latest first, from one query."""
        return ()

    def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
        """Return the metrics of these queues, or of all, as families of the Prometheus client.

        It is called whenever the metrics are read. An error is logged, unless it is the database's.
        """
        return ()

    def waits_for(self, jobs: Sequence[Any]) -> Mapping[UUID, str]:
        """Return why scheduled jobs wait, as far as it knows: sentences by the ids of the jobs.

        It is called with one job, or with the scheduled jobs on a page of the list, for one query.
        """
        return {}

    def what_is(self, key: UUID) -> Sequence[str]:
        """Return what to tell an operator who looks for a job by the id of one of its objects."""
        return ()

"""The only writer of `Job.state`.

Every transition is one conditional UPDATE: its condition has the expected states and, where a claim
is given, the claim. An operation that comes too late changes nothing and raises. The transitions
are in `spec.states`; the statements of the hot paths (insert, claim, complete, promote, take back)
belong to the dialects, and are built from the same table. `operations.push` stores new jobs.

Each statement here tells the extensions what it has changed (see `extension.Hooks.changed`), so
that no operation can forget it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.extension import NOTHING_KNOWN, Change, Known, Reads
from django_ojs.hooks import (
    UNDONE_BY,
    ChangeHooks,
    call_after,
    failed,
    is_published,
    registry,
    undone_by,
)
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.errors import ClaimLost, Conflict, JobNotFound, OJSError, RowLocked
from django_ojs.spec.isolation import Isolation
from django_ojs.spec.published import EventType
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.spec.suggestions import one_of
from django_ojs.storage import database, raw_queries
from django_ojs.storage.claim_floors import floors
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.expressions import OneOf, Unlocked
from django_ojs.storage.dialects.rows import ClaimRequest
from django_ojs.storage.dialects.server import is_of_worker

T = TypeVar("T")

#: For how long a job waits after an extension has raised when it was claimed.
SET_ASIDE: Final = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A worker's claim on a job (worker-protocol §5.6). A field that is None is not checked.

    `run` is the fencing token. Over HTTP a client may know `attempt` only, which starts again after
    a retry by hand. A job that was claimed without the id of a worker has none: there `attempt` or
    `run` identify the claim.
    """

    worker_id: str | None = None
    attempt: int | None = None
    run: int | None = None
    #: Where the row of the job is (see `place`). It has no effect once the row has moved.
    place: str | None = None

    def condition(self) -> Q:
        """Return the claim as a condition on a job."""
        numbers = {"attempt": self.attempt, "run": self.run}
        wanted = Q(**{name: value for name, value in numbers.items() if value is not None})
        if self.worker_id is None:
            return wanted
        own = Q(worker_id=self.worker_id)
        return wanted & (own | Q(worker_id=None)) if wanted else own

    def fence(self) -> tuple[str, dict[str, str | int]]:
        """Return the same condition as the fence of complete.sql, and its values."""
        numbers = {"attempt": self.attempt, "run": self.run}
        values: dict[str, str | int] = {
            name: value for name, value in numbers.items() if value is not None
        }
        parts = [f"ojs_job.{name} = %({name})s" for name in values]
        if self.worker_id is not None:
            own = "ojs_job.worker_id = %(worker_id)s"
            parts.append(f"({own} OR ojs_job.worker_id IS NULL)" if values else own)
            values["worker_id"] = self.worker_id
        return " AND ".join(parts) or "true", values

    def holds(self, job: Job) -> bool:
        """Whether the job is under this claim."""
        if self.attempt is not None and job.attempt != self.attempt:
            return False
        if self.run is not None and job.run != self.run:
            return False
        if self.worker_id is None or job.worker_id == self.worker_id:
            return True
        has_number = self.attempt is not None or self.run is not None
        return has_number and job.worker_id is None


ANY_CLAIM = Claim()


class RulesUnknown(Exception):
    """A claim did not apply all rules of its queue, and so claimed no job.

    Another process has added them, for example by the first job with a limit by key.
    """


def claim(request: ClaimRequest) -> list[Claimed]:
    """Move available jobs of a queue to active, best first, and return them.

    Raises RulesUnknown for a queue with rules that are not applied (see `ruled_claims`).
    """
    connection = database.connection()
    # The jobs that run alone are few, in an index of their own.
    has_floors = request.isolation is not Isolation.ALONE
    floor = floors.of(request.queue) if has_floors else None
    hooks = registry.changes.get(Trigger.FETCH)
    jobs: list[Claimed] = []
    seconds = 0.0
    try:
        # Without a hook that hears of the claim, it needs no savepoint.
        with _repeatable(request) if hooks and hooks.changed else nullcontext():
            began = time.monotonic()
            found = database.dialect_of(connection).claim(connection, request, floor)
            if found is None:
                raise RulesUnknown
            seconds = time.monotonic() - began
            jobs = [Claimed(row) for row in found]
            jobs.sort(key=lambda job: (-job.priority, job.enqueued_at, job.id))
            _tell_claimed(hooks, jobs)
    except Exception as error:
        if not jobs or not is_of_a_hook(error):
            raise
        return claim_each([job.id for job in jobs], request)
    if has_floors:
        floors.note(request.queue, floor, jobs, seconds)
    return jobs


@contextmanager
def keeping_plans(request: ClaimRequest | None) -> Iterator[None]:
    """Let a session that repeats the statements of a claim keep plans of them.

    A transaction in the block must be repeated as a whole after an error, so no plan is kept in a
    caller's transaction. Nor is one kept for a claim without the id of a worker. Without a request,
    the statements are those by which a worker completes jobs.
    """
    is_own = not database.connection().in_atomic_block
    is_named = request is None or request.worker_id is not None
    is_registered = request is None or request.registered
    token = is_of_worker.set(is_registered if is_own and is_named else None)
    try:
        yield
    finally:
        is_of_worker.reset(token)


@contextmanager
def _repeatable(request: ClaimRequest | None) -> Iterator[None]:
    """Open a transaction, or a savepoint in the caller's, with `keeping_plans`."""
    with keeping_plans(request), database.atomic():
        yield


def claim_each(jobs: Sequence[UUID], request: ClaimRequest) -> list[Claimed]:
    """Claim jobs one by one, after the error of a hook has undone their claim together.

    A job for which the hook raises again waits, so that it is not the first of the next claim.
    """
    claimed: list[Claimed] = []
    for job in jobs:
        free = Job.primary.filter(pk=job, state=State.AVAILABLE)
        with database.atomic():
            keys = lock_free(free)
            found = _unless_undone(partial(claim_chosen, keys, request))
            if found is None:
                later = dict.fromkeys(keys, timezone.now() + SET_ASIDE)
                if _unless_undone(partial(reschedule, later)) is None:
                    # This is the only change that hooks are not told of: a hook that raises for
                    # each job would stop the queue.
                    database.dialect().reschedule(database.connection(), later)
        claimed += found or ()
    return claimed


def change_together(
    heard: Trigger | EventType, jobs: Sequence[UUID], change: Callable[[Sequence[UUID]], T]
) -> list[T]:
    """Change jobs, which the caller has locked, together; or one by one, if a hook undoes that.

    A job for which the hook raises again stays as it was. Return what the changes returned. `heard`
    is what the hooks hear of.
    """
    is_heard: object
    if isinstance(heard, Trigger):
        hooks = registry.changes.get(heard)
        is_heard = hooks and hooks.changed
    else:
        is_heard = is_published(heard)
    try:
        with _undoing(is_heard):
            return [change(jobs)]
    except Exception as error:
        if not is_of_a_hook(error):
            raise
    each = (_unless_undone(partial(change, [job])) for job in jobs)
    return [done for done in each if done is not None]


def _unless_undone(change: Callable[[], T]) -> T | None:
    """Make a change, in a savepoint. Return None where the error of a hook has undone it."""
    try:
        with database.atomic():
            return change()
    except Exception as error:
        leave_out(error)
        return None


def leave_out(error: Exception) -> None:
    """Go on after the error of a hook that has undone a change. Raise any other error."""
    if not is_of_a_hook(error):
        raise error
    if isinstance(error, OJSError):
        # Other errors have been logged. An OJSError is for a caller, which it does not reach here.
        failed(getattr(error, UNDONE_BY), "undid a change", error)


def is_of_a_hook(error: Exception) -> bool:
    """Whether the error of a hook has undone a change, and would undo it again.

    An error that passes by itself does not count, such as one of a database that is away or busy.
    """
    if getattr(error, UNDONE_BY, None) is None or isinstance(error, RowLocked | MemoryError):
        return False
    return not database.may_pass(error)


def _undoing(is_heard: object) -> AbstractContextManager[object]:
    """Undo a change if a hook that hears of it raises. Without such hooks, it has no savepoint."""
    return database.atomic() if is_heard else nullcontext()


def claim_chosen(keys: Sequence[UUID], request: ClaimRequest) -> list[Claimed]:
    """Move these available jobs of the queue, which the caller has locked, to active.

    Return them in this order, or none if the queue has rules that are not applied.
    """
    connection = database.connection()
    rows = database.dialect_of(connection).claim_chosen(connection, keys, request)
    jobs = [Claimed(row) for row in rows]
    order = {key: n for n, key in enumerate(keys)}
    jobs.sort(key=lambda job: order[job.id])
    _tell_claimed(registry.changes.get(Trigger.FETCH), jobs)
    return jobs


def _tell_claimed(hooks: ChangeHooks | None, jobs: Sequence[Claimed]) -> None:
    if hooks is not None and jobs:
        known = Known(jobs={job.id: job for job in jobs})
        before = dict.fromkeys(known.jobs, State.AVAILABLE)
        _tell(hooks, Trigger.FETCH, before, State.ACTIVE, known)


def place(job_id: UUID) -> str | None:
    """Return where the row of a job is, for the claim of a transaction that begins next.

    Return None where it is of no use. A serializable transaction that finds a row by an index
    conflicts with transactions that write to the same page of the index, such as other completions.
    """
    return database.dialect().place(database.connection(), job_id)


def complete(
    worker_id: str,
    finished: Sequence[tuple[UUID, int, json.JSON]],
    known: Known = NOTHING_KNOWN,
) -> set[UUID]:
    """ACK many jobs of one worker, given as (id, run, result), in one statement.

    Return those that it still held, and that no other session has locked; see `still_held`.
    """
    if not finished:
        return set()
    text = ", ".join([_completed(*each) for each in finished])
    connection = database.connection()
    values: dict[str, str | int] = {"worker_id": worker_id, "finished": f"[{text}]"}
    hooks = registry.changes.get(Trigger.ACK)
    is_own = hooks and hooks.changed and not connection.in_atomic_block
    with _repeatable(None) if is_own else nullcontext():
        kept = {key for (key,) in database.dialect_of(connection).complete(connection, values)}
        if hooks is not None and kept:
            before = dict.fromkeys(kept, State.ACTIVE)
            _tell(hooks, Trigger.ACK, before, State.COMPLETED, known)
    return kept


def complete_one(job_id: UUID, claim: Claim, result: json.JSON) -> Job:
    """ACK one job, and return it as it is then, by one statement. Raises as `apply_one` does.

    This needs a dialect that `has_update_returning`.
    """
    connection = database.connection()
    fence, values = claim.fence()
    values["finished"] = f"[{_completed(job_id, 0, result)}]"
    parts = {
        "fence": fence,
        "lock": "SKIP LOCKED" if database.passes_by() else "",
        "columns": raw_queries.columns_of(Job),
    }
    hooks = registry.changes.get(Trigger.ACK)
    with database.atomic_if(hooks and hooks.changed):
        rows = database.dialect_of(connection).complete(connection, values, parts)
        if not rows:
            reject(Trigger.ACK, State.COMPLETED, get(job_id), claim)
        (job,) = raw_queries.instances(Job, rows)
        if hooks is not None:
            before = {job_id: State.ACTIVE}
            _tell(hooks, Trigger.ACK, before, State.COMPLETED, NOTHING_KNOWN, read=lambda: [job])
    return job


def follow_up_ack(job: Job | Claimed, seconds: float | None = None) -> None:
    """Call the hooks that follow the commit of an ACK, which `apply_one` has left to the caller.

    `seconds` is how long the handler ran, if that is known.
    """
    hooks = registry.changes.get(Trigger.ACK)
    if hooks is not None:
        known = Known(jobs={job.pk: job}, seconds={} if seconds is None else {job.pk: seconds})
        only_after = replace(hooks, changed=())
        _tell(only_after, Trigger.ACK, {job.pk: State.ACTIVE}, State.COMPLETED, known)


def _completed(key: UUID, run: int, result: json.JSON) -> str:
    # Most jobs have no result. Making and encoding a dictionary for each takes three times as long.
    text = "null" if result is None else json.dumps(result)
    return f'{{"id": "{key}", "run": {run}, "result": {text}}}'


def lock_claimed(worker_id: str, claims: Collection[tuple[UUID, int]]) -> set[tuple[UUID, int]]:
    """Lock jobs of one worker, given as (id, run), until the transaction ends.

    Return those that it still held, and that no other session has locked; see `still_held`.
    """
    if not claims:
        return set()
    text = json.dumps([{"id": str(key), "run": run} for key, run in sorted(claims)])
    return database.dialect().lock_claimed(database.connection(), worker_id, text)


def still_held(worker_id: str, claims: Collection[tuple[UUID, int]]) -> set[tuple[UUID, int]]:
    """Return the claims among these, given as (id, run), that a worker still has. Lock nothing.

    If a statement left out a claim that is still held, another session had locked the row.
    """
    held = Job.primary.filter(
        pk__in=[key for key, _ in claims], state=State.ACTIVE, worker_id=worker_id
    )
    return set(claims).intersection(held.values_list("pk", "run"))


def lock_free(jobs: QuerySet[Job]) -> list[UUID]:
    """Lock these jobs, except those that another session has locked, in the order of their ids."""
    free = jobs.order_by("pk").select_for_update(skip_locked=True, no_key=True)
    return list(free.values_list("pk", flat=True))


def fail(again: Mapping[UUID, str], ended: Mapping[UUID, str], known: Known) -> None:
    """FAIL many jobs, which the caller has locked: some wait `again`, the `ended` are discarded.

    The values are JSON objects for `Dialect.end_runs`. `known` has the jobs, in their order.
    """
    connection = database.connection()
    dialect = database.dialect_of(connection)
    if again:
        dialect.end_runs(connection, "retry_failed", f"[{', '.join(again.values())}]")
    if ended:
        dialect.end_runs(connection, "discard_failed", f"[{', '.join(ended.values())}]")
    if (hooks := registry.changes.get(Trigger.FAIL)) is not None:
        after = {key: State.RETRYABLE if key in again else State.DISCARDED for key in known.jobs}
        _tell(hooks, Trigger.FAIL, dict.fromkeys(known.jobs, State.ACTIVE), after, known)


def oldest_available(queue: str, limit: int) -> list[Job]:
    """Return the jobs of a queue that have been available for longest, locked.

    Only ids, queues, types and sizes are read. Jobs that another transaction has locked are left
    out.
    """
    keys = database.dialect().oldest_available(database.connection(), queue, limit)
    found = Job.primary.filter(pk__in=keys)
    return list(found.only("id", "queue", "type", "size_bytes").order_by("enqueued_at", "id"))


def promote(limit: int, queues: Sequence[str] | None = None) -> list[tuple[UUID, str, str]]:
    """Make due jobs, scheduled or retryable, available; with `queues`, up to `limit` of each.

    Return (id, queue, state before) of each.
    """
    hooks = registry.changes.get(Trigger.TIMER)
    due: list[tuple[UUID, str, str]] = []
    try:
        with _undoing(hooks and hooks.changed):
            due = database.dialect().promote(database.connection(), limit, queues)
            if hooks is not None and due:
                before = {key: State(state) for key, _, state in due}
                _tell(hooks, Trigger.TIMER, before, State.AVAILABLE, NOTHING_KNOWN)
        return due
    except Exception as error:
        if not due or not is_of_a_hook(error):
            raise
    return [job for job in due if _unless_undone(partial(_promote_one, job))]


def _promote_one(job: tuple[UUID, str, str]) -> int:
    held = dict.fromkeys(lock_free(Job.primary.filter(pk=job[0], state=job[2])), State(job[2]))
    return apply(Trigger.TIMER, State.AVAILABLE, held, enqueued_at=Now())


def reschedule(jobs: Mapping[UUID, datetime]) -> int:
    """Reschedule available jobs, which the caller has locked, to these times. Return how many."""
    if not jobs:
        return 0
    number = database.dialect().reschedule(database.connection(), jobs)
    hooks = registry.changes.get(Trigger.RESCHEDULE)
    if hooks is not None and number:
        before = dict.fromkeys(jobs, State.AVAILABLE)
        _tell(hooks, Trigger.RESCHEDULE, before, State.SCHEDULED, NOTHING_KNOWN)
    return number


class Taken(NamedTuple):
    """A job that was taken back."""

    id: UUID
    queue: str
    type: str
    state: str


def take_back(keys: Collection[UUID], error: Mapping[str, object], known: Known) -> list[Taken]:
    """Make active jobs, which the caller has locked, available again.

    If their runs count as attempts, jobs that have spent all attempts are discarded.
    """
    rows = database.dialect().take_back(
        database.connection(), keys, error=json.dumps(error), spends=known.spends
    )
    taken = [Taken(*row) for row in rows]
    hooks = registry.changes.get(Trigger.LAPSE)
    if hooks is not None and taken:
        after = {job.id: State(job.state) for job in taken}
        before = dict.fromkeys(after, State.ACTIVE)
        of_these = replace(known, jobs={job.id: job for job in taken})
        _tell(hooks, Trigger.LAPSE, before, after, of_these)
    return taken


def apply(
    trigger: Trigger,
    target: State,
    held: Mapping[UUID, State],
    *,
    claim: Claim = ANY_CLAIM,
    known: Known = NOTHING_KNOWN,
    **values: Any,
) -> int:
    """Change the state of these jobs to `target`, where the table allows it and the claim matches.

    The caller has locked them, and gives the state of each. Return how many changed.
    """
    allowed = sources(trigger, target)
    before = {key: state for key, state in held.items() if state in allowed}
    jobs = Job.primary.filter(OneOf("pk", before))
    number = _update(trigger, target, jobs, claim, values) if before else 0
    hooks = registry.changes.get(trigger)
    if hooks is not None and number:
        _tell(hooks, trigger, before, target, known)
    return number


def apply_one(
    trigger: Trigger,
    target: State,
    job_id: UUID,
    *,
    claim: Claim = ANY_CLAIM,
    known: Known = NOTHING_KNOWN,
    is_followed_up: bool = True,
    **values: Any,
) -> Job | None:
    """Change the state of one job, by a trigger that leads to `target` from one state.

    Return the job as it is then, unless that takes another statement. Without `is_followed_up`, the
    caller calls `follow_up_ack` after the commit, and needs no job. Raises JobNotFound, Conflict
    (not in a state that allows it) or ClaimLost (active, under another claim), and within
    `database.passing_by` RowLocked.
    """
    hooks = registry.changes.get(trigger)
    with database.atomic_if(hooks and hooks.changed):
        job = _update_one(trigger, target, job_id, claim, values, reads=is_followed_up)
        if hooks is None:
            return job
        (source,) = sources(trigger, target)
        change = _tell(
            hooks,
            trigger,
            {job_id: source},
            target,
            known,
            read=lambda: [job or get(job_id)],
            is_followed_up=is_followed_up,
        )
    return change.rows_read[0] if change.rows_read else job


def _expected(trigger: Trigger, target: State, jobs: QuerySet[Job], claim: Claim) -> QuerySet[Job]:
    """Return the jobs among these that may make the transition, under this claim."""
    if claim is not ANY_CLAIM:
        jobs = jobs.filter(claim.condition())
    return jobs.filter(state__in=sources(trigger, target))


def _update(
    trigger: Trigger, target: State, jobs: QuerySet[Job], claim: Claim, values: Mapping[str, Any]
) -> int:
    return _expected(trigger, target, jobs, claim).update(state=target.value, **values)


def _update_one(
    trigger: Trigger,
    target: State,
    job_id: UUID,
    claim: Claim,
    values: Mapping[str, Any],
    *,
    reads: bool,
) -> Job | None:
    """Change one job. With `reads`, return it as it is then, if the same statement can do so."""
    job = Job.primary.filter(pk=Unlocked(job_id) if database.passes_by() else job_id)
    if claim.place is not None:
        there = job.extra(where=["ctid = %s::tid"], params=[claim.place])
        if _update(trigger, target, there, claim, values):
            return None
    changed: list[Job] = []
    if reads and database.dialect().has_update_returning:
        jobs = _expected(trigger, target, job, claim)
        changed = raw_queries.update_returning(jobs, {"state": target.value, **values})
        number = len(changed)
    else:
        number = _update(trigger, target, job, claim, values)
    if not number:
        reject(trigger, target, get(job_id), claim)
    return changed[0] if changed else None


def _tell(
    hooks: ChangeHooks,
    trigger: Trigger,
    before: Mapping[UUID, State],
    after: State | Mapping[UUID, State],
    known: Known,
    *,
    read: Callable[[], Sequence[Job]] | None = None,
    is_followed_up: bool = True,
) -> Change:
    """Tell the extensions of a change, in its transaction and after it."""
    if isinstance(after, State):
        after = dict.fromkeys(before, after)
    change = Change(trigger, before, after, known, read or (lambda: _rows(before, hooks.reads)))
    for name, hook in hooks.changed:
        try:
            hook(change)
        except Exception as error:
            undone_by(name, error)
            raise
    if not (is_followed_up and hooks.committed):
        return change
    # What the hooks after the commit need of the jobs is read now: they may change again.
    if hooks.reads is Reads.JOBS:
        change.jobs()
    elif hooks.reads is not Reads.NOTHING:
        change.rows()

    database.after_commit_of(database.connection(), partial(call_after, hooks.committed, change))
    return change


#: The columns that make up most of a large job.
_PAYLOAD: Final = ("args", "options", "progress", "result")


def _rows(keys: Iterable[UUID], reads: Reads) -> list[Job]:
    rows = Job.primary.filter(OneOf("pk", list(keys)))
    return list(rows if reads is Reads.WHOLE_ROWS else rows.defer(*_PAYLOAD))


def reject(trigger: Trigger, target: State, job: Job, claim: Claim = ANY_CLAIM) -> NoReturn:
    """Raise the error that says why the job could not make the transition."""
    expected = sources(trigger, target)
    details = {
        "job_id": str(job.pk),
        "current_state": job.state,
        "current_run": job.run,
        "expected_state": expected[0] if len(expected) == 1 else list(expected),
    }
    if State(job.state) in expected and not claim.holds(job):
        raise ClaimLost(
            f"The job is active under another claim; {trigger} changed nothing.",
            details=details,
        )
    if State(job.state) in expected and database.passes_by():
        raise RowLocked.of_job(job.pk)
    raise Conflict(
        f"The job is {job.state}; {trigger} needs it {one_of(expected)}.",
        details=details,
    )


def get(job_id: UUID) -> Job:
    """Return the job as it is now. Raises JobNotFound."""
    stand_in = registry.stand_ins.get("get")
    kept: Job | None = stand_in(job_id) if stand_in else None
    if kept is not None:
        return kept
    key = Job._meta.pk.get_db_prep_value(job_id, database.connection())
    for job in raw_queries.rows(Job, "id = %s", [key]):
        return job
    raise JobNotFound.with_id(job_id)


def lock(job_id: UUID) -> Job:
    """Return the job, locked until the transaction ends.

    Raises JobNotFound; within `database.passing_by` RowLocked.
    """
    if stand_in := registry.stand_ins.get("lock"):
        stand_in(job_id)
    which = Job.primary.filter(pk=job_id)
    skips = database.passes_by()
    for job in which.select_for_update(no_key=True, skip_locked=skips):
        return job
    if skips and which.exists():
        raise RowLocked.of_job(job_id)
    raise JobNotFound.with_id(job_id)


def lock_active(job_id: UUID, trigger: Trigger, target: State, claim: Claim = ANY_CLAIM) -> Job:
    """Lock an active job that is under this claim, for this transition.

    Raises what `lock` and `apply_one` raise.
    """
    job = lock(job_id)
    if job.state != State.ACTIVE or not claim.holds(job):
        reject(trigger, target, job, claim)
    return job


def lock_all(jobs: QuerySet[Job]) -> list[Job]:
    """Lock these jobs until the transaction ends, in the order of their ids.

    Within `database.passing_by`, raises RowLocked if another session has locked one of them.
    """
    skips = database.passes_by()
    found = list(jobs.order_by("pk").select_for_update(no_key=True, skip_locked=skips))
    if skips:
        held = {job.pk for job in found}
        for key in jobs.values_list("pk", flat=True):
            if key not in held:
                raise RowLocked.of_job(key)
    return found

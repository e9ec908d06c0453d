"""One step of a bulk action: it changes up to 500 jobs in one transaction, or one by one.

The bulk calls of `bulk` and the stored operations of `bulk_operations` run these steps.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from django.db import OperationalError

from django_ojs import hooks
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.cancel_locked import stop
from django_ojs.operations.delete import erase
from django_ojs.operations.jobs import dead_letters
from django_ojs.operations.retry import retry, revive
from django_ojs.operations.run_now import promote, run_now
from django_ojs.spec.errors import OJSError, QueueFull, RowLocked
from django_ojs.spec.states import TERMINAL, State, Trigger, sources
from django_ojs.spec.suggestions import one_of
from django_ojs.storage import database, transitions

ActionName = Literal["retry", "cancel", "delete", "run_now", "purge"]

#: The most jobs of one transaction, which holds their locks for some ten milliseconds.
CHUNK = 500

BUSY: Final = "Other transactions kept changing the job; try it again."
LOCKED: Final = "Another session has locked the job; try it again."
#: Stands for the reasons beyond the first twenty of an operation.
OTHER: Final = "Another reason."
_GONE: Final = "There is no job with this id."
_ELSEWHERE: Final = "The job is in a queue that these credentials may not use."
_NOT_DEAD: Final = "The job is not a dead letter."


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The jobs that a step left unchanged, with the reasons.

    The action does not apply to the `skipped` jobs. It applies to the `failed` ones, but an error
    prevented it.
    """

    skipped: dict[UUID, str] = field(default_factory=dict)
    failed: dict[UUID, str] = field(default_factory=dict)

    @property
    def locked(self) -> list[UUID]:
        """The jobs that other transactions had locked."""
        return [key for key, reason in self.failed.items() if reason == LOCKED]

    def then(self, later: "StepResult") -> "StepResult":
        """Return the result after a later step for the locked jobs."""
        failed = {key: reason for key, reason in self.failed.items() if reason != LOCKED}
        return StepResult(skipped=self.skipped | later.skipped, failed=failed | later.failed)

    @property
    def unchanged(self) -> dict[UUID, str]:
        """All jobs that were left unchanged, with the reasons."""
        return self.skipped | self.failed


@dataclass(frozen=True, slots=True)
class StepAction:
    """An action on locked jobs that are in one of the `allowed` states.

    `default` are the states for a filter that names none. `single` does the same to one job, and
    raises the error that prevents it. `changes` are applied to a dead letter first; see
    `dead_letters.change`.
    """

    name: ActionName
    allowed: frozenset[State]
    default: tuple[State, ...]
    act: Callable[[list[Job]], object]
    single: Callable[[UUID], object] | None = None
    dead_letters: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)


def erase_all(held: list[Job]) -> None:
    """Delete jobs, which the caller has locked."""
    erase([job.pk for job in held])


_CANCELLABLE = sources(Trigger.CANCEL, State.CANCELLED)

RETRY = StepAction("retry", frozenset({State.DISCARDED}), (State.DISCARDED,), revive, retry)
RETRY_DEAD = replace(RETRY, dead_letters=True)
# Active jobs are cancelled only where the filter names them (bulk-operations §6.1).
CANCEL = StepAction(
    "cancel",
    frozenset(_CANCELLABLE),
    tuple(state for state in _CANCELLABLE if state is not State.ACTIVE),
    stop,
)
_NOT_DUE = sources(Trigger.TIMER, State.AVAILABLE)
RUN_NOW = StepAction("run_now", frozenset(_NOT_DUE), _NOT_DUE, promote, run_now)
DELETE = StepAction("delete", TERMINAL, tuple(sorted(TERMINAL)), erase_all)


def with_changes(action: StepAction, changes: Mapping[str, Any]) -> StepAction:
    """Return a retry of dead letters that changes them first (ojs-dead-letter §6.3)."""
    if not changes:
        return action

    def act(held: list[Job]) -> int:
        for job in held:
            dead_letters.change(job, changes)
        return revive(held)

    def single(job_id: UUID) -> Job:
        return dead_letters.retry(job_id, override=changes)

    return replace(action, act=act, single=single, dead_letters=True, changes=changes)


@dataclass(frozen=True, slots=True)
class BulkStep:
    """A bulk action on jobs that are expected in some states.

    `within` are the queues that the caller may use.
    """

    action: StepAction
    expected: frozenset[State] = frozenset(State)
    within: frozenset[str] | None = None

    def run(self, keys: Collection[UUID]) -> StepResult:
        """Change these jobs in one transaction, or in a savepoint of the caller's.

        When an error prevents one of them (such as a full queue, or the error of a hook), each is
        changed by itself, so that the others succeed. A job that another transaction has locked is
        left out, unless the lock ends soon. Raises OperationalError when the transaction failed.
        """
        alone = not database.connection().in_atomic_block
        # The audit trail has one entry for the whole action, and none for each job.
        with operator.acting(None):
            result, end = self._step(keys), time.monotonic() + database.SHORT_LOCK_TIMEOUT
            # There must be no transaction, which would keep its own locks during the pause.
            while alone and result.locked and time.monotonic() < end:
                time.sleep(database.FIRST_PAUSE)
                result = result.then(self._step(result.locked))
            return result

    def _step(self, keys: Collection[UUID]) -> StepResult:
        try:
            return database.in_write_transaction(partial(self._all, keys))
        except Exception as error:
            if not (isinstance(error, OJSError) or transitions.is_of_a_hook(error)):
                raise
            return self._one_by_one(keys)

    def _all(self, keys: Collection[UUID]) -> StepResult:
        # Jobs are locked in the order of their keys, as everywhere, so that two transactions cannot
        # deadlock. A job that another session has locked does not delay the others.
        rows = Job.primary.filter(pk__in=keys).order_by("pk")
        if not self.action.changes:
            rows = rows.defer("args", "meta", "result")
        erasing = self.action.act is erase_all
        locking = rows.select_for_update(no_key=not erasing, skip_locked=True)
        held = {job.pk: job for job in locking}
        skipped: dict[UUID, str] = {}
        failed: dict[UUID, str] = {}
        if missing := set(keys).difference(held):
            failed = dict.fromkeys(rows.filter(pk__in=missing).values_list("pk", flat=True), LOCKED)
            skipped = dict.fromkeys(missing.difference(failed), _GONE)
        for job in held.values():
            if reason := self._reason_to_skip(job):
                skipped[job.pk] = reason
        if ready := [job for job in held.values() if job.pk not in skipped]:
            self.action.act(ready)
        return StepResult(skipped=skipped, failed=failed)

    def _one_by_one(self, keys: Collection[UUID]) -> StepResult:
        skipped: dict[UUID, str] = {}
        failed: dict[UUID, str] = {}
        allowed = {job.pk: job for job in Job.primary.filter(pk__in=keys).defer("args", "meta")}
        changed: set[UUID] = set()
        for key in keys:
            reason = self._reason_to_skip(allowed[key]) if key in allowed else _GONE
            if reason is not None:
                skipped[key] = reason
                continue
            try:
                with database.passing_by(), hooks.with_own_jobs(lambda _: changed):
                    if self.action.single is not None:
                        self.action.single(key)
                    else:
                        alone = database.in_write_transaction(partial(self._all, [key]))
                        skipped |= alone.skipped
                        failed |= alone.failed
                changed.add(key)
            except RowLocked:
                failed[key] = LOCKED
            except OJSError as error:
                # The current depth is left out, so that a thousand rejections have the same reason.
                full = isinstance(error, QueueFull)
                # The reason names the queue that the job would go to, because a retry may move it.
                queue = error.details.get("queue", allowed[key].queue)
                failed[key] = f"queue {queue} is full" if full else error.message
            except OperationalError as error:
                # In a caller's transaction the caller decides. Otherwise the remaining jobs are
                # still changed.
                own = not database.connection().in_atomic_block
                if not own or not database.dialect().is_contention_error(error):
                    raise
                failed[key] = BUSY
            except Exception as error:
                if not transitions.is_of_a_hook(error):
                    raise
                name = getattr(error, hooks.UNDONE_BY)
                failed[key] = f"The extension {name} undid the change ({type(error).__name__})."
        return StepResult(skipped=skipped, failed=failed)

    def _reason_to_skip(self, job: Job) -> str | None:
        state = State(job.state)
        used = job.queues if self.action.name == "retry" else {job.queue}
        if self.within is not None and not self.within.issuperset(used):
            return _ELSEWHERE
        if state not in self.action.allowed:
            wanted = one_of(sorted(self.action.allowed))
            return f"The job is {state}; {self.action.name} needs it {wanted}."
        if self.action.dead_letters and not job.dead_letter:
            return _NOT_DEAD
        if state not in self.expected:
            return f"The job has become {state}, and no longer matches the filter."
        return None

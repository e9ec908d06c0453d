"""The moves that operators make with many jobs at once, five hundred in one transaction."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

from django_ojs.models import Job
from django_ojs.operations.cancel import stop
from django_ojs.operations.delete import erase
from django_ojs.operations.jobs import dead_letters
from django_ojs.operations.retry import retry, revive
from django_ojs.spec.errors import OJSError, QueueFull
from django_ojs.spec.states import TERMINAL, State, Trigger, sources
from django_ojs.storage import database

Action = Literal["retry", "cancel", "delete", "purge"]

#: Jobs of one transaction: some ten milliseconds of locks.
CHUNK = 500

_GONE = "There is no job with this id."
_ELSEWHERE = "The job is in a queue that these credentials are not for."


@dataclass(frozen=True, slots=True)
class Move:
    """What is done to jobs that are locked and in one of `allowed`.

    `default`: the states that are meant when none is named. `single` does it to one, and says what
    is in the way of it. `changes` are made to a dead letter first, see `dead_letters.change`.
    """

    action: Action
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

RETRY = Move("retry", frozenset({State.DISCARDED}), (State.DISCARDED,), revive, retry)
RETRY_DEAD = replace(RETRY, dead_letters=True)
# Running jobs are cancelled only where somebody asks for them (bulk-operations §6.1).
CANCEL = Move(
    "cancel",
    frozenset(_CANCELLABLE),
    tuple(state for state in _CANCELLABLE if state is not State.ACTIVE),
    stop,
)
DELETE = Move("delete", TERMINAL, tuple(sorted(TERMINAL)), erase_all)


def changed(move: Move, changes: Mapping[str, Any]) -> Move:
    """Return a retry of dead letters that changes them first (ojs-dead-letter §6.3)."""
    if not changes:
        return move

    def act(held: list[Job]) -> int:
        for job in held:
            dead_letters.change(job, changes)
        return revive(held)

    def single(job_id: UUID) -> Job:
        return dead_letters.retry(job_id, override=changes)

    return replace(move, act=act, single=single, dead_letters=True, changes=changes)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A move of some jobs, that were expected in some states.

    `within` are the queues that whoever asks is kept to.
    """

    move: Move
    expected: frozenset[State] = frozenset(State)
    within: frozenset[str] | None = None

    def together(self, keys: Collection[UUID]) -> dict[UUID, str]:
        """Move them, and return those that were left alone with the reasons; all of them, or none.

        The caller's transaction it is. Raises an OJSError, with nothing done, when something stands
        in the way of one of them: a queue is full, say.
        """
        # In the order of the keys, as everybody does: two that want the same jobs never wait for
        # each other in a circle.
        rows = Job.primary.filter(pk__in=keys).order_by("pk")
        if not self.move.changes:
            rows = rows.defer("args", "meta", "result")
        erasing = self.move.act is erase_all
        held = {job.pk: job for job in rows.select_for_update(no_key=not erasing)}
        refused = {key: _GONE for key in keys if key not in held}
        for job in held.values():
            if reason := self._refusal(job):
                refused[job.pk] = reason
        if ready := [job for job in held.values() if job.pk not in refused]:
            self.move.act(ready)
        return refused

    def one_by_one(
        self, keys: Collection[UUID], failed: set[UUID] | None = None
    ) -> dict[UUID, str]:
        """Move those that can be moved; return the others with the reasons.

        Those that were tried are added to `failed`.
        """
        single, refused = self.move.single, {}
        assert single is not None
        allowed = {job.pk: job for job in Job.primary.filter(pk__in=keys).defer("args", "meta")}
        for key in keys:
            reason = self._refusal(allowed[key]) if key in allowed else _GONE
            if reason is None:
                try:
                    single(key)
                except OJSError as error:
                    # Without the figures of the moment: a thousand refusals are one reason.
                    full = isinstance(error, QueueFull)
                    reason = f"queue {allowed[key].queue} is full" if full else error.message
                    if failed is not None:
                        failed.add(key)
            if reason is not None:
                refused[key] = reason
        return refused

    def inside(self, keys: Collection[UUID]) -> tuple[dict[UUID, str], set[UUID]]:
        """Do one or the other in the caller's transaction, which an error of a job leaves alive.

        Return those that were left alone with the reasons, and which of them were tried.
        """
        failed: set[UUID] = set()
        try:
            with database.atomic():
                return self.together(keys), failed
        except OJSError:
            return self.one_by_one(keys, failed), failed

    def _refusal(self, job: Job) -> str | None:
        """Say why this job is left alone, or None."""
        state = State(job.state)
        if self.within is not None and job.queue not in self.within:
            return _ELSEWHERE
        if state not in self.move.allowed:
            wanted = " or ".join(sorted(self.move.allowed))
            return f"The job is {state}; {self.move.action} needs it {wanted}."
        if self.move.dead_letters and not job.dead_letter:
            return "The job is no dead letter."
        if state not in self.expected:
            return f"The job has become {state}, and is no longer what the filter means."
        return None


__all__ = [
    "CANCEL",
    "CHUNK",
    "DELETE",
    "RETRY",
    "RETRY_DEAD",
    "Action",
    "Attempt",
    "Move",
    "changed",
    "erase_all",
]

"""Delete a queue (ojs-queue-config §5.3); a strategy decides what happens to its waiting jobs.

Running jobs run to their end, and finished ones are kept as in other queues. No job is lost: a job
that is enqueued during the deletion, or is retried after it, creates the queue again.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from uuid import UUID

from django.db.models.functions import Now

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.extension import LeftOut, Readmission
from django_ojs.hooks import publish
from django_ojs.models import Job, Queue
from django_ojs.operations import draining
from django_ojs.operations.access import operator
from django_ojs.operations.queue_rows import make, mark_deleted, rows, touch
from django_ojs.operations.queues.status import QueueState, get
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import Conflict, InvalidRequest, QueueFull
from django_ojs.spec.failure import Failure
from django_ojs.spec.hold import FREE
from django_ojs.spec.published import EventType, of_queue
from django_ojs.spec.states import WAITING, State, Trigger
from django_ojs.storage import (
    database,
    notify,
    queue_configs,
    transitions,
)
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import ByState

Strategy = Literal["reject", "discard", "move"]

STRATEGIES: tuple[Strategy, ...] = ("reject", "discard", "move")

#: The most jobs that one call moves or discards, which takes some seconds.
MOST = 50_000

_LEFT = (*sorted(WAITING), State.PENDING)

# The jobs of each state are taken in the order of an index, and available jobs from the end that is
# claimed last.
_ORDER = {
    State.AVAILABLE: ("-hold", "priority", "-enqueued_at"),
    State.PENDING: ("pk",),
}

_GONE = Failure(type="queue_deleted", message="The queue the job waited in was deleted.")

NOTHING_LEFT_OUT: Final[Mapping[str, LeftOut]] = {}

#: Changes jobs that are in this state, and returns how many.
_Act: TypeAlias = Callable[[list[UUID], State], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """The result of a deletion.

    `state` is `draining` while jobs of the queue still run, or if more jobs wait than one call
    takes. Then `waiting` says how many, and the queue remains until it is deleted again.
    """

    queue: str
    strategy: Strategy
    target: str | None
    jobs_affected: int
    waiting: int
    state: Literal["deleted", QueueState.DRAINING]


def delete(
    name: str, *, strategy: Strategy = "reject", target: str | None = None, most: int = MOST
) -> Deletion:
    """Delete a queue, after its waiting jobs were discarded or moved to `target`.

    Each transaction changes 500 jobs, so that other transactions wait only briefly for their locks.
    Raises NotFound, Conflict when the strategy is `reject` and a job waits or runs, InvalidRequest
    or a subclass, QueuePaused when the target is draining, and QueueFull when the target has no
    room for the next 500 jobs, or for all jobs of a part of it. Jobs that were moved before then
    stay in the target, and `details["jobs_affected"]` is their number.

    Available jobs that would be claimed last are moved first. If the room ends, the jobs that are
    claimed next are still together in the queue. Scheduled and retryable jobs that are due first
    are moved first.
    """
    _check(name, strategy, target)
    known = get(name)
    if strategy == "reject":
        _reject_unfinished(name, known.counts)
    make(name)  # The row marks the queue as deleted; a queue that only has jobs has none yet.
    # The audit trail gets its entry first, because many transactions follow.
    entry = operator.acted("queue.deleted", name, strategy=strategy, target=target)
    affected = 0
    if target is not None:
        draining.check([target])
        database.in_write_transaction(lambda: touch(target))
        affected = _move_all(name, target, most)
    elif strategy == "discard":
        affected = _each_batch(name, most, _discard)
    left = counts.by_queue([name]).get(name, {})
    waiting = sum(left.get(state, 0) for state in _LEFT)
    if not waiting:
        _remove(name, left)
    entry.complete(jobs=affected, waiting=waiting)
    return Deletion(
        queue=name,
        strategy=strategy,
        target=target,
        jobs_affected=affected,
        waiting=waiting,
        state=QueueState.DRAINING if waiting or left.get(State.ACTIVE) else "deleted",
    )


def _check(name: str, strategy: Strategy, target: str | None) -> None:
    limits = settings().limits
    check_queue(name, limits)
    if strategy not in STRATEGIES:
        raise InvalidRequest(
            f"strategy must be one of {', '.join(STRATEGIES)}",
            details={"field": "strategy"},
        )
    if strategy == "move":
        check_queue(target, limits, field="target_queue")
    if target is not None and (strategy != "move" or target == name):
        raise InvalidRequest.of(
            "target_queue",
            "must be another queue" if strategy == "move" else "goes with the strategy move only",
        )


def _reject_unfinished(name: str, numbers: ByState) -> None:
    unfinished = sum(numbers.get(state, 0) for state in (*_LEFT, State.ACTIVE))
    if unfinished:
        raise Conflict(
            "The queue has jobs that have not ended; discard them, or move them to another queue.",
            details={"queue": name, "jobs": unfinished},
        )


def _move_all(name: str, target: str, most: int) -> int:
    rejections: dict[str, LeftOut] = {}
    try:
        moved = _each_batch(
            name, most, lambda keys, _: _move(keys, name, target, rejections), rejections
        )
    except QueueFull as error:
        raise _stopped(error, name, error.details["jobs_affected"]) from None
    if rejections:
        # The error is about the first part; the message names the others too.
        raise _stopped(next(iter(rejections.values())).full, name, moved, sorted(rejections))
    return moved


def _stopped(error: QueueFull, source: str, moved: int, parts: Collection[str] = ()) -> QueueFull:
    """Return the error of a move. The error of its batch says nothing about a move."""
    never_fits = error.can_never_fit and not parts
    if parts:
        error.can_never_fit, error.retryable = False, True
        error.message = (
            f"queue {error.queue} has no room for more jobs of {', '.join(parts)}; "
            f"jobs moved: {moved}, the others still wait in queue {source}"
        )
    else:
        error.message = (
            f"queue {error.queue} has no room for the next jobs: {error.depth} of {error.bound}; "
            f"jobs moved: {moved}, the others still wait in queue {source}"
        )
    error.hint = (
        "Raise the bound of the target, or delete the queue again with another target."
        if never_fits
        else "Raise the bound of the target, or delete the queue again when the target has room."
    )
    return error.with_details(jobs_affected=moved)


def _each_batch(
    name: str, most: int, act: _Act, rejections: Mapping[str, LeftOut] = NOTHING_LEFT_OUT
) -> int:
    """Act on the jobs of each state; `rejections` are what `act` has rejected so far."""
    affected = 0
    for state in _LEFT:
        before = (-1, -1)
        # A state is repeated, because jobs may be enqueued meanwhile, and rejected jobs may hide
        # others. It ends when a round has changed nothing.
        while affected < most and before != (before := (affected, len(rejections))):
            keys = _keys(name, state, most - affected, rejections)
            try:
                for start in range(0, len(keys), BATCH):
                    affected += _act_on_batch(name, state, keys[start : start + BATCH], act)
            except QueueFull as error:
                raise error.with_details(jobs_affected=affected) from None
    return affected


def _keys(name: str, state: State, limit: int, rejections: Mapping[str, LeftOut]) -> list[UUID]:
    # The pending jobs of a queue have no index of their own, so a state is queried only if its
    # count is not 0.
    if not counts.by_queue([name]).get(name, {}).get(state):
        return []
    found = Job.primary.filter(queue=name, state=state)
    if state != State.PENDING:  # Pending jobs take no room.
        found = found.filter(*(rejection.others for rejection in rejections.values()))
    ordered = found.order_by(*_ORDER.get(state, ("due_at", "pk")))
    return list(ordered.values_list("pk", flat=True)[:limit])


@database.write_transaction
def _act_on_batch(name: str, state: State, keys: list[UUID], act: _Act) -> int:
    which = Job.primary.filter(OneOf("pk", keys), queue=name, state=state)
    # A job that a worker is claiming is locked, and stays with that worker.
    found = which.select_for_update(skip_locked=True, no_key=True)
    locked = set(found.values_list("pk", flat=True))
    return act([key for key in keys if key in locked], state) if locked else 0


def _move(keys: list[UUID], source: str, target: str, rejections: dict[str, LeftOut]) -> int:
    """Move jobs, without those that a hook leaves out."""
    found = Job.primary.filter(OneOf("pk", keys), queue=source, state__in=_LEFT)
    by_key = {job.pk: job for job in found.only("state", "size_bytes", "meta")}
    # They keep the order of `keys`, so that the first ones get the last room.
    jobs = [by_key[key] for key in keys if key in by_key]
    readmission = Readmission(jobs=jobs, queue=target, rejections=rejections)

    def change() -> int:
        return _moved([key for key in by_key if key not in readmission.left_out], source, target)

    return hooks.admit_again(readmission, change)


def _moved(keys: list[UUID], source: str, target: str) -> int:
    # `enqueued_at` stays, so they keep the order in which they became available.
    which = Job.primary.filter(OneOf("pk", keys), queue=source, state__in=_LEFT)
    moved = which.update(queue=target)
    if Job.primary.filter(OneOf("pk", keys), hold__gt=FREE).exists():
        # The extension that holds these jobs must take part in the claims of the other queue.
        rules = Queue.primary.filter(pk=source).values_list("rules", flat=True).first() or 0
        queue_configs.add_rules([target], hooks.rules_with(rules, {}))
    notify.workers_of([target])
    return moved


def _discard(keys: list[UUID], before: State) -> int:
    return transitions.apply(
        Trigger.DELETE_QUEUE,
        State.DISCARDED,
        dict.fromkeys(keys, before),
        finished_at=Now(),
        error=_GONE.render(),
        discard_reason="operator",
    )


@database.write_transaction
def _remove(name: str, left: ByState) -> None:
    queue = rows().select_for_update().filter(pk=name).first()
    if queue is None:  # Another transaction has deleted it.
        return
    publish(EventType.QUEUE_DELETED, of_queue, name)
    if left:
        mark_deleted(queue)
    else:
        queue.delete()
    hooks.call_within(hooks.registry.queue_deleted, name)
    queue_configs.changed()

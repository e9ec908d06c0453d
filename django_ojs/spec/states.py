"""The eight states and the closed transition table (ojs-core §6), as data.

Every write of `Job.state` reads its expected and its new state from `TRANSITIONS`; what is not in
the table cannot be written. Rows marked "core §6.3" are that table, row for row. The core document
requires the others in prose, or other documents of the specification add them; each names its
source.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from django_ojs.spec.errors import Conflict


class State(StrEnum):
    """The lifecycle state of a job (ojs-core §6.1)."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    PENDING = "pending"
    ACTIVE = "active"
    COMPLETED = "completed"
    RETRYABLE = "retryable"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


class Trigger(StrEnum):
    """The operation or the circumstance that changes the state of a job."""

    PUSH = "push"
    TIMER = "timer"
    ACTIVATE = "activate"
    FETCH = "fetch"
    ACK = "ack"
    FAIL = "fail"
    CANCEL = "cancel"
    LAPSE = "lapse"
    RETURN = "return"
    RETRY = "retry"
    EXPIRE = "expire"
    DROP = "drop"
    RESCHEDULE = "reschedule"
    DELETE_QUEUE = "delete_queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """One row of the table: in `source`, `trigger` may lead to `target`.

    A `source` of None means that the job is not stored yet.
    """

    trigger: Trigger
    source: State | None
    target: State


def _rows() -> Iterator[Transition]:
    def row(trigger: Trigger, source: State | None, target: State) -> Transition:
        return Transition(trigger=trigger, source=source, target=target)

    # core §6.3
    yield row(Trigger.PUSH, None, State.SCHEDULED)
    yield row(Trigger.PUSH, None, State.AVAILABLE)
    yield row(Trigger.PUSH, None, State.PENDING)
    yield row(Trigger.TIMER, State.SCHEDULED, State.AVAILABLE)
    yield row(Trigger.ACTIVATE, State.PENDING, State.AVAILABLE)
    yield row(Trigger.FETCH, State.AVAILABLE, State.ACTIVE)
    yield row(Trigger.ACK, State.ACTIVE, State.COMPLETED)
    yield row(Trigger.FAIL, State.ACTIVE, State.RETRYABLE)
    yield row(Trigger.FAIL, State.ACTIVE, State.DISCARDED)
    yield row(Trigger.CANCEL, State.ACTIVE, State.CANCELLED)
    yield row(Trigger.LAPSE, State.ACTIVE, State.AVAILABLE)
    yield row(Trigger.TIMER, State.RETRYABLE, State.AVAILABLE)
    yield row(Trigger.CANCEL, State.SCHEDULED, State.CANCELLED)
    yield row(Trigger.CANCEL, State.AVAILABLE, State.CANCELLED)
    yield row(Trigger.CANCEL, State.PENDING, State.CANCELLED)
    yield row(Trigger.CANCEL, State.RETRYABLE, State.CANCELLED)
    yield row(Trigger.RETRY, State.DISCARDED, State.AVAILABLE)

    # worker-protocol §5.5 (4): a lease that expires when no attempt is left.
    yield row(Trigger.LAPSE, State.ACTIVE, State.DISCARDED)
    # http-binding, nack with `requeue`; worker-protocol §7.2: a worker that shuts down gives its
    # jobs back.
    yield row(Trigger.RETURN, State.ACTIVE, State.AVAILABLE)
    # core §5.2 `expires_at`: the deadline passed before the job ran.
    yield row(Trigger.EXPIRE, State.SCHEDULED, State.DISCARDED)
    yield row(Trigger.EXPIRE, State.AVAILABLE, State.DISCARDED)
    yield row(Trigger.EXPIRE, State.PENDING, State.DISCARDED)
    yield row(Trigger.EXPIRE, State.RETRYABLE, State.DISCARDED)
    # queue-config §5.3, strategy `discard`: the queue it waited in is deleted.
    yield row(Trigger.DELETE_QUEUE, State.SCHEDULED, State.DISCARDED)
    yield row(Trigger.DELETE_QUEUE, State.AVAILABLE, State.DISCARDED)
    yield row(Trigger.DELETE_QUEUE, State.PENDING, State.DISCARDED)
    yield row(Trigger.DELETE_QUEUE, State.RETRYABLE, State.DISCARDED)
    # backpressure, strategy `drop_oldest`; rate-limiting §6.2, `on_limit: drop`.
    yield row(Trigger.DROP, State.AVAILABLE, State.DISCARDED)
    # rate-limiting §6.2, `on_limit: reschedule`.
    yield row(Trigger.RESCHEDULE, State.AVAILABLE, State.SCHEDULED)


TRANSITIONS: tuple[Transition, ...] = tuple(_rows())

TERMINAL: frozenset[State] = frozenset({State.COMPLETED, State.CANCELLED, State.DISCARDED})

#: The states that count for the depth of a queue (backpressure §3).
WAITING: frozenset[State] = frozenset({State.AVAILABLE, State.SCHEDULED, State.RETRYABLE})


@cache
def sources(trigger: Trigger, target: State) -> tuple[State, ...]:
    """Return the states from which `trigger` may lead to `target`.

    Raises Conflict when no row of the table has this trigger and target.
    """
    found = tuple(
        t.source
        for t in TRANSITIONS
        if t.trigger is trigger and t.target is target and t.source is not None
    )
    if not found:
        raise Conflict(f"No transition of the state machine leads by {trigger} to {target}.")
    return found


@cache
def initial(target: State) -> State:
    """Return `target` if PUSH may store a job in it. Raises Conflict otherwise."""
    if not any(t.source is None and t.target is target for t in TRANSITIONS):
        raise Conflict(f"A job cannot be stored as {target}.")
    return target


def allows(trigger: Trigger, source: State, target: State) -> bool:
    return Transition(trigger=trigger, source=source, target=target) in TRANSITIONS

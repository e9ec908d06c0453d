"""Retry, cancel or delete many jobs (ojs-admin-api §8), by what they are or by their ids.

Each job makes the same move, under the same conditions, as in the single operation. What another
was faster with is counted as failed, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import OperationalError

from django_ojs.operations.jobs.bulk_step import (
    CANCEL,
    CHUNK,
    DELETE,
    RETRY,
    RETRY_DEAD,
    Action,
    Attempt,
    Move,
    erase_all,
)
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.errors import InvalidRequest, OJSError, PayloadTooLarge
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database

#: Jobs of one call: a few seconds. Whoever means more calls again.
LIMIT = 10_000
#: Jobs of one purge, which does nothing but delete.
PURGE_LIMIT = 50_000
#: Reasons that are told; what failed beyond these is counted.
MAX_ERRORS = 100

_BUSY = "Others were changing the job again and again; try it once more."


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A job that was left as it was, and why."""

    job_id: UUID
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What became of the jobs that were meant.

    `matched` is `succeeded` plus `failed`. `has_more`: the limit was reached before all were seen.
    """

    action: Action
    matched: int
    succeeded: int
    failed: int
    errors: tuple[Refusal, ...] = ()
    has_more: bool = False


Which = JobFilter | Sequence[UUID]


def retry_all(
    which: Which,
    *,
    within: frozenset[str] | None = None,
    limit: int = LIMIT,
    dead_letters: bool = False,
) -> Summary:
    """Make discarded jobs available again, each as RETRY would.

    `which` is a filter or ids; a filter that names no state means discarded jobs. `within` are the
    queues whoever asks is kept to. With `dead_letters`, jobs that were only discarded are left
    alone. Raises InvalidRequest for a filter that leaves no job out, PayloadTooLarge for more ids
    than `limit`.
    """
    return _run(RETRY_DEAD if dead_letters else RETRY, which, within, limit)


def cancel_all(
    which: Which, *, within: frozenset[str] | None = None, limit: int = LIMIT
) -> Summary:
    """Cancel jobs, each as CANCEL would; see `retry_all`.

    A filter that names no state means jobs that wait; running ones have to be named.
    """
    return _run(CANCEL, which, within, limit)


def delete_all(
    which: Which, *, within: frozenset[str] | None = None, limit: int = LIMIT
) -> Summary:
    """Delete jobs that have ended, with their histories; see `retry_all`.

    A filter that names no state means all jobs that have ended.
    """
    return _run(DELETE, which, within, limit)


def purge(
    queue: str,
    states: Sequence[State],
    *,
    older_than: datetime | None = None,
    limit: int = PURGE_LIMIT,
) -> Summary:
    """Delete a queue's jobs in these states (ojs-admin-api §6.5), those that wait as well.

    `older_than` bounds the time at which they ended. Raises InvalidRequest: no state, a running
    job's state, or an age for jobs that have not ended.
    """
    if not states:
        raise InvalidRequest("states must name at least one.", details={"field": "states"})
    if State.ACTIVE in states:
        raise InvalidRequest(
            "states must not hold active: a running job is cancelled, not purged.",
            details={"field": "states"},
        )
    if older_than is not None and not TERMINAL.issuperset(states):
        raise InvalidRequest(
            "older_than is about jobs that have ended; the states hold another.",
            details={"field": "older_than"},
        )
    move = Move("purge", frozenset(states), tuple(states), erase_all)
    which = JobFilter(queue=queue, states=tuple(dict.fromkeys(states)), ended_until=older_than)
    return _run(move, which, None, limit)


def _run(move: Move, which: Which, within: frozenset[str] | None, limit: int) -> Summary:
    if isinstance(which, JobFilter):
        if which.empty:
            raise InvalidRequest(
                "filter must name something; a state alone selects all jobs in it.",
                details={"field": "filter"},
            )
        named = which if which.states else replace(which, states=move.default)
        if within is not None:
            named = replace(named, within=within)
        found = named.jobs().order_by("pk").values_list("pk", flat=True)
        keys = list(found[: limit + 1])
        expected = frozenset(named.states)
    else:
        keys, expected = sorted(set(which)), frozenset(State)
        if len(keys) > limit:
            raise PayloadTooLarge(
                f"job_ids must hold at most {limit} ids.",
                details={"field": "job_ids", "max_batch_size": limit},
            )
    tally = _Tally(Attempt(move, expected, within))
    for start in range(0, min(len(keys), limit), CHUNK):
        tally.take(keys[start : min(start + CHUNK, limit)])
    return Summary(
        action=move.action,
        matched=tally.succeeded + tally.failed,
        succeeded=tally.succeeded,
        failed=tally.failed,
        errors=tuple(tally.errors),
        has_more=len(keys) > limit,
    )


class _Tally:
    """Takes jobs chunk by chunk, and adds up what became of them."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.succeeded = self.failed = 0
        self.errors: list[Refusal] = []

    def take(self, keys: list[UUID]) -> None:
        """Do it to these jobs, in one transaction."""
        try:
            refused = database.in_write_transaction(partial(self._attempt.together, keys))
        except OJSError:
            # Something stands in the way of one of them (a queue is full, say): which one is found
            # by taking each by itself.
            refused = self._attempt.one_by_one(keys)
        except OperationalError as error:
            if not database.dialect().is_contention_error(error):
                raise
            refused = dict.fromkeys(keys, _BUSY)
        self.succeeded += len(keys) - len(refused)
        self.failed += len(refused)
        room = MAX_ERRORS - len(self.errors)
        told = sorted(refused.items())[:room]
        self.errors += [Refusal(job_id=key, error=reason) for key, reason in told]


__all__ = [
    "LIMIT",
    "PURGE_LIMIT",
    "Refusal",
    "Summary",
    "Which",
    "cancel_all",
    "delete_all",
    "purge",
    "retry_all",
]

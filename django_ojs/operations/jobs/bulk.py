"""Retry, cancel or delete many jobs (ojs-admin-api §8), given by a filter or by their ids.

Each job changes under the same conditions as in the single operation. A job that another
transaction changed first is counted as failed, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import OperationalError

from django_ojs.operations.access import operator
from django_ojs.operations.access.operator import Acted
from django_ojs.operations.jobs.bulk_step import (
    BUSY,
    CANCEL,
    CHUNK,
    DELETE,
    RETRY,
    RETRY_DEAD,
    RUN_NOW,
    ActionName,
    BulkStep,
    StepAction,
    erase_all,
)
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database

#: The most jobs of one call, which takes a few seconds. For more, the caller calls again.
LIMIT = 10_000
#: The most jobs of a purge, which is faster because it only deletes.
PURGE_LIMIT = 50_000
#: The most ids of one call that the audit trail names.
_MAX_RECORDED = 20
#: The most reasons that are returned. Further failures are only counted.
MAX_ERRORS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """A job that was left unchanged, and why."""

    job_id: UUID
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The result of a bulk call.

    `matched` is `succeeded` plus `failed`. `has_more` says that there are more jobs than the limit.
    """

    action: ActionName
    matched: int
    succeeded: int
    failed: int
    errors: tuple[Rejection, ...] = ()
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
    queues that the caller may use. With `dead_letters`, jobs that are no dead letters are
    skipped. Raises InvalidRequest for a filter that matches all jobs, PayloadTooLarge for more ids
    than `limit`.
    """
    return _run(RETRY_DEAD if dead_letters else RETRY, which, within, limit)


def cancel_all(
    which: Which, *, within: frozenset[str] | None = None, limit: int = LIMIT
) -> Summary:
    """Cancel jobs, each as CANCEL would; see `retry_all`.

    A filter that names no state means waiting jobs; it must name `active` to cancel active ones.
    """
    return _run(CANCEL, which, within, limit)


def run_all_now(
    which: Which, *, within: frozenset[str] | None = None, limit: int = LIMIT
) -> Summary:
    """Make scheduled and retryable jobs available before they are due; see `retry_all`.

    A filter that names no state means both.
    """
    return _run(RUN_NOW, which, within, limit)


def delete_all(
    which: Which, *, within: frozenset[str] | None = None, limit: int = LIMIT
) -> Summary:
    """Delete jobs in a terminal state, with their histories; see `retry_all`.

    A filter that names no state means all terminal states.
    """
    return _run(DELETE, which, within, limit)


def purge(
    queue: str,
    states: Sequence[State],
    *,
    older_than: datetime | None = None,
    limit: int = PURGE_LIMIT,
) -> Summary:
    """Delete a queue's jobs in these states (ojs-admin-api §6.5), waiting jobs included.

    See `purged`.
    """
    which = purged(queue, states, older_than)
    action = StepAction("purge", frozenset(states), tuple(states), erase_all)
    return _run(action, which, None, limit)


def purged(queue: str, states: Sequence[State], older_than: datetime | None) -> JobFilter:
    """Return the filter of the jobs that a purge deletes.

    `older_than` is compared with the time at which they ended. Raises InvalidRequest for no state,
    for the state active, and for `older_than` with a state that is not terminal.
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
            "older_than needs states of jobs that have ended.",
            details={"field": "older_than"},
        )
    return JobFilter(
        queue=queue,
        states=tuple(dict.fromkeys(states)),
        ended_until=older_than,
        # Dead letters that were moved to another queue are kept.
        by_current_queue=True,
    )


def _run(action: StepAction, which: Which, within: frozenset[str] | None, limit: int) -> Summary:
    if isinstance(which, JobFilter):
        which.check_names_something()
        named = which if which.states else replace(which, states=action.default)
        if within is not None:
            named = replace(named, within=within)
        jobs = named.jobs()
        if within is not None:
            # The caller may read dead letters of its queues that were moved to other queues, but
            # may not change them.
            jobs = jobs.filter(queue__in=within)
        found = jobs.order_by("pk").values_list("pk", flat=True)
        keys = list(found[: limit + 1])
        expected = frozenset(named.states)
    else:
        keys, expected = sorted(set(which)), frozenset(State)
        if len(keys) > limit:
            raise PayloadTooLarge(
                f"job_ids must hold at most {limit} ids.",
                details={"field": "job_ids", "max_batch_size": limit},
            )
    tally = _Tally(BulkStep(action, expected, within))
    changed = keys[:limit]
    entry = _recorded(action, which)
    for start in range(0, len(changed), CHUNK):
        tally.take(changed[start : start + CHUNK])
    entry.complete(jobs=tally.succeeded, skipped=tally.failed)
    return tally.summary(has_more=len(keys) > limit)


def _recorded(action: StepAction, which: Which) -> Acted:
    """Store the entry of the audit trail. It comes first, because many transactions follow."""
    if not isinstance(which, JobFilter):
        named = [str(key) for key in which[:_MAX_RECORDED]]
        only = named[0] if len(named) == 1 else ""
        ids = named if len(named) > 1 else []
        return operator.acted(f"jobs.{action.name}", only, object_type="job", ids=ids)
    detail: dict[str, Any] = {"states": list(which.states), "type": which.type}
    if action.name == "purge":
        return operator.acted("queue.purged", which.queue, **detail)
    return operator.acted(f"jobs.{action.name}", object_type="job", queue=which.queue, **detail)


class _Tally:
    """Runs a step chunk by chunk, and adds up the results."""

    def __init__(self, step: BulkStep) -> None:
        self._step = step
        self.succeeded = self.failed = 0
        self.errors: list[Rejection] = []

    def take(self, keys: Sequence[UUID]) -> None:
        """Run the step for these jobs."""
        try:
            unchanged = self._step.run(keys).unchanged
        except OperationalError as error:
            if not database.dialect().is_contention_error(error):
                raise
            unchanged = dict.fromkeys(keys, BUSY)
        self.succeeded += len(keys) - len(unchanged)
        self.failed += len(unchanged)
        room = MAX_ERRORS - len(self.errors)
        reported = sorted(unchanged.items())[:room]
        self.errors += [Rejection(job_id=key, error=reason) for key, reason in reported]

    def summary(self, *, has_more: bool) -> Summary:
        """Return the result."""
        return Summary(
            action=self._step.action.name,
            matched=self.succeeded + self.failed,
            succeeded=self.succeeded,
            failed=self.failed,
            errors=tuple(self.errors),
            has_more=has_more,
        )

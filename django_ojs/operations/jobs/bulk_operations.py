"""Bulk operations (ojs-bulk-operations §7): stored by a request, and executed by maintenance.

`bulk_execution` executes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import Count, QuerySet, Subquery
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import BulkOperation, BulkOperationJob, Job
from django_ojs.models.bulk_operation import BulkActionName, BulkState
from django_ojs.operations.access import operator
from django_ojs.operations.jobs import bulk_step, filter_json
from django_ojs.operations.jobs.bulk_step import StepAction
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import count
from django_ojs.spec.errors import InvalidRequest, NotFound
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.suggestions import one_of
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import RetriedBy

OPEN: Final = (BulkState.PENDING, BulkState.RUNNING)
OVER: Final = (BulkState.STOPPED, BulkState.DONE)

#: How many jobs of one retry are followed, and for how long after its end.
MAX_FOLLOWED: Final = 10_000
FOLLOWED_FOR: Final = timedelta(days=7)

#: The resolution of the coarsest clock. Of two jobs of the same millisecond, either may be the
#: older one.
_TICK: Final = timedelta(milliseconds=1)

ACTIONS: Final[dict[str, StepAction]] = {
    BulkActionName.RETRY: bulk_step.RETRY,
    BulkActionName.CANCEL: bulk_step.CANCEL,
    BulkActionName.RUN_NOW: bulk_step.RUN_NOW,
    BulkActionName.DELETE: bulk_step.DELETE,
}


def operations() -> QuerySet[BulkOperation]:
    """Return all bulk operations."""
    return BulkOperation.primary.all()


def moment() -> datetime:
    """Return the time by the clock that says when jobs end, for `as_of` of `order`."""
    return database.dialect().clock(database.connection())


def order(
    action: BulkActionName,
    which: JobFilter,
    *,
    by: str,
    changes: Mapping[str, Any] | None = None,
    as_of: datetime | None = None,
) -> BulkOperation:
    """Store a bulk operation on all jobs of a filter, and return it.

    It changes the jobs that match now, and none that are created later, or that end later if the
    filter is about terminal states. `as_of`: an earlier time that counts as now, such as
    when an operator saw the jobs. A retry applies `changes`, to dead letters only. Raises
    InvalidRequest for a filter that matches all jobs, or names no state that the action allows.
    """
    if changes and action != BulkActionName.RETRY:
        raise InvalidRequest("Only a retry changes jobs.", details={"field": "changes"})
    wanted = applicable(action, which)
    if changes:
        wanted = replace(wanted, dead_letter=True)
    if as_of is not None:
        wanted = replace(wanted, at=as_of)
    # The counts have no history, so a number that comes from them is the current one.
    expected, more = count(wanted if wanted.counted or as_of is None else existing(action, wanted))
    with database.atomic():
        operation: BulkOperation = operations().create(
            action=action,
            filter=filter_json.render(wanted),
            changes=dict(changes or {}),
            ordered_by=by,
            expected=None if more else expected,
        )
        operator.acted(
            "bulk.ordered",
            operation.pk,
            object_type="bulk_operation",
            action_on_jobs=str(action),
            expected=operation.expected,
        )
    return operation


def applicable(action: BulkActionName, which: JobFilter) -> JobFilter:
    """Return the filter, reduced to the states that the action allows.

    Raises InvalidRequest for a filter that matches all jobs, or names no such state.
    """
    bulk_action = ACTIONS[action]
    which.check_names_something()
    # States that remain after an exclusion are not named, so that such a search does not cancel
    # active jobs.
    allowed = bulk_action.default if which.states_excluded else bulk_action.allowed
    states = tuple(each for each in (which.states or bulk_action.default) if each in allowed)
    if not states:
        wanted = one_of(sorted(bulk_action.allowed))
        raise InvalidRequest(
            f"{action} needs jobs that are {wanted}.",
            details={"field": "state"},
        )
    return replace(which, states=states, states_excluded=None)


def existing(action: str, which: JobFilter) -> JobFilter:
    """Return the filter without the jobs that were created, or ended, after its `at`."""
    assert which.at is not None
    made = which.at.astimezone(UTC) + _TICK
    if action in (BulkActionName.CANCEL, BulkActionName.RUN_NOW):
        return replace(which, until=made if which.until is None else min(which.until, made))
    ended = made if which.ended_until is None else min(which.ended_until, made)
    return replace(which, ended_until=ended)


def get(key: int) -> BulkOperation:
    """Return an operation. Raises NotFound."""
    found = operations().filter(pk=key).first()
    if found is None:
        raise NotFound(
            "There is no such bulk operation.", details={"resource_type": "bulk_operation"}
        )
    return found


@database.write_transaction
def stop(key: int, *, by: str) -> bool:
    """Stop an operation after its current step. Return False if it was over already."""
    found = operations().filter(pk=key, state__in=OPEN)
    before = found.select_for_update().values_list("state", flat=True).first()
    if not found.update(state=BulkState.STOPPED, stopped_by=by, finished_at=Now()):
        return False
    changes = {"state": (before, BulkState.STOPPED)}
    operator.acted("bulk.stopped", key, object_type="bulk_operation", changes=changes)
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Retried:
    """The present states of the jobs that a retry made available.

    `followed` is how many are known; a large retry made more available. `gone` is how many of them
    were deleted since.
    """

    followed: int
    by_state: dict[State, int]

    @property
    def completed(self) -> int:
        return self.by_state.get(State.COMPLETED, 0)

    @property
    def failed_again(self) -> int:
        return self.by_state.get(State.DISCARDED, 0)

    @property
    def cancelled(self) -> int:
        return self.by_state.get(State.CANCELLED, 0)

    @property
    def open(self) -> int:
        """The jobs that have not ended."""
        return sum(number for state, number in self.by_state.items() if state not in TERMINAL)

    @property
    def gone(self) -> int:
        return self.followed - sum(self.by_state.values())


def retried(operation: BulkOperation) -> Retried | None:
    """Return what became of the jobs of a retry, or None for another action, and after a week."""
    if operation.action != BulkActionName.RETRY:
        return None
    followed = BulkOperationJob.primary.filter(operation=operation).count()
    if not followed:
        return None
    jobs = Job.primary.filter(RetriedBy(operation.pk)).order_by()
    states = jobs.values_list("state").annotate(number=Count("pk"))
    return Retried(followed=followed, by_state={State(state): number for state, number in states})


def prune(limit: int = database.BATCH) -> int:
    """Delete finished operations after their retention time, as a step of maintenance.

    It reads only the oldest operations, which needs no index of its own. Return how many.
    """
    old = operations().order_by("pk").values_list("pk", flat=True)[:limit]
    over = operations().filter(
        pk__in=list(old),
        state__in=OVER,
        finished_at__lte=Now() - settings().keep_bulk_operations,
    )
    return database.delete_free(over)


def prune_followed(limit: int = database.BATCH) -> int:
    """Delete the list of jobs of the oldest retry, a week after it ended. Return how many.

    It is a step of maintenance.
    """
    oldest = BulkOperationJob.primary.order_by("pk").values("operation_id")[:1]
    over = operations().filter(
        pk=Subquery(oldest), state__in=OVER, finished_at__lte=Now() - FOLLOWED_FOR
    )
    if not over.exists():
        return 0
    rows = BulkOperationJob.primary.filter(operation_id=Subquery(oldest)).order_by("pk")
    return database.delete_free(rows, limit)

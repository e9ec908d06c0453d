"""Bulk operations (ojs-bulk-operations §7): stored by a request, and executed by maintenance.

Maintenance executes them five hundred jobs at a time. The jobs and the figures of the operation
change in one transaction that locks the operation's row: only one process executes it at a time,
and the unfinished step of a killed process is rolled back. A search (`background_search`) is an
operation that changes nothing: its steps store the jobs they find.
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from django.db.models import Case, Count, QuerySet, Subquery, Value, When
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.models import BulkOperation, BulkOperationJob, Job
from django_ojs.models.bulk_operation import STOPPED_BY_ERROR, BulkActionName, BulkState
from django_ojs.operations.access import audit, audit_trail
from django_ojs.operations.jobs import bulk_step, cursor, filter_json
from django_ojs.operations.jobs.bulk_step import CHUNK, OTHER, BulkStep, StepAction, StepResult
from django_ojs.operations.jobs.cursor import Cursor
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import SCAN_LIMIT, IndexScan, count, index_scans
from django_ojs.spec.errors import InvalidRequest, NotFound
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.suggestions import one_of
from django_ojs.spec.texts import Translatable as _
from django_ojs.storage import database, raw_queries
from django_ojs.storage.dialects.expressions import OneOf, RetriedBy

logger = logging.getLogger("django_ojs")

OPEN: Final = (BulkState.PENDING, BulkState.RUNNING)
OVER: Final = (BulkState.STOPPED, BulkState.DONE)

#: Jobs and reasons that are stored of those that were left unchanged.
MAX_ERRORS: Final = 100
_MAX_REASONS: Final = 20

#: Jobs of one retry that are followed, or that one search finds, and for how long after its end.
MAX_FOLLOWED: Final = 10_000
FOLLOWED_FOR: Final = timedelta(days=7)

#: Seconds that one step takes, so that it does not delay the other steps of maintenance.
_STEP: Final = 0.25
#: Searches that are kept of one user, besides those that have not ended.
MAX_KEPT: Final = 20
#: Jobs that one step of a search reads. SQLite has its write lock for as long.
_SEARCHED: Final = 20_000

_ACTIONS: Final[dict[str, StepAction]] = {
    BulkActionName.RETRY: bulk_step.RETRY,
    BulkActionName.CANCEL: bulk_step.CANCEL,
    BulkActionName.RUN_NOW: bulk_step.RUN_NOW,
    BulkActionName.DELETE: bulk_step.DELETE,
}
#: The resolution of the coarsest clock: a job of the same millisecond may be the older one.
_TICK: Final = timedelta(milliseconds=1)


def operations() -> QuerySet[BulkOperation]:
    """All bulk operations."""
    return BulkOperation.primary.all()


def order(
    action: BulkActionName, which: JobFilter, *, by: str, changes: Mapping[str, Any] | None = None
) -> BulkOperation:
    """Store a bulk operation on all jobs of a filter, and return it.

    It changes the jobs that match now, and not those that are created later; nor, where the filter
    is about terminal states, those that end later. A retry applies `changes`, to dead letters only.
    Raises InvalidRequest for a filter that matches all jobs, or names no state the action allows.
    """
    if changes and action != BulkActionName.RETRY:
        raise InvalidRequest(_("Only a retry changes jobs."), details={"field": "changes"})
    wanted = applicable(action, which)
    if changes:
        wanted = replace(wanted, dead_letter=True)
    expected, more = count(wanted)
    with database.atomic():
        operation: BulkOperation = operations().create(
            action=action,
            filter=filter_json.render(wanted),
            changes=dict(changes or {}),
            ordered_by=by,
            expected=None if more else expected,
        )
        audit_trail.record(
            "bulk.ordered",
            operation.pk,
            object_type="bulk_operation",
            action_on_jobs=str(action),
            expected=operation.expected,
        )
    audit.note("bulk.ordered", principal=by, action=str(action), operation=operation.pk)
    return operation


def applicable(action: BulkActionName, which: JobFilter) -> JobFilter:
    """Return the filter, reduced to the states that the action allows.

    Raises InvalidRequest for a filter that matches all jobs, or names no such state.
    """
    bulk_action = _ACTIONS[action]
    if which.empty:
        raise InvalidRequest(
            _("filter must name something; a state alone selects all jobs in it."),
            details={"field": "filter"},
        )
    # What an exclusion leaves is not named: such a search does not cancel active jobs.
    allowed = bulk_action.default if which.states_excluded else bulk_action.allowed
    states = tuple(each for each in (which.states or bulk_action.default) if each in allowed)
    if not states:
        wanted = one_of(sorted(bulk_action.allowed))
        raise InvalidRequest(
            _("%(action)s needs jobs that are %(wanted)s.", action=action, wanted=wanted),
            details={"field": "state"},
        )
    return replace(which, states=states, states_excluded=None)


def get(key: int) -> BulkOperation:
    """Return an operation. Raises NotFound."""
    found = operations().filter(pk=key).first()
    if found is None:
        raise NotFound(
            _("There is no such bulk operation."), details={"resource_type": "bulk_operation"}
        )
    return found


def stop(key: int, *, by: str) -> bool:
    """Stop an operation after its current step. Return False if it was over already."""
    stopped = _stop(key, by)
    if stopped:
        audit.note("bulk.stopped", principal=by, operation=key)
    return stopped


@database.write_transaction
def _stop(key: int, by: str) -> bool:
    found = operations().filter(pk=key, state__in=OPEN)
    before = found.select_for_update().values_list("state", flat=True).first()
    if not found.update(state=BulkState.STOPPED, stopped_by=by, finished_at=Now()):
        return False
    if not operations().filter(pk=key, action=BulkActionName.SEARCH).exists():
        changes = {"state": (before, BulkState.STOPPED)}
        audit_trail.record("bulk.stopped", key, object_type="bulk_operation", changes=changes)
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Retried:
    """What became of the jobs that a retry made available: their states now.

    `followed`: how many are known; a large retry has more. `gone`: those that were deleted since.
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
        """Those that have not ended."""
        return sum(number for state, number in self.by_state.items() if state not in TERMINAL)

    @property
    def gone(self) -> int:
        return self.followed - sum(self.by_state.values())


def retried(operation: BulkOperation) -> Retried | None:
    """Return what became of the jobs of a retry; None for another action, and after a week."""
    if operation.action != BulkActionName.RETRY:
        return None
    followed = BulkOperationJob.primary.filter(operation=operation).count()
    if not followed:
        return None
    jobs = Job.primary.filter(RetriedBy(operation.pk)).order_by()
    states = jobs.values_list("state").annotate(number=Count("pk"))
    return Retried(followed=followed, by_state={State(state): number for state, number in states})


def work() -> int:
    """Execute the oldest operation for a moment, as a step of maintenance.

    Return how many jobs it has processed; at least `BATCH` when there are more.
    """
    until = time.monotonic() + _STEP
    seen = 0
    while (some := work_once()) is not None:
        seen += some
        if time.monotonic() >= until:
            return max(seen, database.BATCH)
    return seen


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
    if not over.exists():
        return 0
    # The deletion also counts the jobs that are followed.
    return database.retried(lambda: over.delete()[1].get(BulkOperation._meta.label, 0))


def prune_followed(limit: int = database.BATCH) -> int:
    """Delete what is known of the jobs of the oldest retry or search, a week after it ended, as a
    step of maintenance. Return how many.
    """
    oldest = BulkOperationJob.primary.order_by("pk").values("operation_id")[:1]
    over = operations().filter(
        pk=Subquery(oldest), state__in=OVER, finished_at__lte=Now() - FOLLOWED_FOR
    )
    if not over.exists():
        return 0
    rows = BulkOperationJob.primary.filter(operation_id=Subquery(oldest)).order_by("pk")
    keys = list(rows.values_list("pk", flat=True)[:limit])
    return database.retried(lambda: BulkOperationJob.primary.filter(pk__in=keys).delete()[0])


def work_once(
    chunk: int = CHUNK, scan_limit: int = SCAN_LIMIT, *, only: int | None = None
) -> int | None:
    """Process the next jobs of the oldest operation, or of the one with this key.

    Return how many; None where it is over or another process is executing it.
    """
    if not raw_queries.exists(BulkOperation, "state IN (%s, %s)", [each.value for each in OPEN]):
        return None
    return database.in_write_transaction(lambda: _execute(chunk, scan_limit, only))


def _execute(chunk: int, scan_limit: int, only: int | None) -> int | None:
    # Changes first: a search reads for minutes, and a cancellation does not wait for it.
    last = Case(When(action=BulkActionName.SEARCH, then=Value(1)), default=Value(0))
    mine = operations().filter(state__in=OPEN).order_by(last, "pk")
    if only is not None:
        mine = mine.filter(pk=only)
    # If another process is executing it, this one does not wait.
    operation = mine.select_for_update(skip_locked=True).first()
    if operation is None:
        return None
    try:
        with database.atomic():
            return _execute_step(operation, chunk, scan_limit)
    except Exception as error:
        if database.is_unavailable(error):
            raise
        # It would fail again, and the operations after it would never be executed.
        logger.exception("Bulk operation %s failed, and was stopped.", operation.pk)
        mine.filter(pk=operation.pk).update(
            state=BulkState.STOPPED, stopped_by=STOPPED_BY_ERROR, finished_at=Now()
        )
        return 0


def _execute_step(operation: BulkOperation, chunk: int, scan_limit: int) -> int:
    which = filter_json.read(operation.filter)
    if operation.action == BulkActionName.SEARCH:
        return _search(operation, which, min(scan_limit, _SEARCHED))
    bulk_action = bulk_step.with_changes(_ACTIONS[operation.action], operation.changes)
    keys, end = _next(operation, which, chunk, scan_limit)
    if keys:
        step = BulkStep(bulk_action, expected=frozenset(which.states), within=which.within)
        result = step.run(keys)
        _follow(operation, [key for key in keys if key not in result.unchanged])
        _count(operation, len(keys), result)
    _move(operation, end)
    return len(keys)


def _move(operation: BulkOperation, end: str | None) -> None:
    """Save the operation with the position that its step has reached; None: it is done."""
    now = timezone.now()
    operation.started_at = operation.started_at or now
    operation.state = BulkState.RUNNING
    operation.cursor = end or ""
    if end is None:
        operation.state, operation.finished_at = BulkState.DONE, now
    operation.save(using=database.alias())


def _search(operation: BulkOperation, which: JobFilter, limit: int) -> int:
    """Read the next jobs, and store those that match. Return how many it has read."""
    if operation.started_at is None:
        _delete_old_searches(operation.ordered_by)
    wanted = _existing(which, operation)
    scans = index_scans(wanted, in_steps=True)
    at, text = _reached(operation)
    scan = scans[at]
    after = _after(text, scan)
    if text and after is None:
        # It begins again, because the order is another one now.
        BulkOperationJob.primary.filter(operation=operation).delete()
        operation.jobs_read = operation.matched = operation.done = 0
    found, end = scan.jobs_of(wanted, after, limit)
    room = MAX_FOLLOWED - operation.done
    # As many as may be stored already and as there is room for: what is not read here is lost,
    # because the cursor goes beyond it.
    keys = list(found.values_list("pk", flat=True)[:MAX_FOLLOWED])
    read = min(limit, scan.limit) if end else len(keys)
    if end is None and not scan.whole:
        read = scan.rows_left(after, limit)
    keys = _not_stored(operation, keys)[:room]
    _store(operation, keys)
    operation.jobs_read += read
    operation.matched += len(keys)
    operation.done += len(keys)
    _move(operation, _following(at, end, scans) if len(keys) < room else None)
    return read


def _not_stored(operation: BulkOperation, keys: list[Any]) -> list[Any]:
    """Leave out jobs that the search has found before, and that moved ahead of its cursor since.

    One that runs and fails is due later, so it comes again in an order by that.
    """
    if not operation.done:
        return keys
    rows = BulkOperationJob.primary.filter(OneOf("job_id", keys), operation=operation)
    known = set(rows.values_list("job_id", flat=True))
    return [key for key in keys if key not in known]


def _delete_old_searches(by: str) -> None:
    """Delete the oldest searches of a user, beyond those that are kept."""
    ended = operations().filter(action=BulkActionName.SEARCH, ordered_by=by, state__in=OVER)
    old = list(ended.order_by("-pk").values_list("pk", flat=True)[MAX_KEPT:])
    if old:
        operations().filter(pk__in=old).delete()


def _follow(operation: BulkOperation, changed: list[Any]) -> None:
    """Store which jobs a retry made available, of the first ones; before they are counted."""
    room = MAX_FOLLOWED - operation.done
    if operation.action == BulkActionName.RETRY and changed and room > 0:
        _store(operation, changed[:room])


def _store(operation: BulkOperation, keys: list[Any]) -> None:
    BulkOperationJob.primary.bulk_create(
        [BulkOperationJob(operation=operation, job_id=key) for key in keys]
    )


def _next(
    operation: BulkOperation, which: JobFilter, chunk: int, scan_limit: int
) -> tuple[list[Any], str | None]:
    """Return the next jobs, and the position after them; None at the end."""
    wanted = _existing(which, operation)
    scans = index_scans(wanted, in_steps=True)
    first, text = _reached(operation)
    for at, scan in enumerate(scans[first:], first):
        after = _after(text, scan)
        found, end = scan.jobs_of(wanted, after, scan_limit)
        names = [name.removeprefix("-") for name in scan.order]
        rows = list(found.values_list(*names)[: chunk + 1])
        if len(rows) > chunk:
            rows, end = rows[:chunk], rows[chunk - 1]
        keys = [row[-1] for row in rows]
        if keys or end is not None:
            return keys, _following(at, end, scans)
        text = ""
    return [], None


def _reached(operation: BulkOperation) -> tuple[int, str]:
    """Return the scan at which the operation goes on, and the cursor in it; see `_following`."""
    at, _, text = (operation.cursor or "0|").partition("|")
    return int(at), text


def _following(at: int, end: Cursor | None, scans: Sequence[IndexScan]) -> str | None:
    """Return the position after a step of a scan, "scan|cursor"; None after the last scan."""
    if end is not None:
        return f"{at}|{cursor.write(end)}"
    return f"{at + 1}|" if at + 1 < len(scans) else None


def _after(text: str, scan: IndexScan) -> Cursor | None:
    try:
        return cursor.read(text, scan.order) if text else None
    except InvalidRequest:
        # The queue has got its first job with a limit by key, so the order is another one. The jobs
        # that were processed do not match any more.
        return None


def _existing(which: JobFilter, operation: BulkOperation) -> JobFilter:
    made = operation.created_at + _TICK
    # A job that waits or runs comes over a duration meanwhile.
    which = replace(which, at=operation.created_at)
    until = made if which.until is None else min(which.until, made)
    if operation.action in (BulkActionName.CANCEL, BulkActionName.RUN_NOW, BulkActionName.SEARCH):
        return replace(which, until=until)
    ended = made if which.ended_until is None else min(which.ended_until, made)
    return replace(which, ended_until=ended)


def _count(operation: BulkOperation, seen: int, result: StepResult) -> None:
    unchanged = result.unchanged
    operation.matched += seen
    operation.done += seen - len(unchanged)
    operation.skipped += len(result.skipped)
    operation.failed += len(result.failed)
    for reason, times in Counter(unchanged.values()).items():
        known = reason in operation.reasons or len(operation.reasons) < _MAX_REASONS
        name = reason if known else OTHER
        operation.reasons[name] = operation.reasons.get(name, 0) + times
    room = MAX_ERRORS - len(operation.errors)
    reported = sorted(unchanged.items())[:room]
    operation.errors += [{"job_id": str(key), "error": reason} for key, reason in reported]

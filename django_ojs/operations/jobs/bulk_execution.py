"""The execution of stored bulk operations, as a step of maintenance.

It changes five hundred jobs at a time. The jobs and the figures of the operation change in one
transaction that locks the operation's row, so that only one process executes it at a time, and the
unfinished step of a killed process is rolled back.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.models import BulkOperation, BulkOperationJob
from django_ojs.models.bulk_operation import STOPPED_BY_ERROR, BulkActionName, BulkState
from django_ojs.operations import keyset
from django_ojs.operations.jobs import bulk_operations, bulk_step, filter_json
from django_ojs.operations.jobs.bulk_operations import OPEN, operations
from django_ojs.operations.jobs.bulk_step import CHUNK, OTHER, BulkStep, StepResult
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import SCAN_LIMIT, IndexScan, index_scans
from django_ojs.operations.keyset import FIRST_PAGE, Cursor, PageRequest
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage import database, raw_queries

logger = logging.getLogger("django_ojs")

#: The most jobs left unchanged, and the most reasons, that are stored.
MAX_ERRORS: Final = 100
_MAX_REASONS: Final = 20

#: Seconds that one step takes, so that it does not delay the other steps of maintenance.
_STEP: Final = 0.25


def work() -> int:
    """Execute the oldest operation for a moment, as a step of maintenance.

    Return how many jobs it has processed; at least `BATCH` when there may be more.
    """
    until = time.monotonic() + _STEP
    seen = 0
    while (some := work_once()) is not None:
        seen += some
        if time.monotonic() >= until:
            return max(seen, database.BATCH)
    return seen


def open_condition() -> str:
    """Return the SQL condition that there is an operation to execute."""
    states = ", ".join(f"'{each.value}'" for each in OPEN)
    return raw_queries.condition(BulkOperation, f"state IN ({states})")


def work_once(
    chunk: int = CHUNK, scan_limit: int = SCAN_LIMIT, *, only: int | None = None
) -> int | None:
    """Process the next jobs of the oldest operation, or of the one with this key.

    Return how many, or None if there is none to execute or another process is executing it.
    """
    if not raw_queries.holds(open_condition()):
        return None
    return database.in_write_transaction(lambda: _execute(chunk, scan_limit, only))


def _execute(chunk: int, scan_limit: int, only: int | None) -> int | None:
    mine = operations().filter(state__in=OPEN).order_by("pk")
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
        # The operation would fail again, and those after it would never be executed.
        logger.error(
            "Bulk operation %s failed, and was stopped.",
            operation.pk,
            exc_info=database.without_values(error),
        )
        mine.filter(pk=operation.pk).update(
            state=BulkState.STOPPED, stopped_by=STOPPED_BY_ERROR, finished_at=Now()
        )
        return 0


def _execute_step(operation: BulkOperation, chunk: int, scan_limit: int) -> int:
    which = filter_json.read(operation.filter)
    bulk_action = bulk_step.with_changes(
        bulk_operations.ACTIONS[operation.action], operation.changes
    )
    keys, end = _next(operation, which, chunk, scan_limit)
    if keys:
        step = BulkStep(bulk_action, expected=frozenset(which.states), within=which.within)
        result = step.run(keys)
        _follow(operation, [key for key in keys if key not in result.unchanged])
        _count(operation, len(keys), result)
    _move(operation, end)
    return len(keys)


def _move(operation: BulkOperation, end: str | None) -> None:
    """Save the operation with the position that its step reached; None means that it is done."""
    now = timezone.now()
    operation.started_at = operation.started_at or now
    operation.state = BulkState.RUNNING
    operation.cursor = end or ""
    if end is None:
        operation.state, operation.finished_at = BulkState.DONE, now
    operation.save(using=database.alias())


def _follow(operation: BulkOperation, changed: list[Any]) -> None:
    """Store the first jobs that a retry made available, before `done` counts them."""
    room = bulk_operations.MAX_FOLLOWED - operation.done
    if operation.action == BulkActionName.RETRY and changed and room > 0:
        BulkOperationJob.primary.bulk_create(
            [BulkOperationJob(operation=operation, job_id=key) for key in changed[:room]]
        )


def _next(
    operation: BulkOperation, which: JobFilter, chunk: int, scan_limit: int
) -> tuple[list[Any], str | None]:
    """Return the next jobs, and the position after them; None at the end."""
    wanted = _existing(which, operation)
    scans = index_scans(wanted, in_steps=True)
    reached, _, text = (operation.cursor or "0|").partition("|")
    first = int(reached)
    for at, scan in enumerate(scans[first:], first):
        found, end = scan.jobs_of(wanted, _request(text, scan), scan_limit)
        rows = list(found.values_list(*keyset.columns(scan.order))[: chunk + 1])
        if len(rows) > chunk:
            rows, end = rows[:chunk], rows[chunk - 1]
        keys = [row[-1] for row in rows]
        if keys or end is not None:
            return keys, _following(at, end, scans)
        text = ""
    return [], None


def _following(at: int, end: Cursor | None, scans: Sequence[IndexScan]) -> str | None:
    """Return the position after a step of a scan, "scan|cursor"; None after the last scan."""
    if end is not None:
        return f"{at}|{keyset.write(end)}"
    return f"{at + 1}|" if at + 1 < len(scans) else None


def _request(text: str, scan: IndexScan) -> PageRequest:
    wanted = PageRequest(cursor=text or None)
    try:
        wanted.start(scan.order)
    except InvalidRequest:
        # The queue has got its first job with a limit by key, which changes the order. The jobs
        # that were processed no longer match.
        return FIRST_PAGE
    return wanted


def _existing(which: JobFilter, operation: BulkOperation) -> JobFilter:
    # The time is fixed, because a job that waits or runs may exceed a duration while the operation
    # runs.
    at = operation.created_at if which.at is None else min(which.at, operation.created_at)
    return bulk_operations.existing(operation.action, replace(which, at=at))


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

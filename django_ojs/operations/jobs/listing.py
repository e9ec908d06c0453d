"""Lists of jobs by keyset pagination over index scans, each of which is bounded.

Each state has an index that some operation works by, and its jobs are listed in that order. The
other conditions of a filter are checked along the scan, among `SCAN_LIMIT` jobs at a time or fewer;
the page has the cursor at which the scan ended, and the next one begins there.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet, Value

from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.jobs.job_filter import JobFilter, condition
from django_ojs.operations.keyset import FIRST_PAGE, Count, Cursor, Order, Page, PageRequest
from django_ojs.spec.hold import FREE
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import InWorkflow, Moment
from django_ojs.storage.figures import counts
from django_ojs.storage.holds import values_in
from django_ojs.storage.limit_then_filter import first_rows

#: How many jobs one scan reads to find those that match a filter.
SCAN_LIMIT: Final = 100_000

#: The same for jobs that are due, cancelled or discarded. Neighbours in their index are far apart
#: in the table, so each job costs the read of a table page.
SCATTERED_LIMIT: Final = 20_000

#: The fields that a list reads. Arguments, metadata and results can be megabytes each.
LISTED_FIELDS = (
    "id",
    "type",
    "queue",
    "state",
    "priority",
    "attempt",
    "max_attempts",
    "returned",
    "created_at",
    "enqueued_at",
    "due_at",
    "expires_at",
    "started_at",
    "finished_at",
    "worker_id",
    "error",
    "dead_letter",
    "discard_reason",
)

#: The clocks of clients are assumed to be ahead by less than this.
_CLOCKS: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DUE: Final = (State.SCHEDULED, State.RETRYABLE)
_NEWEST_FIRST: Final[Order] = {"-pk": UUID}
LAST_ENDED_FIRST: Final[Order] = {"-finished_at": datetime, "-pk": UUID}
_NEXT_DUE_FIRST: Final[Order] = {"due_at": datetime, "pk": UUID}
_NEXT_CLAIMED_FIRST: Final[Order] = {"-priority": int, "enqueued_at": datetime, "pk": UUID}


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexScan:
    """A range of an index: the rows in it, and their order.

    `whole` says that the filter has no other condition, so that each of the rows matches.
    """

    rows: dict[str, Any]
    order: Order
    whole: bool = False
    #: The most jobs that one scan reads.
    limit: int = SCAN_LIMIT
    #: A qualifier of an extension that finds its jobs by an index, and its value.
    by_extension: tuple[str, str] | None = None
    #: The workflow that these rows are steps of.
    workflow_id: UUID | None = None

    def jobs_of(
        self, which: JobFilter, wanted: PageRequest, scan_limit: int
    ) -> tuple[QuerySet[Job], Cursor | None]:
        """Return the matching jobs of one scan, and the cursor at its end, or None."""
        rest = keyset.rest_of(self._all(), self.order, wanted)
        if self.by_extension is not None:
            others = tuple(each for each in which.by_extensions if each != self.by_extension)
            which = replace(which, by_extensions=others)
        if self.workflow_id is not None:
            which = replace(which, workflow_id=None)
        if self.whole:
            return rest, None
        scan_limit = min(scan_limit, self.limit)
        end = keyset.scan_end(rest, self.order, scan_limit)
        if database.dialect().keeps_subquery_order:
            return which.narrow(first_rows(rest, scan_limit)), end
        found = which.narrow(rest)
        return (found if end is None else keyset.until(found, end, wanted.order(self.order))), end

    def _all(self) -> QuerySet[Job]:
        found = Job.primary.filter(**self.rows)
        if self.by_extension is not None:
            found = found.filter(condition(*self.by_extension))
        if self.workflow_id is not None:
            found = found.filter(InWorkflow(self.workflow_id))
        return found


def index_scans(which: JobFilter, *, in_steps: bool = False) -> list[IndexScan]:
    """Return the index scans that find the jobs of a filter. All have the same order.

    `in_steps` says that time passes between the steps of a scan, so that no job may move behind its
    cursor.
    """
    state = which.states[0] if len(which.states) == 1 else None
    if which.dead_letter and which.states and State.DISCARDED not in which.states:
        return [IndexScan(rows={"pk__in": ()}, order=_NEWEST_FIRST, whole=True)]
    if which.ids:
        return [IndexScan(rows={"pk__in": which.ids}, order=_NEWEST_FIRST)]
    if which.parent_id is not None:
        children = {"parent_id": which.parent_id}
        return [IndexScan(rows=children, order=_NEWEST_FIRST, whole=_only(which, "parent_id"))]
    for each in which.by_extensions:
        qualifier = registry.qualifiers.get(each[0])
        if qualifier is not None and qualifier.is_indexed:
            return [IndexScan(rows={}, order=_NEWEST_FIRST, by_extension=each)]
    if which.workflow_id is not None and not registry.has("workflows"):
        return [IndexScan(rows={"pk__in": ()}, order=_NEWEST_FIRST, whole=True)]
    if which.workflow_id is not None:
        whole = _only(which, "workflow_id")
        steps = which.workflow_id
        return [IndexScan(rows={}, order=_NEWEST_FIRST, workflow_id=steps, whole=whole)]
    if which.dead_letter and state in (None, State.DISCARDED):
        whole = _only(which, "states", "dead_letter")
        dead = {"dead_letter": True, **_ended(which)}
        return [IndexScan(rows=dead, order=LAST_ENDED_FIRST, whole=whole, limit=SCATTERED_LIMIT)]
    whole = _only(which, "states")
    if state in TERMINAL:
        # Each kind of finished job has a range of the index.
        kinds = (
            (False, True) if state is State.DISCARDED and which.dead_letter is None else (False,)
        )
        return [
            IndexScan(
                rows={"state": state, "dead_letter": dead, **_ended(which)},
                order=LAST_ENDED_FIRST,
                whole=whole,
                limit=SCAN_LIMIT if state is State.COMPLETED else SCATTERED_LIMIT,
            )
            for dead in kinds
        ]
    if state in _DUE:
        due = {"state__in": _DUE}
        return [IndexScan(rows=due, order=_NEXT_DUE_FIRST, limit=SCATTERED_LIMIT)]
    holds = [FREE]
    if state is State.AVAILABLE and which.queue is not None:
        holds = values_in(which.queue) or holds
    if state is State.AVAILABLE and which.queue is not None and not (in_steps and len(holds) > 1):
        whose = {"state": state, "queue": which.queue}
        whole = _only(which, "states", "queue")
        # Jobs that extensions hold are in other ranges of the index, and move between them.
        return [
            IndexScan(
                rows={**whose, "hold": value},
                order=_NEXT_CLAIMED_FIRST,
                whole=whole,
            )
            for value in holds
        ]
    if state in (State.ACTIVE, State.PENDING):
        return [IndexScan(rows={"state": state}, order=_NEWEST_FIRST, whole=whole)]
    newest: dict[str, Any] = {} if which.until is None else {"pk__lte": _last_id(which.until)}
    return [IndexScan(rows=newest, order=_NEWEST_FIRST, whole=_only(which))]


def _ended(which: JobFilter) -> dict[str, Any]:
    # The filter has this condition too. Here it limits the range of the index that is read.
    if which.ended_until is None:
        return {}
    return {"finished_at__lt": Moment(Value(which.ended_until))}


def _last_id(until: datetime) -> UUID:
    # An id contains the time at which a client created it, before the job was stored.
    made = max(timedelta(0), until + _CLOCKS - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(made, 2**48 - 1) << 80 | (1 << 80) - 1)


def list_jobs(
    which: JobFilter, wanted: PageRequest = FIRST_PAGE, *, scan_limit: int = SCAN_LIMIT
) -> Page[Job]:
    """Return a page of the jobs of a filter, with the fields of `LISTED_FIELDS`."""
    scans = index_scans(which)
    order = wanted.order(scans[0].order)
    found: list[Job] = []
    ends: list[Cursor] = []
    for scan in scans:
        jobs, end = scan.jobs_of(which, wanted, scan_limit)
        found += jobs.only(*LISTED_FIELDS)[: wanted.offset + wanted.limit + 1]
        ends += [] if end is None else [end]
    nearest = min(ends, key=lambda end: keyset.rank(end, order), default=None)
    ranked = sorted((keyset.rank(keyset.at(job, order), order), job.pk, job) for job in found)
    if nearest is not None:
        # Beyond this point, not every scan has read its range.
        ranked = [each for each in ranked if each[0] <= keyset.rank(nearest, order)]
    read = min(scan_limit, *(scan.limit for scan in scans))
    page = keyset.page_from(
        [job for _, _, job in ranked[wanted.offset :]],
        scans[0].order,
        wanted,
        count=lambda: count(which, scan_limit=scan_limit),
        end=nearest,
        scanned=None if nearest is None else read,
    )
    is_first = wanted.cursor is None and not wanted.offset
    has_all = is_first and (page.after is None or page.scanned is not None)
    if not has_all or which.counted:
        return page
    # The count is taken from this page, so that a rare match is not searched for twice.
    return replace(page, count=lambda: (len(page.rows), page.scanned is not None))


def count(which: JobFilter, *, scan_limit: int = SCAN_LIMIT) -> Count:
    """Return how many jobs match a filter, and whether there may be more.

    The number is exact if the counts have it. Otherwise it is what the first scan finds, up to
    10,000.
    """
    if which.counted:
        return which.number(), False
    seen, more = 0, False
    for scan in index_scans(which):
        jobs, end = scan.jobs_of(which, FIRST_PAGE, scan_limit)
        found, capped = keyset.count_up_to(jobs)
        seen, more = seen + found, more or capped or end is not None
    return min(seen, keyset.COUNT_LIMIT), more or seen > keyset.COUNT_LIMIT


def about(which: JobFilter) -> int:
    """Return about how many jobs the scans of a filter read from their beginning to their end.

    The number comes from the counts, so no job is read. Some of these jobs may be too new for the
    filter, or may not be dead letters.
    """
    scans = index_scans(which, in_steps=True)
    rows = scans[0].rows
    if "pk__in" in rows:
        return len(rows["pk__in"])
    states = {rows["state"]} if "state" in rows else set(rows.get("state__in", State))
    queues = [rows["queue"]] if "queue" in rows else None
    # Two scans read both kinds of discarded jobs, so both kinds are counted.
    dead_letter = rows.get("dead_letter") if len(scans) == 1 else None
    by_state = counts.totals(queues, dead_letter=dead_letter)
    return sum(number for state, number in by_state.items() if state in states)


def _only(which: JobFilter, *named: str) -> bool:
    return all(getattr(which, name) in (None, ()) for name in which.__slots__ if name not in named)

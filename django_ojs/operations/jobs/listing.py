"""Lists of jobs by keyset pagination over index scans: no offset, no count, a bounded scan.

Each state has an index that some operation works by, and its jobs are listed in that order. The
other conditions of a filter are checked along the scan, among `SCAN_LIMIT` jobs at a time or fewer;
the page has the cursor at which the scan ended, and the next one begins there.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet, Value

from django_ojs.models import Job
from django_ojs.operations.jobs import cursor
from django_ojs.operations.jobs.cursor import Cursor, Order
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.hold import Hold
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import database, queue_configs
from django_ojs.storage.dialects.expressions import InWorkflow, Moment, RetriedBy
from django_ojs.storage.figures import counts
from django_ojs.storage.limit_then_filter import first_rows

#: Jobs that one scan reads to find those of a filter.
SCAN_LIMIT: Final = 100_000

#: The same for jobs that are due, cancelled or discarded. Neighbours in their index are far apart
#: in the table, so that each costs a page.
SCATTERED_LIMIT: Final = 20_000

#: Jobs of a filter are counted up to this: about 20 ms.
COUNT_LIMIT: Final = 10_000

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

#: A client's clock is ahead by less than this.
_CLOCKS: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DUE: Final = (State.SCHEDULED, State.RETRYABLE)
_NEWEST_FIRST: Final = ("-pk",)
_LAST_ENDED_FIRST: Final = ("-finished_at", "-pk")


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexScan:
    """A range of an index: the rows in it, and their order.

    `whole`: the filter has no other condition, so each of the rows matches.
    """

    rows: dict[str, Any]
    order: Order
    whole: bool = False
    #: Jobs that one scan reads at most.
    limit: int = SCAN_LIMIT
    #: The jobs that a bulk operation retried, of these rows.
    retried_by: int | None = None
    #: The workflow of which these rows are steps.
    workflow_id: UUID | None = None

    def jobs_of(
        self, which: JobFilter, after: Cursor | None, scan_limit: int
    ) -> tuple[QuerySet[Job], Cursor | None]:
        """Return the matching jobs of one scan, and the cursor at its end (None: no more)."""
        rest = self._rest(after)
        if self.retried_by is not None:
            which = replace(which, retried_by=None)
        if self.workflow_id is not None:
            which = replace(which, workflow_id=None)
        if self.whole:
            return rest, None
        # An index-only scan of at most `scan_limit` entries, so its cost is bounded.
        scan_limit = min(scan_limit, self.limit)
        names = [name.removeprefix("-") for name in self.order]
        end = next(iter(rest.values_list(*names)[scan_limit - 1 : scan_limit]), None)
        if database.dialect().keeps_subquery_order:
            return which.narrow(first_rows(rest, scan_limit)), end
        wanted = which.narrow(rest)
        return (wanted if end is None else cursor.until(wanted, end, self.order)), end

    def _rest(self, after: Cursor | None) -> QuerySet[Job]:
        rest = Job.primary.filter(**self.rows).order_by(*self.order)
        if self.retried_by is not None:
            rest = rest.filter(RetriedBy(self.retried_by))
        if self.workflow_id is not None:
            rest = rest.filter(InWorkflow(self.workflow_id))
        return rest if after is None else cursor.beyond(rest, after, self.order)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPage:
    """Jobs in the order of their index. `end`: the cursor of the next page; None: it is the last.

    `scanned`: the page is not full because the scan ended after so many jobs; there may be more.
    """

    jobs: list[Job]
    end: Cursor | None = None
    scanned: int | None = None

    @property
    def total(self) -> tuple[int, bool] | None:
        """What `count` returns, if this is the first page and has all that the scan found."""
        if self.end is None or self.scanned is not None:
            return len(self.jobs), self.scanned is not None
        return None


def index_scans(which: JobFilter, *, in_steps: bool = False) -> list[IndexScan]:
    """Return the index scans that find the jobs of a filter; two of them have the same order.

    `in_steps`: time passes between the steps of a scan, and no job may move behind its cursor.
    """
    state = which.states[0] if len(which.states) == 1 else None
    if which.dead_letter and which.states and State.DISCARDED not in which.states:
        return [IndexScan(rows={"pk__in": ()}, order=_NEWEST_FIRST, whole=True)]
    if which.ids:
        return [IndexScan(rows={"pk__in": which.ids}, order=_NEWEST_FIRST)]
    if which.parent_id is not None:
        children = {"parent_id": which.parent_id}
        return [IndexScan(rows=children, order=_NEWEST_FIRST, whole=_only(which, "parent_id"))]
    if which.retried_by is not None:
        return [IndexScan(rows={}, order=_NEWEST_FIRST, retried_by=which.retried_by)]
    if which.workflow_id is not None:
        whole = _only(which, "workflow_id")
        steps = which.workflow_id
        return [IndexScan(rows={}, order=_NEWEST_FIRST, workflow_id=steps, whole=whole)]
    if which.dead_letter and state in (None, State.DISCARDED):
        whole = _only(which, "states", "dead_letter")
        dead = {"dead_letter": True, **_ended(which)}
        return [IndexScan(rows=dead, order=_LAST_ENDED_FIRST, whole=whole, limit=SCATTERED_LIMIT)]
    whole = _only(which, "states")
    if state in TERMINAL:
        # Each kind of finished job has a range of the index.
        kinds = (
            (False, True) if state is State.DISCARDED and which.dead_letter is None else (False,)
        )
        return [
            IndexScan(
                rows={"state": state, "dead_letter": dead, **_ended(which)},
                order=_LAST_ENDED_FIRST,
                whole=whole,
                limit=SCAN_LIMIT if state is State.COMPLETED else SCATTERED_LIMIT,
            )
            for dead in kinds
        ]
    if state in _DUE:
        due = {"state__in": _DUE}
        return [IndexScan(rows=due, order=("due_at", "pk"), limit=SCATTERED_LIMIT)]
    has_rules = (
        state is State.AVAILABLE
        and which.queue is not None
        and queue_configs.rules_of(which.queue) != 0
    )
    if state is State.AVAILABLE and which.queue is not None and not (has_rules and in_steps):
        whose = {"state": state, "queue": which.queue}
        whole = _only(which, "states", "queue")
        # Jobs with a limit by key have ranges of the index of their own, and change between them.
        holds = Hold if has_rules else (Hold.NONE,)
        return [
            IndexScan(
                rows={**whose, "limit_hold": hold},
                order=("-priority", "enqueued_at", "pk"),
                whole=whole,
            )
            for hold in holds
        ]
    if state in (State.ACTIVE, State.PENDING):
        return [IndexScan(rows={"state": state}, order=_NEWEST_FIRST, whole=whole)]
    newest: dict[str, Any] = {} if which.until is None else {"pk__lte": _last_id(which.until)}
    return [IndexScan(rows=newest, order=_NEWEST_FIRST, whole=_only(which))]


def _ended(which: JobFilter) -> dict[str, Any]:
    # It bounds the range of the index, and not only its rows.
    if which.ended_until is None:
        return {}
    return {"finished_at__lt": Moment(Value(which.ended_until))}


def _last_id(until: datetime) -> UUID:
    # An id contains the time at which a client created it, before the job was stored.
    made = max(timedelta(0), until + _CLOCKS - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(made, 2**48 - 1) << 80 | (1 << 80) - 1)


def order_of(which: JobFilter) -> Order:
    """Return the order in which the jobs of a filter are listed."""
    return index_scans(which)[0].order


def list_jobs(
    which: JobFilter,
    *,
    after: Cursor | None = None,
    limit: int = 50,
    backwards: bool = False,
    scan_limit: int = SCAN_LIMIT,
) -> JobPage:
    """Return the jobs of a filter that come after a cursor, with the fields of `LISTED_FIELDS`.

    `backwards`: the page that ends at the cursor, in the same order.
    """
    scans = index_scans(which)
    if backwards:
        scans = [replace(scan, order=_reversed(scan.order)) for scan in scans]
    order = scans[0].order
    found: list[Job] = []
    ends: list[Cursor] = []
    for scan in scans:
        wanted, end = scan.jobs_of(which, after, scan_limit)
        found += wanted.only(*LISTED_FIELDS)[: limit + 1]
        ends += [] if end is None else [end]
    nearest = min(ends, key=lambda end: cursor.rank(end, order), default=None)
    ranked = sorted((cursor.rank(cursor.of(job, order), order), job.pk, job) for job in found)
    if nearest is not None:
        # Beyond it, only one of two scans has read the index.
        ranked = [each for each in ranked if each[0] <= cursor.rank(nearest, order)]
    page = [job for _, _, job in ranked[:limit]]
    if len(ranked) > limit:
        end, scanned = cursor.of(page[-1], order), None
    else:
        read = min(scan_limit, *(scan.limit for scan in scans))
        end, scanned = nearest, None if nearest is None else read
    return JobPage(
        jobs=page[::-1] if backwards else page,
        end=end,
        scanned=scanned,
    )


def count(which: JobFilter, *, scan_limit: int = SCAN_LIMIT) -> tuple[int, bool]:
    """Return how many jobs match a filter, and whether there may be more.

    Exact where the counts have it, and otherwise those that the first scan finds, up to 10,000.
    """
    if which.counted:
        return which.number(), False
    seen, more = 0, False
    for scan in index_scans(which):
        wanted, end = scan.jobs_of(which, None, scan_limit)
        found, capped = count_up_to(wanted)
        seen, more = seen + found, more or capped or end is not None
    return min(seen, COUNT_LIMIT), more or seen > COUNT_LIMIT


def about(which: JobFilter) -> int:
    """Return about how many jobs the scans of a filter read from their first job to their last one.

    By the counts, so that it reads no job. Some may be too new for the filter, or no dead letters.
    """
    rows = index_scans(which, in_steps=True)[0].rows
    if "pk__in" in rows:
        return len(rows["pk__in"])
    states = {rows["state"]} if "state" in rows else set(rows.get("state__in", State))
    if rows.get("dead_letter"):
        states = {State.DISCARDED}
    by_state = counts.totals([rows["queue"]] if "queue" in rows else None)
    return sum(number for state, number in by_state.items() if state in states)


def count_up_to(jobs: QuerySet[Job], limit: int = COUNT_LIMIT) -> tuple[int, bool]:
    """Return how many jobs these are, `limit` at most, and whether there are more."""
    seen = jobs.order_by()[: limit + 1].count()
    return min(seen, limit), seen > limit


def _reversed(order: Order) -> Order:
    return tuple(name[1:] if name.startswith("-") else f"-{name}" for name in order)


def _only(which: JobFilter, *named: str) -> bool:
    return all(getattr(which, name) in (None, ()) for name in which.__slots__ if name not in named)

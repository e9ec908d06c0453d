"""Numbered and sorted pages of jobs, for the control plane (ojs-admin-api §7.1).

No index has these orders, so a page has an offset. The pages of `listing` have cursors.
"""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import F, QuerySet

from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import LISTED_FIELDS
from django_ojs.operations.keyset import FIRST_PAGE, Count, Page, PageRequest
from django_ojs.spec.states import State

Sort = Literal["created_at", "scheduled_at", "priority", "discarded_at"]
SORTS: tuple[Sort, ...] = ("created_at", "scheduled_at", "priority", "discarded_at")

#: The most jobs that are read to count and sort them, which takes about 20 ms. If there are more,
#: the total is capped.
WINDOW = 10_000


def read(
    which: JobFilter,
    wanted: PageRequest = FIRST_PAGE,
    *,
    sort: Sort = "created_at",
    descending: bool = True,
) -> Page[Job]:
    """Return a page of these jobs, with `LISTED_FIELDS`; other fields are read when needed.

    The total is exact where the counts have it (for a queue, states, both, or no condition), and
    otherwise ends at 10,000. No index has the order of creation. So jobs are read in the order of
    their ids, which contain the time at which a client created them, and the first 10,000 are then
    sorted by `created_at`. The order of further jobs is the order of their ids.
    """
    offset, end = wanted.offset, wanted.offset + wanted.limit
    total = which.number() if which.counted else None
    if total is not None and offset >= total:
        return Page(rows=[], count=lambda: (total, False))
    rows = which.jobs()
    if sort == "created_at":
        keys, counted = _by_creation(rows, descending, offset, end)
    else:
        ordered = rows.order_by(*_order(which, sort, descending))
        keys = list(ordered.values_list("pk", flat=True)[offset:end])
        counted = keyset.count_up_to(rows, WINDOW) if total is None else (0, False)
    if total is not None:
        counted = total, False
    return Page(rows=_read(keys), count=lambda: counted)


def _by_creation(
    rows: QuerySet[Job], descending: bool, offset: int, end: int
) -> tuple[list[UUID], Count]:
    by_id = rows.order_by("-pk" if descending else "pk")
    seen: list[tuple[datetime, UUID]] = list(by_id.values_list("created_at", "pk")[: WINDOW + 1])
    window = sorted(seen[:WINDOW], reverse=descending)
    keys = [key for _, key in window[offset:end]]
    if len(seen) > WINDOW and end > WINDOW:
        # A page with so high an offset is rare, and no index helps.
        keys += by_id.values_list("pk", flat=True)[max(offset, WINDOW) : end]
    return keys, (len(window), len(seen) > WINDOW)


def _order(which: JobFilter, sort: Sort, descending: bool) -> list[Any]:
    key = "-pk" if descending else "pk"
    if sort == "priority":
        # Available jobs of a queue are claimed by an index with this order.
        then = [F("enqueued_at").asc(), "pk"] if which.states == (State.AVAILABLE,) else [key]
        return ["-priority" if descending else "priority", *then]
    field = F("due_at" if sort == "scheduled_at" else "finished_at")
    never_null = {State.SCHEDULED, State.RETRYABLE} if sort == "scheduled_at" else set()
    if which.states and never_null.issuperset(which.states):
        return [field.desc() if descending else field.asc(), key]
    if sort == "discarded_at" and which.dead_letter:
        return [field.desc() if descending else field.asc(), key]
    return [field.desc(nulls_last=True) if descending else field.asc(nulls_last=True), key]


def _read(keys: list[UUID]) -> list[Job]:
    found = {job.pk: job for job in Job.primary.filter(pk__in=keys).only(*LISTED_FIELDS)}
    # A job that was deleted in the meantime is missing.
    return [found[key] for key in keys if key in found]

"""A search of all jobs, in the background: a bulk operation that changes nothing.

A page reads a bounded number of jobs for a search. This reads all of them, and stores the ids of
those that match. It is no change: the audit trail has no entry for it.
"""

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from django_ojs.models import BulkOperation, BulkOperationJob, Job
from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.operations.jobs import bulk_operations, filter_json, listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.storage import database

#: Searches of one user that have not ended.
MAX_OPEN: Final = 3


class NotStarted(Exception):
    """Raised for a search that is not started; the text says why and what to do."""


def searches() -> QuerySet[BulkOperation]:
    """All searches."""
    return bulk_operations.operations().filter(action=BulkActionName.SEARCH)


def start(which: JobFilter, *, by: str) -> BulkOperation:
    """Start a search, and return it; or the one of this user that is open for the same filter.

    Raises NotStarted.
    """
    if which.empty:
        raise NotStarted(_("Write a search first: without one, the list has all jobs."))
    return _start(which, by)[0]


@database.write_transaction
def _start(which: JobFilter, by: str) -> tuple[BulkOperation, bool]:
    database.dialect().lock_subject(database.connection(), f"search {by}")
    mine = searches().filter(ordered_by=by)
    wanted = filter_json.render(which)
    running = list(mine.filter(state__in=bulk_operations.OPEN))
    for each in running:
        if each.filter == wanted:
            return each, False
    if len(running) >= MAX_OPEN:
        raise NotStarted(
            _("You have %(count)d searches that have not ended. Stop one of them first.")
            % {"count": len(running)}
        )
    values: dict[str, Any] = {"filter": wanted, "expected": listing.about(which)}
    return searches().create(action=BulkActionName.SEARCH, ordered_by=by, **values), True


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundJobs:
    """Jobs that a search has found, as they are now, in the order in which it found them.

    `deleted`: how many of the page do not exist any more. `after`: where the next page begins.
    """

    jobs: list[Job]
    deleted: int
    after: int | None


def found(search: BulkOperation, *, after: int = 0, limit: int = 50) -> FoundJobs:
    """Return a page of the jobs that a search has found."""
    rows = BulkOperationJob.primary.filter(operation=search, pk__gt=after).order_by("pk")
    page = list(rows.values_list("pk", "job_id")[: limit + 1])
    keys = [key for _row, key in page[:limit]]
    jobs = {job.pk: job for job in Job.primary.filter(pk__in=keys).only(*listing.LISTED_FIELDS)}
    return FoundJobs(
        jobs=[jobs[key] for key in keys if key in jobs],
        deleted=len(keys) - len(jobs),
        after=page[limit - 1][0] if len(page) > limit else None,
    )

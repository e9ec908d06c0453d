"""Findings about cron jobs."""

from typing import Final

from django.db.models import Count, Min
from django.db.models.functions import Now

from django_ojs.extensions.cron.cron_events import SkipReason
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations.queries import unended_jobs
from django_ojs.finding import AdminPage, Finding, Severity
from django_ojs.formatting import grouped, number_of
from django_ojs.models import Job
from django_ojs.reports.health_queries import LATE
from django_ojs.storage import raw_queries

#: A job that outlasts one occurrence may just have been slow.
_SKIPPED: Final = 2
#: At most this many skipped schedules are named: those with the most skipped occurrences.
_MOST: Final = 20

_IS_SKIPPED: Final = (
    f"due_at IS NOT NULL AND skipped_count >= {_SKIPPED} "
    f"AND skipped_why = '{SkipReason.OVERLAP.value}'"
)


def condition() -> str:
    """Return the SQL condition that there is something to find."""
    late = raw_queries.is_older(CronJob, "due_at", "due_at IS NOT NULL", LATE)
    return f"({late} OR {raw_queries.condition(CronJob, _IS_SKIPPED)})"


def found() -> list[Finding]:
    """Find cron jobs that are late, and those that one job keeps from running."""
    return [*_late(), *_skipped()]


def _late() -> list[Finding]:
    late = CronJob.primary.filter(due_at__lt=Now() - LATE)
    figures = late.aggregate(number=Count("pk"), since=Min("due_at"), first=Min("name"))
    if not (number := figures["number"]):
        return []
    more = f" and {number - 1} more" if number > 1 else ""
    return [
        Finding(
            kind="cron_late",
            severity=Severity.CRITICAL,
            text=f"{number_of(number, 'schedule')} {'is' if number == 1 else 'are'} late: "
            f"{figures['first']}{more}.",
            why="No process enqueues their jobs.",
            cure="Start a worker. If one is running, see what it logs.",
            command="ojs_worker",
            jobs=number,
            since=figures["since"],
            pages=(AdminPage(model=CronJob),),
            follows=frozenset({"no_worker", "no_maintenance"}),
        )
    ]


def _skipped() -> list[Finding]:
    skipped = CronJob.primary.filter(
        due_at__isnull=False, skipped_count__gte=_SKIPPED, skipped_why=SkipReason.OVERLAP
    )
    rows = list(skipped.order_by("-skipped_count", "name")[:_MOST])
    keys = [row.skipped_for for row in rows if row.skipped_for is not None]
    going_on = unended_jobs(keys)
    states = Job.primary.filter(pk__in=going_on).values_list("pk", "type", "state")
    said = {key: f"{key} of the type {type}, which is {state}" for key, type, state in states}
    return [
        Finding(
            kind="cron_skipped",
            subject=row.name,
            queue=row.queue,
            text=f"The schedule {row.name} was skipped {grouped(row.skipped_count)} times in a "
            f"row by its overlap: the job {said.get(key, f'{key}, which is in the outbox')}, has "
            "not ended.",
            why="With the overlap policy skip, nothing is enqueued until the last job has ended.",
            cure="See why that job does not end. Cancel it, or change the overlap policy.",
            command=f"ojs show {key}",
            jobs=row.skipped_count,
            since=row.skipped_since,
            pages=(AdminPage(model=Job, key=str(key)), AdminPage(model=CronJob, key=row.name)),
        )
        for row in rows
        if (key := row.skipped_for) in going_on
    ]

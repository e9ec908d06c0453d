"""What needs attention of cron jobs."""

from django.db.models import Count, Min
from django.db.models.functions import Now

from django_ojs.extensions.cron.models import CronJob
from django_ojs.finding import AdminPage, Finding, Severity
from django_ojs.formatting import number_of
from django_ojs.reports.health_queries import LATE
from django_ojs.storage import raw_queries


def condition() -> str:
    """Return the SQL condition that there is something to find."""
    return raw_queries.is_older(CronJob, "due_at", "due_at IS NOT NULL", LATE)


def found() -> list[Finding]:
    """Find cron jobs that are late."""
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

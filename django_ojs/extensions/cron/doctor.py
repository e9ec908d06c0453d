"""What `doctor` checks of cron jobs."""

from collections.abc import Iterator
from typing import Final

from django.db.models.functions import Now

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.checks.jobs import LATE
from django_ojs.extensions.cron.models import CronJob


def _late() -> Iterator[DoctorFinding]:
    if CronJob.primary.filter(due_at__lt=Now() - LATE).exists():
        yield DoctorFinding(
            found="Cron jobs that were due over a minute ago have not run.",
            why="No process enqueues their jobs.",
            cure="Start a worker: `manage.py ojs_worker`. If one is running, see what it logs.",
        )


CHECKS: Final = (Check(name="cron", about="Cron jobs", run=_late),)

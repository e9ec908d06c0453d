"""The rows of cron jobs that a scheduler fires: locked as it has read them, and moved on."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from django.db.models.functions import Now

from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.storage import raw_queries

#: What firing changes of a cron job.
_CHANGED: Final = (
    *("due_at", "next_run_at", "missed_count"),
    *("last_run_at", "last_job_id", "run_count"),
    *("skipped_count", "skipped_since", "skipped_why", "skipped_for"),
)


def lock_as_read(due: Mapping[str, datetime]) -> list[CronJob]:
    """Return the cron jobs that are still due at these times, by name, locked and with `now`.

    A cron job that another transaction has locked is left to that transaction.
    """
    # They are locked in the order of their names, so that two schedulers cannot deadlock.
    rows = CronJob.primary.filter(pk__in=list(due)).annotate(now=Now()).order_by("name")
    locked = rows.select_for_update(skip_locked=True, no_key=True)
    return [row for row in locked if row.due_at == due[row.name]]


def store(cron_jobs: Sequence[CronJob], runs: Sequence[CronRun]) -> None:
    """Store what firing has changed of cron jobs, which the caller has locked, and their runs."""
    raw_queries.update(CronJob, cron_jobs, _CHANGED)
    CronRun.primary.bulk_create(runs)


def with_held_runs() -> list[str]:
    """Return the cron jobs that have a run which waits for an earlier one."""
    held = CronRun.primary.filter(phase=CronRunPhase.HELD)
    return list(held.values_list("name", flat=True).order_by("name").distinct())

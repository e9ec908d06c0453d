"""Lock the cron jobs that are still as a scheduler read them, and store what it changed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.storage import raw_queries
from django_ojs.storage.dialects.expressions import OneOf, Texts

#: The columns of a cron job that firing changes.
_CHANGED: Final = (
    *("due_at", "next_run_at", "missed_count"),
    *("last_run_at", "last_job_id", "run_count"),
    *("skipped_count", "skipped_since", "skipped_why", "skipped_for"),
)


def lock_as_read(due: Mapping[str, datetime]) -> list[CronJob]:
    """Return the cron jobs that are still due at these times, by name, locked.

    A cron job that another transaction has locked is left to that transaction.
    """
    # They are locked in the order of their names, so that two schedulers cannot deadlock.
    rows = CronJob.primary.filter(OneOf("name", Texts(list(due)))).order_by("name")
    locked = raw_queries.read_instances(rows.select_for_update(skip_locked=True, no_key=True))
    return [row for row in locked if row.due_at == due[row.name]]


class NewRun(NamedTuple):
    """A run to be stored, with the columns of `CronRun`."""

    name: str
    job_id: UUID
    scheduled_at: datetime
    triggered_by: str
    phase: CronRunPhase


def store(cron_jobs: Sequence[CronJob], runs: Sequence[NewRun]) -> None:
    """Store what firing has changed of cron jobs, which the caller has locked, and their runs."""
    raw_queries.update(CronJob, cron_jobs, _CHANGED)
    raw_queries.insert(CronRun, NewRun._fields, runs)


def with_held_runs() -> list[str]:
    """Return the cron jobs that have a run which waits for an earlier one."""
    held = CronRun.primary.filter(phase=CronRunPhase.HELD)
    return list(held.values_list("name", flat=True).order_by("name").distinct())

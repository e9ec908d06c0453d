"""The statements of the scheduler on cron jobs, each for many of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django_ojs.extensions.cron.models import CronRun, CronRunPhase
from django_ojs.spec import json
from django_ojs.storage import database


@dataclass(frozen=True, kw_only=True, slots=True)
class Advance:
    """A cron job as it was read, by its `due_at`, and its next occurrence."""

    name: str
    due_at: datetime
    next_due_at: datetime | None
    next_run_at: datetime | None
    missed: int


def advance(cron_jobs: Iterable[Advance]) -> list[str]:
    """Move cron jobs on to their next occurrence, as far as they are as they were read.

    Return their names; the transaction has locked them.
    """
    rows = [
        {
            "name": each.name,
            "due_at": _text(each.due_at),
            "next_due_at": _text(each.next_due_at),
            "next_run_at": _text(each.next_run_at),
            "missed": each.missed,
        }
        for each in cron_jobs
    ]
    return database.dialect().advance_cron_jobs(database.connection(), json.dumps(rows))


def add_runs(runs: Sequence[CronRun]) -> None:
    """Store runs, each of another cron job, which the caller has locked; note the run on it."""
    rows = [
        {
            "name": run.name,
            "job_id": str(run.job_id),
            "scheduled_at": _text(run.scheduled_at),
            "triggered_by": run.triggered_by,
            "phase": run.phase,
        }
        for run in runs
    ]
    database.dialect().add_cron_runs(database.connection(), json.dumps(rows))


def _text(at: datetime | None) -> str | None:
    """Return a time as Django stores it."""
    return None if at is None else str(database.connection().ops.adapt_datetimefield_value(at))


def with_held_runs() -> list[str]:
    """Return the cron jobs of which a run waits for an earlier one."""
    held = CronRun.primary.filter(phase=CronRunPhase.HELD)
    return list(held.values_list("name", flat=True).order_by("name").distinct())

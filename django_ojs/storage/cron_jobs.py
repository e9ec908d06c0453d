"""The statements of the scheduler on cron jobs, each for many of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from django_ojs.models import CronRun
from django_ojs.models.cron import CronRunPhase
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
    connection = database.connection()
    adapt = connection.ops.adapt_datetimefield_value
    rows = [
        {
            key: str(adapt(value)) if isinstance(value, datetime) else value
            for key, value in asdict(each).items()
        }
        for each in cron_jobs
    ]
    return database.dialect().advance_cron_jobs(connection, json.dumps(rows))


def note_runs(runs: Sequence[tuple[str, UUID]]) -> None:
    """Note on each cron job that it has just enqueued a job. The caller has locked them."""
    rows = [{"name": name, "job_id": str(key)} for name, key in runs]
    database.dialect().note_cron_runs(database.connection(), json.dumps(rows))


def with_held_runs() -> list[str]:
    """Return the cron jobs of which a run waits for an earlier one."""
    held = CronRun.primary.filter(phase=CronRunPhase.HELD)
    return list(held.values_list("name", flat=True).order_by("name").distinct())

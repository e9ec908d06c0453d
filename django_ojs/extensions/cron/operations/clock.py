"""Correct cron jobs after the clock of the database was set back, so that they do not wait."""

import logging
from datetime import UTC, datetime
from typing import cast

from django.db.models.functions import Now

from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations import schedule
from django_ojs.extensions.cron.spec import CronExpressionError
from django_ojs.storage import database

logger = logging.getLogger("django_ojs.cron")

#: Seconds between two checks, each of which reads every cron job.
INTERVAL = 60.0


def put_right() -> int:
    """Move cron jobs that are due later than their schedules say. Return how many.

    One occurrence that comes again after the clock was set back is left out, because its job was
    enqueued before. If two or more would be left out, the schedule starts again at this time.
    """
    moved = 0
    rows = CronJob.primary.filter(enabled=True, due_at__gt=Now()).annotate(now=Now())
    for row in rows.only("name", "expression", "timezone", "due_at", "next_run_at"):
        now: datetime = row.now.astimezone(UTC)
        due_at = cast("datetime", row.due_at).astimezone(UTC)
        try:
            if not schedule.is_late(row.expression, row.timezone, now, due_at):
                continue
            times = schedule.first(row.expression, row.timezone, now)
        except CronExpressionError:
            continue  # The tick reports this when the cron job is due.
        same = CronJob.primary.filter(pk=row.pk, due_at=row.due_at, expression=row.expression)
        moved += database.update_free(same, due_at=times.due_at, next_run_at=times.next_run_at)
    if moved:
        logger.warning(
            "The clock of the database was set back: %d cron jobs go on by their schedules.", moved
        )
    return moved

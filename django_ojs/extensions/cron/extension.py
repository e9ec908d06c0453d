"""Cron jobs (ojs-cron): fire those that are due, and delete old runs."""

import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import CommandError
from django.db.models import Model

from django_ojs.extension import TICK, Declared, DueStep, Extension, Hooks
from django_ojs.spec.errors import OJSError

if TYPE_CHECKING:
    from django_ojs.finding import Finding

logger = logging.getLogger("django_ojs")

_TASK: Final = "ojs.cron.trigger"


class CronExtension(Extension):
    """Fires cron jobs."""

    name = "cron"
    number = 15
    looks_for = "late schedules"
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(before_fetch=_fire, workers_start=_store_schedules)

    def due_steps(self) -> Sequence[DueStep]:
        """Fire cron jobs, correct their times after the clock was set back, and prune runs."""
        from django_ojs.extensions.cron.operations import clock, pruning, tick

        pruner = pruning.RunPruner()
        return (
            DueStep(run=_fire, interval=TICK, task=_TASK, when=tick.due_condition),
            DueStep(run=clock.put_right, interval=clock.INTERVAL, batch=sys.maxsize),
            DueStep(run=pruner.prune, interval=10.0, batch=pruning.WALK, when=pruner.condition),
        )

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        """Fire cron jobs that are late."""
        from django_ojs.extensions.cron.operations import tick

        return (
            DueStep(
                run=partial(tick.fire_if_due, behind),
                interval=5.0,
                task=_TASK,
                when=partial(tick.due_condition, behind),
            ),
        )

    def subcommands(self) -> Sequence[Any]:
        """Return `cron`."""
        from django_ojs.extensions.cron import command_line as cron

        return cron.SUBCOMMANDS

    def may_find(self) -> str:
        """Return the condition that a schedule is late or skipped."""
        from django_ojs.extensions.cron.findings import condition

        return condition()

    def findings(self) -> Sequence["Finding"]:
        """Return the schedules that are late or skipped."""
        from django_ojs.extensions.cron import findings

        return findings.found()

    def routes(self) -> Sequence[Any]:
        """Return the routes of cron jobs."""
        from django_ojs.extensions.cron import views as cron
        from django_ojs.http.routing import route

        return (
            route("v1/cron", cron.CronJobs, "ojs-cron"),
            route("v1/cron/<str:name>", cron.CronJobDetail, "ojs-cron-job"),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare cron."""
        return (Declared(capability="cron_jobs"),)

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.cron.models import CronJob

        return {CronJob: "django_ojs.extensions.cron.admin.CronJobAdmin"}


def _store_schedules() -> None:
    """Store the schedules of the code. Raises CommandError for one that cannot be stored."""
    from django_ojs.extensions.cron import schedules

    try:
        result = schedules.sync()
    except OJSError as error:
        raise CommandError(f"A schedule of the code cannot be stored: {error.message}") from error
    for name, text in result.lines():
        logger.info("Cron job %s: %s", name, text)


def _fire() -> int:
    from django_ojs.extensions.cron.operations.tick import fire_if_due

    return fire_if_due()

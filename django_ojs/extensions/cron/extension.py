"""Cron jobs (ojs-cron): fire those that are due, and delete old runs."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from django_ojs.extension import TICK, DueStep, Extension, Hooks

_TASK: Final = "ojs.cron.trigger"


class CronExtension(Extension):
    """Fires cron jobs."""

    name = "cron"
    number = 15

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(before_fetch=_fire)

    def due_steps(self) -> Sequence[DueStep]:
        """Fire cron jobs, go by their schedules when the clock was set back, and prune runs."""
        from django_ojs.extensions.cron.operations import clock, due_query, pruning

        pruner = pruning.RunPruner()
        return (
            DueStep(run=_fire, interval=TICK, task=_TASK, when=due_query.due_condition),
            DueStep(run=clock.put_right, interval=clock.INTERVAL, batch=sys.maxsize),
            DueStep(run=pruner.prune, interval=10.0, batch=pruning.WALK, when=pruner.condition),
        )

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        """Fire cron jobs that are late."""
        from django_ojs.extensions.cron.operations import due_query

        return (
            DueStep(
                run=partial(due_query.fire_if_due, behind),
                interval=5.0,
                task=_TASK,
                when=partial(due_query.due_condition, behind),
            ),
        )


def _fire() -> int:
    from django_ojs.extensions.cron.operations.due_query import fire_if_due

    return fire_if_due()

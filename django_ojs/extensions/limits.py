"""Limits by key and by queue: let held jobs start when there is room, and forget old starts."""

import sys
from collections.abc import Sequence

from django_ojs.extension import TICK, DueStep, Extension, Hooks


class LimitsExtension(Extension):
    """Opens jobs that limits hold."""

    name = "limits"
    number = 16

    def hooks(self) -> Hooks:
        """Return the hooks: the claim still knows limits by name."""
        return Hooks()

    def due_steps(self) -> Sequence[DueStep]:
        """Open held jobs, and delete what is known of keys and queues that need it no more."""
        from django_ojs.operations import limit_checks
        from django_ojs.operations.maintenance import rate_limit_starts

        return (
            DueStep(
                run=limit_checks.open_due,
                interval=TICK,
                batch=limit_checks.AT_ONCE,
                when=limit_checks.due_condition,
            ),
            # It reads all jobs that wait with a limit by key, for what normally does not happen.
            DueStep(run=limit_checks.recheck, interval=600.0, batch=sys.maxsize),
            DueStep(run=limit_checks.prune, interval=60.0, batch=sys.maxsize),
            DueStep(
                run=rate_limit_starts.StartsPruner().prune,
                interval=60.0,
                batch=rate_limit_starts.WALK,
            ),
        )

"""Workflows: start the steps whose jobs may run, and delete what ended long ago."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from django_ojs import extensions
from django_ojs.extension import TICK, Change, DueStep, Extension, Hooks, Reads
from django_ojs.extensions.workflows.models import WorkflowState
from django_ojs.extensions.workflows.settings import WorkflowSettings
from django_ojs.hooks import registry
from django_ojs.spec.states import State, Trigger

if TYPE_CHECKING:
    from django_ojs.extensions.workflows.workflow_advancer import WorkflowAdvancer

#: Later jobs of a workflow that runs may read the results of those that have ended.
_NEEDED: Final = (
    "ojs_job.workflow_id IS NOT NULL AND EXISTS (SELECT 1 FROM ojs_workflow AS w "
    f"WHERE w.id = ojs_job.workflow_id AND w.state = '{WorkflowState.RUNNING.value}')"
)

#: What a worker stores of the end of a run. All other ends are left to the maintenance.
_ENDS: Final = (Trigger.ACK, Trigger.FAIL)


class WorkflowsExtension(Extension):
    """Advances workflows."""

    name = "workflows"
    number = 16
    schema = Path(extensions.__path__[0]) / "workflows/schema"
    settings = WorkflowSettings

    def __init__(self) -> None:
        #: Where this process has workers: the thread beside them, and how many they are.
        self._advancer: WorkflowAdvancer | None = None
        self._workers = 0

    def hooks(self) -> Hooks:
        """Return the hooks: the ends of jobs are told where there is a worker."""
        ends = () if self._advancer is None else _ENDS
        return Hooks(
            changed_and_committed=dict.fromkeys(ends, self._ended),
            reads=dict.fromkeys(ends, Reads.JOBS),
            needed=_NEEDED,
            before_fetch=_advance_if_due,
            next_jobs=_advance_due,
            worker_started=self._worker_started,
            worker_ends=self._worker_ends,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Advance workflows whose jobs something else than a worker has ended, and prune."""
        from django_ojs.extensions.workflows.operations import pruning

        return (
            _advancing(TICK),
            DueStep(
                run=pruning.prune,
                interval=10.0,
                batch=pruning.AT_ONCE,
                when=pruning.condition,
            ),
        )

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        """Advance workflows too, however late: a workflow has no time at which it is due."""
        return (_advancing(5.0),)

    def _ended(self, change: Change) -> None:
        if (advancer := self._advancer) is None:
            return  # It has just ended.
        jobs = change.jobs()
        advancer.add(
            [
                jobs[key].workflow_id
                for key, state in change.after.items()
                if state is not State.RETRYABLE
            ]
        )

    def _worker_started(self, worker_id: str) -> None:
        from django_ojs.extensions.workflows.workflow_advancer import WorkflowAdvancer

        self._workers += 1
        if self._advancer is None:
            self._advancer = WorkflowAdvancer()
            registry.compile()

    def _worker_ends(self) -> None:
        if self._advancer is None:
            return
        self._workers -= 1
        if not self._workers:
            advancer, self._advancer = self._advancer, None
            registry.compile()
            advancer.close()


def _advancing(interval: float) -> DueStep:
    from django_ojs.extensions.workflows.operations import due
    from django_ojs.extensions.workflows.operations.advance import TASK, WORKFLOWS_AT_ONCE

    return DueStep(
        run=due.advance_if_due,
        interval=interval,
        batch=WORKFLOWS_AT_ONCE,
        when=due.due_condition,
        task=TASK,
    )


def _advance_if_due() -> int:
    from django_ojs.extensions.workflows.operations.due import advance_if_due

    return advance_if_due()


def _advance_due() -> int:
    from django_ojs.extensions.workflows.operations.advance import advance_due

    return advance_due()

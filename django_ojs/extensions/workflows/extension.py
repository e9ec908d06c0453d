"""Workflows: start the steps whose jobs may run, and delete what ended long ago."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from django_ojs.extension import (
    TICK,
    Change,
    Declared,
    DueStep,
    Extension,
    ForTests,
    Hooks,
    Reads,
)
from django_ojs.extensions.workflows.models import MARK, NUMBER, StepState, WorkflowState
from django_ojs.extensions.workflows.settings import WorkflowSettings
from django_ojs.hooks import registry
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import schema

if TYPE_CHECKING:
    from django_ojs.extensions.workflows.workflow_advancer import WorkflowAdvancer

#: These jobs are kept, because later jobs of a running workflow may read their results.
_NEEDED: Final = (
    f"ojs_job.marks & {MARK} <> 0 AND EXISTS (SELECT 1 FROM ojs_workflow_step AS s "
    "JOIN ojs_workflow AS w ON w.id = s.workflow_id "
    f"WHERE s.id = ojs_job.id AND w.state = '{WorkflowState.RUNNING.value}')"
)

#: Steps whose jobs ended while no trigger noted it. If such a job was deleted since, its outcome is
#: unknown, and the step fails.
_NOT_NOTED: Final = f"""
INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
SELECT s.workflow_id, s.id, coalesce(j.state, 'deleted')
FROM ojs_workflow_step AS s LEFT JOIN ojs_job AS j ON j.id = s.id
WHERE s.state = '{StepState.ENQUEUED.value}' AND s.type IS NOT NULL
  AND (j.id IS NULL OR j.finished_at IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM ojs_workflow_ended_job AS e WHERE e.job_id = s.id)
"""

#: The transitions by which a worker ends a run. The maintenance finds all other ends.
_ENDS: Final = (Trigger.ACK, Trigger.FAIL)


class WorkflowsExtension(Extension):
    """Advances workflows."""

    name = "workflows"
    number = NUMBER
    schema = Path(__file__).parent / "schema"
    settings = WorkflowSettings
    openapi = Path(__file__).with_name("openapi.yaml")

    def __init__(self) -> None:
        #: If this process has workers: the thread that advances workflows, and how many workers
        #: there are.
        self._advancer: WorkflowAdvancer | None = None
        self._workers = 0

    def hooks(self) -> Hooks:
        """Return the hooks. The ends of jobs are passed on only in a process with a worker."""
        ends = () if self._advancer is None else _ENDS
        return Hooks(
            changed_and_committed=dict.fromkeys(ends, self._ended),
            reads=dict.fromkeys(ends, Reads.JOBS),
            needed=_NEEDED,
            before_fetch=_advance_if_due,
            next_jobs=_advance_due,
            worker_started=self._worker_started,
            request_ended=_request_ended,
            worker_ends=self._worker_ends,
        )

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        """Mark the jobs of workflows, and note those that have ended or are no longer there."""
        schema.mark(connection, self.number, "SELECT id FROM ojs_workflow_step")
        with connection.cursor() as cursor:
            cursor.execute(_NOT_NOTED)

    def for_tests(self) -> ForTests:
        """Return what the test helpers do about workflows."""
        from django_ojs.extensions.workflows.testing import FOR_TESTS

        return FOR_TESTS

    def due_steps(self) -> Sequence[DueStep]:
        """Advance workflows whose jobs were not ended by a worker, and prune."""
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
        """Advance workflows whatever `behind` is, because a workflow has no time when it is due."""
        return (_advancing(5.0),)

    def _ended(self, change: Change) -> None:
        if (advancer := self._advancer) is None:
            return  # The last worker has just ended.
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

    def subcommands(self) -> Sequence[Any]:
        """Return `workflows`."""
        from django_ojs.extensions.workflows import command_line as workflows

        return workflows.SUBCOMMANDS

    def routes(self) -> Sequence[Any]:
        """Return the routes of workflows."""
        from django_ojs.extensions.workflows import views as workflows
        from django_ojs.http.routing import route

        one = "v1/workflows/<str:key>"
        return (
            route("v1/workflows", workflows.Workflows, "ojs-workflows"),
            route(one, workflows.WorkflowDetail, "ojs-workflow"),
            route(f"{one}/progress", workflows.WorkflowProgressDetail, "ojs-workflow-progress"),
            route(f"{one}/history", workflows.WorkflowHistory, "ojs-workflow-history"),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare workflows."""
        return (Declared(capability="workflows"),)

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.workflows.models import Workflow

        return {Workflow: "django_ojs.extensions.workflows.admin.WorkflowAdmin"}

    def what_is(self, key: UUID) -> Sequence[str]:
        """Return where the workflow with this id is shown."""
        from django_ojs.extensions.workflows.models import Workflow

        if not Workflow.primary.filter(pk=key).exists():
            return ()
        return (
            f"This is the id of a workflow: `manage.py ojs workflows show {key}` shows its steps.",
        )


def _advancing(interval: float) -> DueStep:
    from django_ojs.extensions.workflows.operations.advance import (
        TASK,
        WORKFLOWS_AT_ONCE,
        advance_if_due,
    )
    from django_ojs.extensions.workflows.storage import due_condition

    return DueStep(
        run=advance_if_due,
        interval=interval,
        batch=WORKFLOWS_AT_ONCE,
        when=due_condition,
        task=TASK,
    )


def _request_ended(job: Any) -> None:
    from django_ojs.extensions.workflows.operations import advance_after_commit

    advance_after_commit(job.workflow_id)


def _advance_if_due() -> int:
    from django_ojs.extensions.workflows.operations.advance import advance_if_due

    return advance_if_due()


def _advance_due() -> int:
    from django_ojs.extensions.workflows.operations.advance import advance_due

    return advance_due()
